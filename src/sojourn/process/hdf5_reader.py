"""A program: read an HDF5 file with h5py and print its contents as JSON.

The HDF5 library is written in C and may crash or loop forever on damaged files. So it reads them
here, in a process of its own, in the sandbox of untrusted models and within limits. The caller
checks the output like any other untrusted input.
"""

from __future__ import annotations

import importlib
import io
import json
import resource
import sys
import zipfile
from typing import Any

from sojourn.process import sandbox

LIMIT_SECONDS = 20
_LIMIT_BYTES = 4 << 30
_LONGEST_ANSWER = 64 << 20
_MOST_ITEMS = 100_000
_LARGEST_CONFIG = 16 << 20
_LARGEST_UNPACKED = 1 << 30
_LONGEST_NAME = 4096


class _Window(io.RawIOBase):
    """A byte range of a file, readable like a file of its own."""

    def __init__(self, file: io.BufferedReader, start: int, size: int) -> None:
        self._file, self._start, self._size, self._at = file, start, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = max(0, offset + (0, self._at, self._size)[whence])
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        size = max(0, min(len(buffer), self._size - self._at))
        self._file.seek(self._start + self._at)
        content = self._file.read(size)
        buffer[: len(content)] = content
        self._at += len(content)
        return len(content)


def _member(path: str, name: str) -> io.IOBase:
    """Open a file inside an archive. Keras stores it uncompressed, so it can be read in place."""
    archive = zipfile.ZipFile(path)
    member = archive.getinfo(name)
    if member.compress_type == zipfile.ZIP_STORED:
        file = open(path, "rb")
        file.seek(member.header_offset + 26)
        lengths = file.read(4)  # of the name and of the extra field before the content
        start = member.header_offset + 30 + sum(memoryview(lengths).cast("H"))
        return _Window(file, start, min(member.compress_size, member.file_size))
    if member.compress_type != zipfile.ZIP_DEFLATED:
        raise ValueError("compressed in a way that no Keras file is")
    with archive.open(member) as packed:
        content = packed.read(_LARGEST_UNPACKED + 1)
    if len(content) > _LARGEST_UNPACKED:
        raise ValueError("too large to unpack it")
    return io.BytesIO(content)


def read(h5py: Any, file: Any) -> dict[str, Any]:
    """Return the configuration, the datasets, and the links that lead out of the file."""
    weights: list[tuple[str, str, tuple[int, ...], int]] = []
    outside: list[tuple[str, str]] = []

    def leads_out(name: str, detail: str) -> None:
        outside.append((name[:_LONGEST_NAME], detail[:_LONGEST_NAME]))
        if len(outside) > _MOST_ITEMS:
            raise ValueError("too many links")

    def look(name: str, link: Any) -> None:
        if isinstance(link, h5py.ExternalLink):
            leads_out(name, f"leads to {link.filename}")

    def measure(name: str, item: Any) -> None:
        if not isinstance(item, h5py.Dataset):
            return
        for source in {filename for filename, _, _ in item.external or ()}:
            leads_out(name, f"its data is in {source}")
        if item.is_virtual:
            for source in {source.file_name for source in item.virtual_sources()} - {"."}:
                leads_out(name, f"its data is in {source}")
        shape = tuple(map(int, item.shape or ()))
        size = int(item.size or 0) * item.dtype.itemsize
        weights.append((name[:_LONGEST_NAME], str(item.dtype)[:100], shape, size))
        if len(weights) > _MOST_ITEMS:
            raise ValueError("too many datasets")

    with h5py.File(file, "r") as opened:
        config = opened.attrs.get("model_config")
        version = opened.attrs.get("keras_version", "")
        opened.visititems_links(look)
        opened.visititems(measure)
    text = None if config is None else _text(config)
    if text is not None and len(text) > _LARGEST_CONFIG:
        raise ValueError("its configuration is larger than 16 MiB")
    return {"config": text, "version": _text(version)[:100], "weights": weights, "outside": outside}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else bytes(value).decode("utf-8", "replace")


def _close_off(path: str) -> bool:
    """Confine this process to reading the file. False if this system cannot do that."""
    if sys.platform != "linux":
        return False
    applied = sandbox.apply(sandbox.Policy(readable=(path,), best_effort=True))
    return bool(applied.landlock_abi and applied.seccomp)


def main(path: str, member: str = "") -> None:
    """Print the contents of `path`, or of its member if `path` is an archive."""
    resource.setrlimit(resource.RLIMIT_CPU, (LIMIT_SECONDS, LIMIT_SECONDS))
    resource.setrlimit(resource.RLIMIT_DATA, (_LIMIT_BYTES, _LIMIT_BYTES))
    resource.setrlimit(resource.RLIMIT_FSIZE, (_LONGEST_ANSWER, _LONGEST_ANSWER))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        h5py: Any = importlib.import_module("h5py")
        is_closed_off = _close_off(path)
        facts = {**read(h5py, _member(path, member) if member else path), "closed": is_closed_off}
    except ImportError:
        facts = {"missing": True}
    except Exception as error:
        # HDF5 reports damage as OSError, RuntimeError, KeyError, ValueError and more.
        facts = {"error": str(error)[:1000]}
    json.dump(facts, sys.stdout)
