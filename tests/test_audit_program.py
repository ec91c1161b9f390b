"""A program that is run for the user sees what it would see below `python`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from importlib.util import find_spec
from pathlib import Path

import pytest
from click.testing import CliRunner

from sojourn.cli.main import main

# Loaded by its path: the package around it would take longer than all these programs.
RUN = f"""
import importlib.util, sys
spec = importlib.util.spec_from_file_location("program", {find_spec("sojourn.program").origin!r})
module = importlib.util.module_from_spec(spec)
sys.modules["program"] = module
spec.loader.exec_module(module)
program = module.Program(sys.argv[2], tuple(sys.argv[3:]), is_module=sys.argv[1] == "-m")
code = program.run()
program.end()
sys.exit(code)
"""


def write(path: Path, source: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(source))
    return path


def both(
    folder: Path, *command: str, given: str = ""
) -> tuple[subprocess.CompletedProcess[str], subprocess.CompletedProcess[str]]:
    """What Python does with the command line, and what we do."""
    ours = command if command[0] == "-m" else ("-s", *command)
    runs = [[sys.executable, *command], [sys.executable, "-c", RUN, *ours]]
    python, sojourn = (
        subprocess.run(run, input=given, capture_output=True, text=True, cwd=folder, check=False)
        for run in runs
    )
    return python, sojourn


SHOW = """
import sys
print(__name__, __file__, __package__, __spec__ and __spec__.name, sys.argv, sys.path[0])
print(sys.modules["__main__"].__dict__ is globals(), sys.stdin.read())
"""


def test_a_script_sees_what_python_shows_it(tmp_path: Path) -> None:
    write(tmp_path / "deep" / "show.py", SHOW)
    python, ours = both(tmp_path, "deep/show.py", "-m", "--json", given="hello")
    assert ours.stdout == python.stdout
    assert "hello" in ours.stdout


def test_a_module_sees_what_python_shows_it(tmp_path: Path) -> None:
    write(tmp_path / "pack" / "__init__.py", "")
    write(tmp_path / "pack" / "show.py", SHOW)
    write(tmp_path / "pack" / "__main__.py", "from . import near\n" + SHOW)
    write(tmp_path / "pack" / "near.py", "")
    for module in ("pack.show", "pack"):
        python, ours = both(tmp_path, "-m", module, "a", "b")
        assert ours.stdout == python.stdout
        assert ours.returncode == 0


def test_a_folder_with_a_main_is_a_program(tmp_path: Path) -> None:
    write(tmp_path / "folder" / "__main__.py", SHOW)
    python, ours = both(tmp_path, "folder")
    assert ours.stdout == python.stdout


@pytest.mark.parametrize(
    "source",
    [
        "raise SystemExit(3)",
        "import sys; sys.exit()",
        "import sys; sys.exit('bye')",
        "x = 1\n1 / 0",
        "def broken(:\n  pass",
        "try:\n  {}['a']\nexcept KeyError as e:\n  raise ValueError('b') from e",
        "import atexit; atexit.register(print, 'last'); print('first')",
        "import threading; e = threading.Event()\n"
        "threading.Thread(target=lambda: (e.wait(), print('later'))).start()\n"
        "print('first'); e.set()",
        "import threading; e = threading.Event()\n"
        "from concurrent.futures import ThreadPoolExecutor as P\n"
        "p = P(1); p.submit(lambda: (e.wait(), print('later'))); print('first'); e.set()",
        "class A:\n  def __del__(self): print('collected', name)\na, name = A(), 'a'",
        "import sys; sys.excepthook = lambda *a: print('hooked', a[1]); 1 / 0",
    ],
)
def test_it_ends_as_it_would_below_python(tmp_path: Path, source: str) -> None:
    write(tmp_path / "ends.py", source)
    python, ours = both(tmp_path, "ends.py")
    assert ours.returncode == python.returncode
    assert ours.stdout == python.stdout
    assert ours.stderr == python.stderr


def test_workers_of_multiprocessing_find_the_program_again(tmp_path: Path) -> None:
    write(
        tmp_path / "spawns.py",
        """
        import multiprocessing

        def double(n):
            return 2 * n

        if __name__ == "__main__":
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                print(pool.map(double, [1, 2]))
                pool.close()
                pool.join()
        """,
    )
    _, ours = both(tmp_path, "spawns.py")
    assert ours.stdout == "[2, 4]\n", ours.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["missing.py"], "can't open file"),
        (["-m", "no_such_module"], "no module named 'no_such_module'"),
        ([], "Name a program to run"),
        (["--ignore", "SOJ999", "a.py"], "Unknown code: SOJ999"),
        (["-m"], "Option '-m' requires an argument"),
    ],
)
def test_a_command_that_makes_no_sense_is_a_usage_error(arguments: list[str], message: str) -> None:
    done = CliRunner().invoke(main, ["audit", *arguments])
    assert done.exit_code == 2
    assert message in done.output


def test_the_exit_code_of_a_program_that_fails_is_its_own(tmp_path: Path) -> None:
    write(tmp_path / "fails.py", "import sys; print(sys.argv); sys.exit(7)")
    audit = [sys.executable, "-m", "sojourn.cli.main", "audit"]
    programs = (["fails.py"], ["-m", "fails"], ["-mfails"], ["--tf2", "-mfails"])
    for arguments in ([*program, "-m", "--html"] for program in programs):
        done = subprocess.run(
            [*audit, *arguments], capture_output=True, text=True, cwd=tmp_path, check=False
        )
        assert done.returncode == 7
        assert done.stdout.endswith("'-m', '--html']\n")
        assert "nothing found: 0 sessions watched" in done.stderr


def ran(folder: Path, command: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "sojourn.cli.main", command, "--tf2", *words],
        capture_output=True,
        text=True,
        cwd=folder,
        check=False,
    )


@pytest.mark.parametrize("command", ["audit", "run"])
def test_a_file_that_cannot_be_written_costs_no_report(tmp_path: Path, command: str) -> None:
    write(tmp_path / "takes_days.py", "")
    done = ran(tmp_path, command, "--output", "/proc/out.json", "takes_days.py")
    assert done.returncode == 1
    assert "0 sessions" in done.stderr or "opened no session" in done.stderr
    assert "Error: " in done.stderr
    assert "/proc/out.json" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", ["audit", "run"])
@pytest.mark.parametrize(
    "source",
    [
        "sys.stdout = sys.stderr = open('log', 'w')\nprint('hello')",
        "sys.stdout = sys.stderr = open('log', 'w')\nprint('hello')\nsys.stdout.close()",
        "print('hello', file=open('log', 'w'))\nsys.stdout = sys.stderr = None",
        "print('hello', file=open('log', 'w'))\nsys.stdout = sys.stderr = object()",
        "print('hello', file=open('log', 'w'))\nsys.stdout.close()",
        "print('hello', file=open('log', 'w'))\nos.chdir('/')",
    ],
)
def test_the_report_is_ours_whatever_the_program_does_to_its_streams(
    tmp_path: Path, command: str, source: str
) -> None:
    write(tmp_path / "logs.py", f"import os, sys\n{source}\nsys.exit(7)")
    done = ran(tmp_path, command, "--json", "--output", "out.json", "logs.py")
    assert done.returncode == 7, done.stderr
    assert json.loads(done.stdout)["exit_code"] == 7
    assert json.loads((tmp_path / "out.json").read_text()) == json.loads(done.stdout)
    assert (tmp_path / "log").read_text() == "hello\n"
    shown = ran(tmp_path, command, "logs.py")
    assert "0 sessions" in shown.stderr or "opened no session" in shown.stderr, shown.stderr
    assert (tmp_path / "log").read_text() == "hello\n"


def test_the_exit_code_is_the_programs_own_though_it_closed_every_stream(tmp_path: Path) -> None:
    write(tmp_path / "closes.py", "import os, sys\nos.closerange(0, 256)\nsys.exit(7)")
    for command in ("audit", "run"):
        for words in ([], ["--json"]):
            assert ran(tmp_path, command, *words, "closes.py").returncode == 7


@pytest.mark.parametrize("command", ["audit", "run"])
def test_an_interrupt_while_threads_end_costs_no_report(tmp_path: Path, command: str) -> None:
    write(
        tmp_path / "serves.py",
        """
        import atexit, os, signal, threading
        main = threading.main_thread()
        over = threading.Event()

        def serve():
            while main.is_alive():
                over.wait(0.001)
            over.wait(0.05)  # until somebody waits for this thread
            os.kill(os.getpid(), signal.SIGINT)
            over.wait(60)

        atexit.register(print, "saved")
        threading.Thread(target=serve).start()
        """,
    )
    python, _ = both(tmp_path, "serves.py")
    done = ran(tmp_path, command, "--output", "out.json", "serves.py")
    assert (done.returncode, done.stdout) == (python.returncode, python.stdout) == (0, "saved\n")
    assert "KeyboardInterrupt" in done.stderr
    assert json.loads((tmp_path / "out.json").read_text())["exit_code"] == 0


def test_a_safe_path_is_left_as_it_is(tmp_path: Path) -> None:
    write(tmp_path / "near.py", "print('near')")
    write(tmp_path / "paths.py", "import sys; print(sys.path); import near")
    environment = {**os.environ, "PYTHONSAFEPATH": "1"}
    for target in (["paths.py"], ["-m", "paths"]):
        ours = target if target[0] == "-m" else ["-s", *target]
        python, sojourn = (
            subprocess.run(
                [sys.executable, *run],
                capture_output=True,
                text=True,
                cwd=tmp_path,
                env=environment,
                check=False,
            )
            for run in (target, ["-c", RUN, *ours])
        )
        assert sojourn.stdout == python.stdout


# Enough of TensorFlow to be watched.
STAND_IN = """
class Graph:
    version = 1

