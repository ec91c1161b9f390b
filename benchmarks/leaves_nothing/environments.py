"""A separate environment for each peer that needs packages which the project does not."""

from __future__ import annotations

import subprocess
import sys
import venv
from collections.abc import Callable

from scenarios import HERE, NotMeasured

PROJECT = HERE.parent.parent
FOLDER = HERE / ".venvs"

# What is installed in each environment; the two constraints files pin the versions.
PEERS = {
    "onnxruntime": [f"{PROJECT}", "onnxruntime", "onnx"],
    "ray": [f"{PROJECT}[cpu]", "ray"],
}
_CONSTRAINTS = (PROJECT / "constraints.txt", HERE / "constraints.txt")


def python_of(environment: str | None, progress: Callable[[str], None]) -> str:
    """Return the interpreter to run a system with; make its environment the first time."""
    if environment is None:
        return sys.executable
    folder = FOLDER / environment
    python, stamp = folder / "bin" / "python", folder / "installed"
    wanted = "\n".join([*PEERS[environment], *(path.read_text() for path in _CONSTRAINTS)])
    if not stamp.exists() or stamp.read_text() != wanted:
        progress(f"installing {environment} into {folder.relative_to(PROJECT)}")
        venv.create(folder, with_pip=True, clear=True)
        _install(str(python), PEERS[environment])
        stamp.write_text(wanted)
    return str(python)


def _install(python: str, packages: list[str]) -> None:
    command = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    for path in _CONSTRAINTS:
        command += ["-c", str(path)]
    command += ["-e", *packages]  # the first package is the project itself
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        reason = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        raise NotMeasured(f"cannot be installed: {(reason or ['pip failed'])[-1][:200]}")
