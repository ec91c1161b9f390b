"""A separate environment for each peer, below `.venvs` in this folder."""

from __future__ import annotations

import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).parent
PROJECT = HERE.parent.parent
FOLDER = HERE / ".venvs"
CONSTRAINTS = HERE / "constraints.txt"


class NotMeasured(Exception):
    """Says why a system is not in the table."""


def python_of(name: str, packages: tuple[str, ...], progress: Callable[[str], None]) -> str:
    """Return the interpreter to run a system with; make its environment the first time."""
    if not packages:
        return sys.executable
    folder = FOLDER / name.lower().replace(" ", "-")
    python, stamp = folder / "bin" / "python", folder / "installed"
    wanted = "\n".join([*packages, CONSTRAINTS.read_text()])
    if not stamp.exists() or stamp.read_text() != wanted:
        progress(f"installing {name} into {folder.relative_to(PROJECT)}")
        venv.create(folder, with_pip=True, clear=True)
        command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        done = subprocess.run(
            [*command, "-c", str(CONSTRAINTS), *packages, "numpy"], capture_output=True, text=True
        )
        if done.returncode:
            reason = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
            raise NotMeasured(f"cannot be installed: {(reason or ['pip failed'])[-1][:200]}")
        stamp.write_text(wanted)
    return str(python)
