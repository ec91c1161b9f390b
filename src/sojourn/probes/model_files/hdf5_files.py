"""HDF5 files, which hold the weights of Keras models. Another process reads them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sojourn.errors import ModelError
from sojourn.probes.model_files.ops import READS
from sojourn.probes.model_files.summary import Finding, Weight
from sojourn.values import TensorSpec

# By its name, as a program: it closes itself off with what lies above this layer. Isolated, so
# that nothing in the current folder or the environment is imported as a part of it; where this
# package lies is passed on, as it need not be installed.
_PROGRAM = (
    "import sys; sys.path.append(sys.argv[1]); "
    "from sojourn.process.hdf5_reader import main; main(*sys.argv[2:])"
)
_READER = (sys.executable, "-I", "-c", _PROGRAM, str(Path(__file__).parents[3]))
_LIMIT_SECONDS = 40  # by the clock; the reader allows itself half of it of the processor
_LONGEST_ANSWER = 64 << 20
# Nothing of the caller's environment, where secrets are, but what libraries are found by.
_KEPT = ("LD_LIBRARY_PATH", "LANG", "LC_ALL")
_ENVIRONMENT = {
    "OPENBLAS_NUM_THREADS": "1",  # the sandbox is for processes of one thread
    "HDF5_USE_FILE_LOCKING": "FALSE",
    "HDF5_PLUGIN_PRELOAD": "::",  # no filters from libraries of their own
}
NO_H5PY = "h5py, which reads HDF5, is not installed"


@dataclass(frozen=True, slots=True)
class Hdf5Content:
    """What is in a file."""

    config: str | None
    version: str
    weights: tuple[Weight, ...]
    findings: tuple[Finding, ...]


def read_hdf5(path: str, member: str = "") -> Hdf5Content | None:
    """What is in a file, or in a file inside of an archive; `None` without h5py."""
    environment = {name: os.environ[name] for name in _KEPT if name in os.environ}
    # Resolved, and so absolute: no name of a file is taken for an option.
    command = [*_READER, os.path.realpath(path), *([member] if member else [])]
    with tempfile.TemporaryFile() as answer:
        try:
            subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=answer,
                stderr=subprocess.DEVNULL,
                env={**environment, **_ENVIRONMENT},
                timeout=_LIMIT_SECONDS,
            )
            answer.seek(0)
            facts = json.loads(answer.read(_LONGEST_ANSWER))
            if "error" in facts:
                raise ModelError(f"damaged: not a readable HDF5 file ({facts['error']})")
            return None if "missing" in facts else _content(facts)
        except subprocess.TimeoutExpired as error:
            raise ModelError("damaged: reading it as HDF5 never ends") from error
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise ModelError("damaged: the HDF5 library fails on it") from error


def _content(facts: dict[str, Any]) -> Hdf5Content:
    weights = tuple(
        Weight(str(name), TensorSpec(str(dtype), tuple(map(int, shape))), int(size))
        for name, dtype, shape, size in facts["weights"]
    )
    findings = [
        Finding("danger", READS, str(name), detail=str(detail)) for name, detail in facts["outside"]
    ]
    if not facts["closed"]:
        detail = "this system has no Landlock or no seccomp to close the reader off"
        findings.append(Finding("note", "read without the sandbox", "HDF5", detail=detail))
    config = facts["config"]
    return Hdf5Content(
        None if config is None else str(config), str(facts["version"]), weights, tuple(findings)
    )
