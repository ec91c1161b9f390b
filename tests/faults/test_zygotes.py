"""A zygote that is killed, stopped, starved or lied to: sessions live on, and the next opens."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from clients import remaining
from faults.programs import run_to_end

OPEN = """
from sojourn.process import zygote as zygote_module, zygote_process
session = sojourn.open(models.adder)
session.run(*SUM)
"""
AFTER = """
tell(session.run(*SUM))
with sojourn.open(models.adder) as later:
    tell(later.run(*SUM))
session.close()
from sojourn.probes import processes
tell(session.receipt.clean, len(processes.of_client(os.getpid())))  # the zygote is all there is
"""
WELL = ["3", "3", "True 1"]


def test_a_zygote_killed_in_the_middle_of_a_fork_is_replaced():
    code = """
zygote_process.processes.is_stopped = lambda pid: False  # or it is replaced too early
victim = zygote_pid()
os.kill(victim, signal.SIGSTOP)
opened = []
thread = threading.Thread(target=lambda: opened.append(sojourn.open(models.adder)))
thread.start()
time.sleep(0.3)  # the order is in the channel
os.kill(victim, signal.SIGKILL)
thread.join()
with opened[0] as other:
    tell(other.run(*SUM), zygote_pid() != victim)
"""
    assert run_to_end(OPEN + code + AFTER) == ["3 True", *WELL]


def test_a_client_that_ignores_the_end_of_its_children_keeps_its_zygote():
    code = """
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
pids = set()
for _ in range(3):
    with sojourn.open(models.adder) as session:
        session.run(*SUM)
    pids.add(zygote_pid())
with sojourn.open(models.adder) as session:
    os.kill(session.pid, signal.SIGKILL)
    try:
        session.run(*SUM)
    except sojourn.SessionBroken as broken:
        tell("SIGKILL" in str(broken))
tell(len(pids | {zygote_pid()}))
"""
    assert run_to_end(code) == ["True", "1"]


def test_a_program_named_like_a_module_that_a_zygote_imports_starts_no_zygotes_without_end(
    tmp_path: Path,
):
    program = tmp_path / "code.py"  # which pdb imports, and many libraries import pdb
    program.write_text("import sojourn\nsojourn.isolated(abs)(-1)\n")
    process = subprocess.Popen([sys.executable, program], stderr=subprocess.PIPE, text=True)
    _, errors = process.communicate(timeout=100)
    assert process.returncode == 1
    assert str(program) in errors
    assert "rename the module" in errors
    assert remaining(process.pid) == []


def test_a_module_that_every_python_imports_starts_no_zygotes_without_end(tmp_path: Path):
    (tmp_path / "sitecustomize.py").write_text(f"""
import sojourn
with open({str(tmp_path / "imports")!r}, "a+") as imports:
    imports.write("one\\n")
    imports.seek(0)
    if len(imports.readlines()) < 5:  # should there be no end, there is one here
        sojourn.warm_up()
""")
    code = "import sojourn; print(sojourn.isolated(abs)(-3))"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "SOJOURN_PRELOAD": "none"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True
    )
    assert (done.stdout, done.stderr) == ("3\n", "")
    assert (tmp_path / "imports").read_text() == "one\none\n"  # the program and its zygote


def test_a_zygote_killed_at_any_moment_of_a_fork_harms_nothing():
    code = """
import random
chosen = random.Random(11)
good = typed = 0
before = None
for _ in range(20):
    def kill(pid, seconds):
        time.sleep(seconds)
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    killer = threading.Thread(target=kill, args=(zygote_pid(), chosen.uniform(0, 0.03)))
    killer.start()
    try:
        with sojourn.open(models.adder) as other:
            assert other.run(*SUM) == 3
        good += 1
    except sojourn.SojournError:
        typed += 1
    killer.join()
    now = descriptors()
    assert before is None or now <= before, (before, now)
    before = now
tell(good + typed, good > 10)
"""
    assert run_to_end(OPEN + code + AFTER) == ["20 True", *WELL]


def test_a_session_that_is_closed_while_a_new_zygote_starts_does_not_take_its_greeting():
    code = """
other = sojourn.open(models.adder)
os.kill(zygote_pid(), signal.SIGKILL)
time.sleep(0.1)
sojourn.warm_up()
other.close()
"""
    assert run_to_end(OPEN + code + AFTER) == WELL


def test_a_stopped_zygote_holds_up_neither_the_close_nor_the_next_open():
    code = """
