"""Folders that libraries make as they are imported, such as matplotlib where the home cannot be
written (containers, service users): nothing is left of them."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

import sojourn
from clients import client, remaining, told
from faults.programs import run_to_end
from faults.tools import wait_until

# The zygote is to have TensorFlow, and with it Keras, which imports pydot if it can.
HOMELESS = """
import tempfile
sys.path.insert(0, {library!r})
for name in ("MPLCONFIGDIR", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "SOJOURN_PRELOAD"):
    os.environ.pop(name, None)
os.environ["HOME"] = "/proc/no-such-home"
os.environ["TMPDIR"] = {folder!r}
tempfile.tempdir = None
session = sojourn.open(models.adder)
session.run("output", {{"a": 1, "b": 2}})
"""


@pytest.fixture
def homeless(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Opens a session in a zygote with a library that makes itself a folder."""
    library = tmp_path_factory.mktemp("library")
    (library / "pydot.py").write_text("import tempfile\nFOLDER = tempfile.mkdtemp()\n")
    return HOMELESS.format(folder=str(tmp_path), library=str(library))


def test_a_home_that_cannot_be_written_leaves_nothing_in_the_temporary_folder(
    tmp_path: Path, homeless: str
) -> None:
    code = (
        homeless
        + """
[folder] = os.listdir(os.environ["TMPDIR"])
tell(folder.rpartition("-")[0], os.listdir(os.path.join(os.environ["TMPDIR"], folder)) != [])
os.kill(zygote_pid(), signal.SIGKILL)
tell(session.close().clean)
with sojourn.open(models.adder) as other:
    tell(other.run(*SUM))
"""
    )
    # The program's own check for what is left looks at the temporary folder as well.
    assert run_to_end(code) == ["sojourn-zygote True", "True", "3"]
    assert os.listdir(tmp_path) == []


def test_a_client_that_is_killed_leaves_nothing_for_a_home_that_cannot_be_written(
    tmp_path: Path, homeless: str
) -> None:
    code = homeless + "tell('open')\ntime.sleep(300)\n"
    with client(code) as process:
        assert told(process) == ["open"]
        assert os.listdir(tmp_path) != []
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert remaining(process.pid) == []
        wait_until(lambda: os.listdir(tmp_path) == [])


def test_what_would_be_removed_at_exit_is_removed_as_a_worker_ends(tmp_path: Path):
    path = str(tmp_path)

    def folders() -> Any:
        """As libraries make them: for themselves, and for what they start."""
        import atexit
        import multiprocessing.util
        import shutil
        import tempfile

        tempfile.tempdir = path
        atexit.register(shutil.rmtree, tempfile.mkdtemp())
        folders.kept = tempfile.TemporaryDirectory()  # type: ignore[attr-defined]
        multiprocessing.util.get_temp_dir()
        atexit.register(int, "which fails")
        return lambda: len(os.listdir(path))

    assert sojourn.isolated(lambda: folders()())() == 3
    assert os.listdir(tmp_path) == []
    with sojourn.open(folders) as session:
        assert session.run("output") == 3
    assert os.listdir(tmp_path) == []
    assert session.receipt.clean