class BaseSession:
    def __init__(self):
        self.graph = self._graph = Graph()
        self._closed = False

    def run(self, fetch):
        return fetch

    def close(self):
        self._closed = True

    def __del__(self):
        pass

class InteractiveSession(BaseSession):
    pass
"""
STEP = """
from tensorflow.python.client.session import BaseSession
session = BaseSession()
print(session.run(3))
session.close()
print("closed", session._closed)
"""


def test_a_report_is_written_of_a_program_whose_name_is_no_text(stand_in: Path) -> None:
    folder = stand_in / os.fsdecode(b"d\xff")
    program = write(folder / os.fsdecode(b"p\xff.py"), STEP.replace("session.close()", ""))
    page = folder / "report.html"
    command = [sys.executable, "-m", "sojourn.cli.main", "audit", "--tf2", "--html", str(page)]
    done = subprocess.run(
        [*command, str(program), os.fsdecode(b"\xfe")],
        capture_output=True,
        env={**os.environ, "PYTHONPATH": f"{stand_in}:{os.environ.get('PYTHONPATH', '')}"},
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert "p\\udcff.py" in page.read_text()


def audited(stand_in: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "sojourn.cli.main", "audit", "--tf2", *words],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": f"{stand_in}:{os.environ.get('PYTHONPATH', '')}"},
        check=False,
    )


def test_a_program_whose_folder_is_gone_gets_its_report(stand_in: Path) -> None:
    leave = "import os, tempfile; os.chdir(tempfile.mkdtemp()); os.rmdir(os.getcwd())"
    write(stand_in / "leaves.py", STEP.replace("session.close()", leave))
    done = audited(stand_in, str(stand_in / "leaves.py"))
    assert f"{stand_in}/leaves.py:3: SOJ006" in done.stderr, done.stderr


@pytest.mark.parametrize("command", ["audit", "run"])
@pytest.mark.parametrize("closed", [1, 2])
@pytest.mark.parametrize("words", [[], ["--json"]])
def test_a_program_runs_without_a_standard_stream(
    tmp_path: Path, command: str, closed: int, words: list[str]
) -> None:
    write(tmp_path / "says.py", "import sys; open('said', 'w').write('hello')")
    shell = f'"$0" -m sojourn.cli.main "$@" {closed}>&-'
    arguments = [sys.executable, command, "--tf2", *words, "says.py"]
    done = subprocess.run(
        ["sh", "-c", shell, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, (tmp_path / "said").read_text()) == (0, "hello"), done.stderr
    assert "Traceback" not in done.stderr


def test_a_page_that_cannot_be_written_costs_no_report(stand_in: Path) -> None:
    write(stand_in / "leaks.py", STEP.replace("session.close()", ""))
    done = audited(stand_in, "--html", "/proc/page.html", str(stand_in / "leaks.py"))
    assert done.returncode == 1
    assert "leaks.py:3: SOJ006" in done.stderr, done.stderr
    assert "/proc/page.html" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.fixture
def stand_in(tmp_path: Path) -> Path:
    """A folder with a TensorFlow that takes no time to import."""
    for part in ("tensorflow", "tensorflow/python", "tensorflow/python/client"):
        write(tmp_path / part / "__init__.py", "")
    write(tmp_path / "tensorflow/python/client/session.py", STAND_IN)
    return tmp_path


# The parent must be gone, and not a zombie.
DAEMON = """
import os, sys, time
parent = os.getpid()
if os.fork():
    sys.exit(0)
