"""What a model has started and detached: it ends with the worker, whoever else has died before."""

from __future__ import annotations

import os
import signal
import subprocess

import pytest

from clients import client, remaining, told
from faults.programs import STRICT, run_to_end
from faults.tools import is_running, wait_until
from sojourn.process import marks

OPEN = """
def build():
    def detach(is_program):
        warnings.simplefilter("ignore", DeprecationWarning)  # of a fork with threads
        reader, writer = os.pipe()
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                os.write(writer, str(os.getpid()).encode())
                if is_program:
                    os.execvp("sleep", ["sleep", "600"])
                time.sleep(600)
            os._exit(0)
        os.wait()
        return np.array(int(os.read(reader, 20)))

    return detach

session = sojourn.open(build)
victim = zygote_pid()
os.kill(victim, signal.SIGKILL)
os.waitid(os.P_PID, victim, os.WEXITED | os.WNOWAIT)
"""
DETACH = "tell(session.run('output', {{'is_program': {}}}), session.pid)\n"
both = pytest.mark.parametrize("is_program", [True, False], ids=["program", "fork"])


@both
@pytest.mark.parametrize("end", ["session.close()", "os.kill(session.pid, signal.SIGKILL)"])
def test_a_daemon_ends_with_its_worker_after_the_zygote_that_forked_it_was_killed(is_program, end):
    code = OPEN + DETACH.format(is_program) + end + "\ntell(session.close().clean)"
    pids, clean = run_to_end(code)
    assert clean == "True"
    wait_until(lambda: not any(is_running(int(pid)) for pid in pids.split()))


@both
def test_a_daemon_ends_with_a_client_that_is_killed_after_a_zygote_was(is_program):
    code = OPEN + "sojourn.warm_up(wait=True)\n" + DETACH.format(is_program) + "time.sleep(60)"
    with client(STRICT + code) as process:
        daemon, worker = map(int, told(process))
        assert is_running(daemon)
        process.kill()
        assert remaining(process.pid) == []
        wait_until(lambda: not is_running(daemon) and not is_running(worker))


def test_a_program_that_is_just_being_started_is_found_by_its_mark(tmp_path):
    """In an exec it has no environment for a moment; here one look in six is in such a moment."""
    mark = "0123456789abcdef-00000001"
    again = tmp_path / "again.sh"
    again.write_text('exec /bin/sh "$0"\n')
    with subprocess.Popen(["/bin/sh", again], env={**os.environ, marks.NAME: mark}) as program:
        try:
            wait_until(lambda: program.pid in marks.processes_with(mark))
            assert all(program.pid in marks.processes_with(mark) for _ in range(200))
            assert marks.kill_marked(mark) == [program.pid]
            assert program.wait(10) == -signal.SIGKILL
        finally:
            program.kill()


def test_a_program_without_an_environment_is_nobodys():
    with subprocess.Popen(["/bin/sleep", "60"], env={}) as program:
        try:
            assert program.pid not in marks.processes_with("0")
        finally:
            program.kill()