other = sojourn.open(models.adder)
patient = zygote_module._STATUS_SECONDS, zygote_module._FORK_SECONDS
def be_patient(seconds):
    zygote_module._STATUS_SECONDS, zygote_module._FORK_SECONDS = seconds
def hear(event):
    if event.kind == "zygote.ended":
        be_patient(patient)  # with the next one: only this one is known not to answer
stop = sojourn.events.subscribe(hear)
be_patient((0.5, 0.5))
os.kill(zygote_pid(), signal.SIGSTOP)
tell(other.close().clean)
"""
    assert run_to_end(OPEN + code + AFTER) == ["True", *WELL]


def test_a_stopped_zygote_is_replaced_within_the_time_of_the_open_that_finds_it():
    code = """
for timeout in (5, None):
    victim = zygote_pid()
    os.kill(victim, signal.SIGSTOP)
    with sojourn.open(models.adder, timeout=timeout) as other:
        tell(other.run(*SUM), zygote_pid() != victim)
"""
    assert run_to_end(OPEN + code + AFTER) == ["3 True", "3 True", *WELL]


def test_opens_that_have_less_time_than_a_zygote_takes_to_start_replace_a_stopped_one_too():
    code = """
victim = zygote_pid()
os.kill(victim, signal.SIGSTOP)
for _ in range(1000):
    try:
        with sojourn.open(models.adder, timeout=0.1) as other:
            tell(other.run(*SUM), zygote_pid() != victim)
        break
    except sojourn.StepTimeout:
        pass
"""
    assert run_to_end(OPEN + code + AFTER) == ["3 True", *WELL]


def test_a_zygote_that_is_stopped_while_it_imports_is_replaced():
    code = """
from faults.tools import is_running, wait_until
old = zygote_pid()
os.kill(old, signal.SIGKILL)
wait_until(lambda: not is_running(old))
sojourn.warm_up()
victim = zygote_pid()
os.kill(victim, signal.SIGSTOP)
with sojourn.open(models.adder) as other:
    tell(other.run(*SUM), zygote_pid() != victim)
"""
    assert run_to_end(OPEN + code + AFTER) == ["3 True", *WELL]


def test_a_zygote_that_hangs_is_replaced_by_callers_who_each_have_little_time():
    code = """
zygote_module._FORK_SECONDS, zygote_process._LEAST_SECONDS = 3.0, 0.3
zygote_process.processes.is_stopped = lambda pid: False  # it hangs in some other way
victim = zygote_pid()
os.kill(victim, signal.SIGSTOP)
tried = 0
while True:
    tried += 1
    try:
        with sojourn.open(models.adder, timeout=1.5) as other:
            tell(other.run(*SUM), zygote_pid() != victim)
        break
    except sojourn.StepTimeout:
        assert tried < 100
"""
    assert run_to_end(OPEN + code + AFTER) == ["3 True", *WELL]


def test_a_client_that_talks_nonsense_gets_a_new_zygote_at_most():
    code = """
import socket
from sojourn.process.protocol import Fork, Status
from sojourn.process.surroundings import Surroundings
from sojourn.transport import frames
order = Fork(99, "hostile", os.getpid(), "", Surroundings.here({}))
lies = [
    lambda channel: channel.send(b"garbage"),
    lambda channel: channel.send(b"\\xc1"),
    lambda channel: channel.send(b"\\x81"),
    lambda channel: channel.send(b"x" * 70000),
    lambda channel: socket.send_fds(channel, [b"\\xc1"], [0]),
    lambda channel: socket.send_fds(channel, [b"\\x90"], [0, 1, 2] * 5),
    lambda channel: frames.send(channel, Status(7, os.getpid())),
    lambda channel: frames.send(channel, Status(7, -1), [0, 1, 2]),
    lambda channel: frames.send(channel, order, []),
    lambda channel: frames.send(channel, order, [0]),
    lambda channel: frames.send(channel, order, [0, 1, 2, 0]),
]
for lie in lies:
    lie(zygote_module.zygote._running.channel)
    with sojourn.open(models.adder) as other:
        assert other.run(*SUM) == 3
    assert session.run(*SUM) == 3
"""
    assert run_to_end(OPEN + code + AFTER) == WELL


def test_a_zygote_that_may_not_open_files_refuses_and_goes_on():
    code = """