while os.path.exists(f"/proc/{parent}"):
    time.sleep(0.002)
"""


@pytest.mark.parametrize(
    ("before", "watched"),
    [
        (DAEMON, 0),
        ("import os\nos.closerange(3, 256)\n", 1),
        ("import os\nfor fd in range(3, 256):\n    os.dup2(0, fd)\n", 1),
    ],
)
def test_a_step_is_the_same_whatever_the_program_does_to_descriptors_and_processes(
    stand_in: Path, before: str, watched: int
) -> None:
    write(stand_in / "steps.py", before + STEP)
    python = [sys.executable, "-W", "ignore::DeprecationWarning"]  # of forks, since Python 3.12
    command = [*python, "-m", "sojourn.cli.main", "audit", "--tf2", "steps.py"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=stand_in
    ) as running:
        code = running.wait()  # a fork lives on, and has its output
        output, errors = running.communicate()
    assert output == "3\nclosed True\n", errors
    assert errors.strip().startswith(f"nothing found: {watched} session")
    assert code == 0


def test_a_fork_has_tensorflow_as_it_was_and_audits_of_its_own(stand_in: Path) -> None:
    write(
        stand_in / "forks.py",
        """
        import os, sojourn
        with sojourn.audit() as outer:
            from tensorflow.python.client.session import BaseSession
            if child := os.fork():
                os.waitpid(child, 0)
            else:
                print(hasattr(BaseSession.run, "__wrapped__"))
                with sojourn.audit() as inner:
                    BaseSession().close()
                    forgotten = BaseSession()
                    del forgotten
                print(inner.codes, flush=True)
                os._exit(0)
        print(outer.codes)
        """,
    )
    _, ours = both(stand_in, "forks.py")
    assert ours.stdout == "False\n('SOJ001',)\n()\n", ours.stderr
