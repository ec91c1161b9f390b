"""A script: read an HDF5 file with h5py and print what is in it as JSON. Imports nothing of ours.

It runs in a process of its own with limits, as the HDF5 library crashes and loops for ever on
damaged files. What it prints is checked by the caller like anything else that a stranger says.
"""

from __future__ import annotations

import importlib
import json
import resource
import sys
from typing import Any

LIMIT_SECONDS = 20
_LIMIT_BYTES = 4 << 30
_MOST_ITEMS = 100_000


class _TooMany(Exception):
    pass


def read(path: str) -> dict[str, Any]:
    """The configuration, the datasets and the links that lead elsewhere."""
    h5py: Any = importlib.import_module("h5py")
    weights: list[tuple[str, str, tuple[int, ...], int]] = []
    outside: list[tuple[str, str]] = []

    def look(name: str, link: Any) -> None:
        if isinstance(link, h5py.ExternalLink):
            outside.append((name, f"leads to {link.filename}"))
        if len(outside) > _MOST_ITEMS:
            raise _TooMany("too many links")

    def measure(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset):
            if item.external:
                outside.append((name, f"its data is in {item.external[0][0]}"))
            shape = tuple(map(int, item.shape or ()))
            size = int(item.size or 0) * item.dtype.itemsize
            weights.append((name, str(item.dtype), shape, size))
        if len(weights) > _MOST_ITEMS:
            raise _TooMany("too many datasets")

    with h5py.File(path, "r") as file:
        config = file.attrs.get("model_config")
        version = file.attrs.get("keras_version", "")
        file.visititems_links(look)
        file.visititems(measure)
    return {
        "config": None if config is None else _text(config),
        "version": _text(version),
        "weights": weights,
        "outside": outside,
    }


def _text(value: Any) -> str:
    return value if isinstance(value, str) else bytes(value).decode("utf-8", "replace")


def main() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (LIMIT_SECONDS, LIMIT_SECONDS))
    resource.setrlimit(resource.RLIMIT_DATA, (_LIMIT_BYTES, _LIMIT_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        told = read(sys.argv[1])
    except ImportError:
        told = {"missing": True}
    except Exception as error:
        # HDF5 reports damage as OSError, RuntimeError, KeyError, ValueError and more.
        told = {"error": str(error)[:1000]}
    json.dump(told, sys.stdout)


if __name__ == "__main__":
    del sys.path[0]  # this folder, whose modules have common names
    main()