import resource
victim = zygote_pid()
soft, hard = resource.prlimit(victim, resource.RLIMIT_NOFILE)
refused = 0
for limit in range(len(os.listdir(f"/proc/{victim}/fd")), soft):
    resource.prlimit(victim, resource.RLIMIT_NOFILE, (limit, hard))
    try:
        with sojourn.open(models.adder) as other:
            other.run(*SUM)
        break
    except sojourn.PlatformError as error:
        refused += 1
    except sojourn.SessionBroken:
        refused += 1  # forked, but the limit is the worker's as well
resource.prlimit(victim, resource.RLIMIT_NOFILE, (soft, hard))
tell(refused > 2, zygote_pid() == victim)
"""
    # The last words of a worker that could not go on are shown.
    assert run_to_end(OPEN + code + AFTER, may_complain=True) == ["True True", *WELL]


REFUSE_FORKS = """
import ctypes, errno
from sojourn.process.sandbox import libc, seccomp
# Load the number; if it is `clone` without CLONE_VM (a fork, no thread and no vfork): EAGAIN.
number = {"x86_64": 56, "aarch64": 220}[os.uname().machine]
code = [(0x20, 0, 0, 0), (0x15, 0, 3, number), (0x20, 0, 0, 16), (0x45, 1, 0, 0x100),
        (0x06, 0, 0, 0x00050000 | errno.EAGAIN), (0x06, 0, 0, 0x7FFF0000)]
lines = (seccomp._Instruction * len(code))(*(seccomp._Instruction(*line) for line in code))
libc.set_no_new_privs()
program = seccomp._Program(len(code), lines)
libc.set_seccomp_filter(ctypes.addressof(program))
"""


def test_a_fork_that_the_system_refuses_is_a_typed_error_and_leaves_nothing():
    code = """
sojourn.warm_up(wait=True)
pid, before = zygote_pid(), descriptors()
for _ in range(3):
    try:
        sojourn.open(models.adder)
    except sojourn.PlatformError as error:
        assert "refused a worker: fork: Resource temporarily unavailable" in str(error)
    else:
        tell("it was not refused")
tell(zygote_pid() == pid, descriptors() == before)
"""
    assert run_to_end(REFUSE_FORKS + code) == ["True True"]


REFUSE_PROCESSES = """
import ctypes, errno
from sojourn.process.sandbox import libc, seccomp
# Load the number; EAGAIN for `vfork`, and for a `clone` with CLONE_VFORK or without CLONE_VM.
vfork, clone = {"x86_64": (58, 56), "aarch64": (-1, 220)}[os.uname().machine]
code = [(0x20, 0, 0, 0), (0x15, 4, 0, vfork & 0xFFFFFFFF), (0x15, 0, 4, clone),
        (0x20, 0, 0, 16), (0x45, 1, 0, 0x4000), (0x45, 1, 0, 0x100),
        (0x06, 0, 0, 0x00050000 | errno.EAGAIN), (0x06, 0, 0, 0x7FFF0000)]
lines = (seccomp._Instruction * len(code))(*(seccomp._Instruction(*line) for line in code))
libc.set_no_new_privs()
program = seccomp._Program(len(code), lines)
libc.set_seccomp_filter(ctypes.addressof(program))
"""


def test_a_zygote_that_the_system_refuses_is_a_typed_error_and_leaves_nothing():
    code = """
before = descriptors()
for _ in range(3):
    try:
        sojourn.open(models.adder)
    except sojourn.PlatformError as error:
        assert "refused a zygote" in str(error), error
        assert os.strerror(errno.EAGAIN) in str(error), error
        tell(zygote_pid(), descriptors() - before)
"""
    assert run_to_end(REFUSE_PROCESSES + code) == ["None 0"] * 3


def test_a_zygote_killed_at_any_moment_of_its_start_is_replaced_for_the_open_that_waits():
    code = """
import random
from faults.tools import Background, is_running, wait_until
chosen = random.Random()
def opened():
    with sojourn.open(models.adder) as other:
        return other.run(*SUM)
for _ in range(8):
    old = zygote_pid()
    os.kill(old, signal.SIGKILL)
    wait_until(lambda: not is_running(old))
    waiting = Background(opened)
    wait_until(lambda: zygote_pid() not in (None, old))
    young, moment = zygote_pid(), chosen.uniform(0, 0.3)
    time.sleep(moment)
    os.kill(young, signal.SIGKILL)
    wait_until(lambda: not is_running(young))
    try:
        assert waiting.result() == 3  # also when it was forked already
    except BaseException as error:
        raise AssertionError(f"killed after {moment} s") from error
    assert session.run(*SUM) == 3
"""
    assert run_to_end(OPEN + code + AFTER) == WELL


def test_an_interrupt_while_a_dead_zygote_is_replaced_leaves_no_descriptor():
    code = """
from sojourn.testing.injection import interrupted

sys.unraisablehook = lambda told: None  # what is raised in a finalizer is told, not raised

def descriptors():
    found = (f"/proc/self/fd/{n}" for n in os.listdir("/proc/self/fd"))
    return sorted(os.readlink(path).split(":")[0] for path in found if os.path.islink(path))

zygote = zygote_module.zygote
before = descriptors()
raised = 0
for n in range(1, 40):
    os.kill(zygote.pid, signal.SIGKILL)
    while zygote._running.is_alive():
        time.sleep(0.001)
    try:
        with interrupted(n):
            zygote.start()
    except KeyboardInterrupt:
        raised += 1
    zygote.start()
    if descriptors() != before:
        tell(n, descriptors())
tell(raised > 10)
"""
    assert run_to_end(OPEN + code + AFTER) == ["True", *WELL]


def test_who_hears_of_a_zygote_may_open_a_session():
    code = """
def hear(event):
    if event.kind in kinds:
        kinds.remove(event.kind)
        with sojourn.open(models.adder, name=event.kind) as other:
            tell(event.kind, other.run(*SUM))
kinds = ["zygote.ended", "zygote.started", "zygote.ready"]
stop = sojourn.events.subscribe(hear)
for kind in list(kinds):
    victim = zygote_module.zygote._running
    os.kill(victim.pid, signal.SIGKILL)
    while victim.is_alive():
        time.sleep(0.001)
    sojourn.open(models.adder).close()
stop()
"""
    told = run_to_end(OPEN + code + AFTER)
    assert sorted(told[:3]) == ["zygote.ended 3", "zygote.ready 3", "zygote.started 3"]
    assert told[3:] == WELL


def test_a_session_that_is_opened_while_another_thread_lets_go_of_a_dead_zygote_waits_for_it():
    code = """
def remove(folder):  # as the last of its descriptors has been closed
    thread.start()
    zygote_module.zygote.reap()  # the beginning of an open
    remove_in_earnest(folder)

opened = []
thread = threading.Thread(target=lambda: opened.append(sojourn.open(models.adder)))
remove_in_earnest = zygote_process.private_folder.remove
zygote_process.private_folder.remove = remove
victim = zygote_module.zygote._running
os.kill(victim.pid, signal.SIGKILL)
while victim.is_alive():
    time.sleep(0.001)
zygote_module.zygote.start()
zygote_process.private_folder.remove = remove_in_earnest
thread.join()
with opened[0] as other:
    tell(other.run(*SUM))
"""
    assert run_to_end(OPEN + code + AFTER) == ["3", *WELL]


def test_a_worker_that_a_dying_zygote_did_not_announce_does_not_stay_beside_its_successor():
    code = """
import tempfile
from pathlib import Path
from sojourn.probes import processes
from sojourn.process.zygote import zygote

with tempfile.TemporaryDirectory() as folder:
    order = Path(folder, "die")
    # The zygote ends itself right after a fork, before it can tell of it.
    Path(folder, "sitecustomize.py").write_text(f'''
import os, signal
def die():
    if os.path.exists({str(order)!r}):
        os.unlink({str(order)!r})
        os.kill(os.getpid(), signal.SIGKILL)
os.register_at_fork(after_in_parent=die)
''')
    os.environ["PYTHONPATH"] = folder
    zygote.frameworks()
    order.touch()
    with sojourn.open(models.adder) as session:
        tell(order.exists(), len(processes.of_client(os.getpid())))
        for _ in range(20):  # as many lanes as threads
            threads = [threading.Thread(target=session.run, args=SUM) for _ in range(8)]
            [thread.start() for thread in threads]
            [thread.join() for thread in threads]
        tell(session.run(*SUM))
tell(session.receipt.clean, len(processes.of_client(os.getpid())))
"""
    assert run_to_end(code) == ["False 2", "3", "True 1"]
