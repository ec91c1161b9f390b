"""What an untrusted model cannot do, each tried for real in a sandboxed child, and what it can.

The children are forked from a small process without TensorFlow, which runs `serve` below.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import mmap
import os
import resource
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sojourn.process import sandbox
from sojourn.process.sandbox import seccomp, syscalls

COLUMN = seccomp.MACHINES[os.uname().machine][0]
REFUSALS = {errno.EPERM, errno.EACCES}


def serve(channel: socket.socket) -> None:
    """Runs in the small process: for each request fork, close off, attack, and tell the outcome."""
    while True:
        request, descriptors, _, _ = socket.recv_fds(channel, 1 << 16, 2)
        if not request:
            return
        name, readable, arguments, prepared = json.loads(request)
        answer, say = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                try:
                    if not prepared:
                        sandbox.apply(sandbox.Policy(tuple(readable)))
                    told: dict[str, Any] = {"value": globals()[name](*descriptors, *arguments)}
                except OSError as error:
                    told = {"errno": error.errno}
                except Exception as error:
                    told = {"error": f"{type(error).__name__}: {error}"}
                os.write(say, json.dumps(told).encode())
            finally:
                os._exit(0)
        for descriptor in (say, *descriptors):
            os.close(descriptor)
        with os.fdopen(answer, "rb") as pipe:
            text = pipe.read().decode() or "{}"
        status = os.waitpid(pid, 0)[1]
        channel.send(json.dumps({**json.loads(text), "status": status}).encode())


class _Launcher:
    """Where the small process can be reached, while this module's tests run."""

    channel: socket.socket


@pytest.fixture(autouse=True, scope="module")
def launcher() -> Iterator[None]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    code = "import sys, socket, test_sandbox as t; t.serve(socket.socket(fileno=int(sys.argv[1])))"
    with ours, theirs:
        process = subprocess.Popen(
            [sys.executable, "-c", code, str(theirs.fileno())],
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parent), "API_KEY": "secret"},
            pass_fds=(theirs.fileno(),),
        )
        _Launcher.channel = ours
        theirs.close()
        yield
    assert process.wait() == 0


def sandboxed(
    attack: Callable[..., Any],
    *arguments: Any,
    readable: tuple[str | Path, ...] = (),
    prepared: bool = False,
    descriptors: tuple[int, ...] = (),
) -> dict[str, Any]:
    """What became of `attack(*descriptors, *arguments)` in a sandboxed process."""
    call = (attack.__name__, [str(p) for p in readable], list(arguments), prepared)
    socket.send_fds(_Launcher.channel, [json.dumps(call).encode()], descriptors)
    return dict(json.loads(_Launcher.channel.recv(1 << 16)))


def is_refused(told: dict[str, Any]) -> bool:
    return told.get("errno") in REFUSALS


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "graph.pb").write_text("the model")
    return folder


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret.txt"
    path.write_text("the secret")
    return path


# Reading


def read(path: str) -> str:
    with open(path, errors="replace") as file:
        return file.read()


def listed(path: str) -> list[str]:
    return sorted(os.listdir(path))


def test_the_model_can_be_read_and_listed(model: Path) -> None:
    assert sandboxed(read, f"{model}/graph.pb", readable=(model,))["value"] == "the model"
    assert sandboxed(listed, str(model), readable=(model,))["value"] == ["graph.pb"]


def test_no_other_file_can_be_read(model: Path, secret: Path) -> None:
    for path in (str(secret), f"{model}/../secret.txt", f"/proc/self/root{secret}", "/etc/passwd"):
        assert is_refused(sandboxed(read, path, readable=(model,))), path
    assert is_refused(sandboxed(listed, str(secret.parent), readable=(model,)))


def test_a_link_inside_the_model_leads_nowhere(model: Path, secret: Path) -> None:
    (model / "weights").symlink_to(secret)
    assert is_refused(sandboxed(read, f"{model}/weights", readable=(model,)))


def test_what_is_to_be_readable_is_reached_over_no_link(model: Path, secret: Path) -> None:
    link = model.parent / "link"
    link.symlink_to(model)
    pipe = model.parent / "pipe"
    os.mkfifo(pipe)
    for path in (link, link / "graph.pb", pipe):
        told = sandboxed(read, str(secret), readable=(path,))
        assert "cannot be made readable" in told["error"], path


def test_the_environment_with_its_secrets_cannot_be_read() -> None:
    own = ("environ", "maps", "mem", "auxv", "task", "fd")
    for path in (*(f"/proc/self/{name}" for name in own), "/proc/thread-self/environ"):
        told = sandboxed(read, path)
        assert told.get("errno") in REFUSALS | {errno.EISDIR}, path


def test_libraries_that_were_not_imported_yet_can_be() -> None:
    assert sandboxed(late_import)["value"] == "wave"


def late_import() -> str:
    import wave

    return wave.__name__


# Writing


def write(path: str) -> None:
    with open(path, "w") as file:
        file.write("pwned")


def truncate_while_reading(path: str) -> None:
    os.close(os.open(path, os.O_RDONLY | os.O_TRUNC))


def change(path: str) -> list[int]:
    """Every way to change a file by its name; the error of each."""
    ways: list[Callable[[], object]] = [
        lambda: os.truncate(path, 0),
        lambda: os.unlink(path),
        lambda: os.rename(path, path + "2"),
        lambda: os.link(path, path + "2"),
        lambda: os.symlink(path, path + "2"),
        lambda: os.chmod(path, 0),
        lambda: os.chown(path, os.getuid(), os.getgid()),
        lambda: os.utime(path, (0, 0)),
        lambda: os.mkdir(path + "2"),
        lambda: os.mkfifo(path + "2"),
        lambda: os.setxattr(path, "user.x", b"x"),
        lambda: os.open(os.path.dirname(path), os.O_TMPFILE | os.O_RDWR),
    ]
    return [error_of(way) for way in ways]


def test_nothing_can_be_written_not_even_the_model_itself(model: Path, secret: Path) -> None:
    for path in (model / "graph.pb", model / "new", secret, "/dev/shm/sojourn-test", "/dev/null"):
        assert is_refused(sandboxed(write, str(path), readable=(model,))), path
    assert is_refused(sandboxed(truncate_while_reading, str(model / "graph.pb"), readable=(model,)))
    assert listed(str(model)) == ["graph.pb"]
    assert (model / "graph.pb").read_text() == "the model"
    assert secret.read_text() == "the secret"


def test_no_file_can_be_moved_removed_or_changed_in_mode_or_time(model: Path) -> None:
    path = model / "graph.pb"
    before = path.stat()
    assert set(sandboxed(change, str(path), readable=(model,))["value"]) <= REFUSALS
    assert listed(str(model)) == ["graph.pb"]
    after = path.stat()
    assert (after.st_mode, after.st_mtime_ns, after.st_size) == (
        before.st_mode,
        before.st_mtime_ns,
        before.st_size,
    )


# The network


def connect(family: int, kind: int, address: Any) -> None:
    with socket.socket(family, kind) as client:
        client.connect(tuple(address) if isinstance(address, list) else address)


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        yield server


def test_nobody_can_be_reached_over_the_network(listener: socket.socket) -> None:
    told = sandboxed(connect, socket.AF_INET, socket.SOCK_STREAM, list(listener.getsockname()))
    assert is_refused(told)
    with pytest.raises(BlockingIOError):
        listener.accept()
    for family in (socket.AF_INET6, socket.AF_UNIX, socket.AF_NETLINK, socket.AF_PACKET):
        assert is_refused(sandboxed(connect, int(family), socket.SOCK_DGRAM, "")), family


def reuse_descriptor(number: int, port: int) -> int:
    """An unconnected socket that was left open must not become a way out."""
    with socket.socket(fileno=number) as left:
        return left.sendto(b"x", ("127.0.0.1", port))


def test_an_inherited_socket_cannot_be_pointed_elsewhere(listener: socket.socket) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as left_open:
        port = listener.getsockname()[1]
        told = sandboxed(reuse_descriptor, port, descriptors=(left_open.fileno(),))
        assert is_refused(told)


def talk(number: int) -> str:
    with socket.socket(fileno=number) as channel:
        message, descriptors, _, _ = socket.recv_fds(channel, 100, 1)
        got = os.pread(descriptors[0], 100, 0)
        mine = os.memfd_create("answer")
        os.write(mine, b"answer to " + got)
        socket.send_fds(channel, [message], [mine])
        channel.send(b"also so")
        return got.decode()


def test_the_channel_that_was_open_before_still_carries_messages_and_descriptors() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    memory = os.memfd_create("question")
    os.write(memory, b"question")
    with ours, theirs:
        socket.send_fds(ours, [b"hello"], [memory])
        os.close(memory)
        assert sandboxed(talk, descriptors=(theirs.fileno(),))["value"] == "question"
        message, descriptors, _, _ = socket.recv_fds(ours, 100, 1)
        assert (message, os.pread(descriptors[0], 100, 0)) == (b"hello", b"answer to question")
        assert ours.recv(100) == b"also so"
        os.close(descriptors[0])


def make_blocking(number: int) -> list[int]:
    """Every way to change how a descriptor behaves for whoever holds it too."""
    ways: list[Callable[[], object]] = [
        lambda: fcntl.fcntl(number, fcntl.F_SETFL, os.O_NONBLOCK | os.O_ASYNC),
        lambda: os.set_blocking(number, True),
        lambda: fcntl.fcntl(number, fcntl.F_SETFL, 0),
        lambda: fcntl.ioctl(number, 0x5452, struct.pack("i", 1)),  # FIOASYNC
        lambda: fcntl.fcntl(number, fcntl.F_SETOWN, os.getpid()),
    ]
    return [error_of(way) for way in ways]


def error_of(way: Callable[[], object]) -> int:
    try:
        way()
    except OSError as error:
        return error.errno or 0
    return 0


def test_a_bell_that_others_hold_too_cannot_be_made_to_block_them() -> None:
    bell = os.eventfd(0, os.EFD_NONBLOCK)
    try:
        assert set(sandboxed(make_blocking, descriptors=(bell,))["value"]) == {errno.EPERM}
        with pytest.raises(BlockingIOError):
            os.eventfd_read(bell)
        assert 0 in sandboxed(make_blocking, descriptors=(bell,), prepared=True)["value"]
        assert os.get_blocking(bell)  # without the sandbox it can
    finally:
        os.close(bell)


def set_option(number: int) -> None:
    with socket.socket(fileno=number) as channel:
        channel.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2**16)


def test_no_option_of_a_socket_can_be_set() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert is_refused(sandboxed(set_option, descriptors=(theirs.fileno(),)))
        assert sandboxed(set_option, descriptors=(theirs.fileno(),), prepared=True)["value"] is None


# Programs and processes


def run_program() -> None:
    os.execv("/bin/sh", ["sh", "-c", "exit 0"])


def spawn_program() -> int:
    return os.posix_spawn("/bin/sh", ["sh", "-c", "exit 0"], {})


def fork_bomb() -> int:
    started = 0
    for _ in range(1000):
        try:
            started += os.fork() >= 0
        except PermissionError:
            continue
    return started


def test_no_program_can_be_started() -> None:
    assert is_refused(sandboxed(run_program))
    assert is_refused(sandboxed(spawn_program))


def test_a_fork_bomb_starts_not_one_process() -> None:
    assert sandboxed(fork_bomb)["value"] == 0


def raw_errors(numbers: list[int], first: int = 0) -> list[int]:
    """The error of each system call, made with `first` and zeros."""
    libc = ctypes.CDLL(None, use_errno=True)
    errors = []
    for number in numbers:
        ctypes.set_errno(0)
        libc.syscall(ctypes.c_long(number), ctypes.c_long(first), 0, 0, 0, 0, 0)
        errors.append(ctypes.get_errno())
    return errors


def test_every_refused_system_call_is_refused() -> None:
    numbers = [n[COLUMN] for n in syscalls.REFUSED.values() if n[COLUMN] is not None]
    assert set(sandboxed(raw_errors, numbers)["value"]) == {errno.EPERM}


def test_system_calls_that_nobody_listed_do_not_exist() -> None:
    clone3, openat2, landlock, future, other_abi = 435, 437, 444, 1000, 0x40000000
    told = sandboxed(raw_errors, [clone3, openat2, landlock, future, other_abi])
    assert set(told["value"]) == {errno.ENOSYS}


def test_a_process_or_namespace_cannot_be_made_by_a_bare_clone() -> None:
    clone = syscalls.CHECKED["clone"][COLUMN]
    for flags in (signal.SIGCHLD, 0x100 | signal.SIGCHLD, 0x10000000, 0x10100 | 0x40000000):
        assert sandboxed(raw_errors, [clone], flags)["value"] == [errno.EPERM]


# Other processes


def spy(victim: int, address: int) -> list[int]:
    """Every way into another process; the error of each, 0 where one worked."""
    libc = ctypes.CDLL(None, use_errno=True)

    def raw(name: str, *arguments: int) -> None:
        number = (syscalls.REFUSED.get(name) or syscalls.CHECKED[name])[COLUMN]
        if libc.syscall(ctypes.c_long(number or 0), *map(ctypes.c_long, arguments)) < 0:
            raise OSError(ctypes.get_errno(), name)

    buffer = ctypes.create_string_buffer(8)
    here = (ctypes.c_size_t * 2)(ctypes.addressof(buffer), 8)
    there = (ctypes.c_size_t * 2)(address, 8)
    ours, theirs = ctypes.addressof(here), ctypes.addressof(there)
    own = os.eventfd(0)
    ways: list[Callable[[], object]] = [
        *(lambda part=part: os.open(f"/proc/{victim}/{part}", os.O_RDONLY) for part in PARTS),
        lambda: os.open(f"/proc/{victim}/fd/0", os.O_RDONLY),
        lambda: raw("ptrace", 16, victim, 0, 0),  # PTRACE_ATTACH
        lambda: raw("process_vm_readv", victim, ours, 1, theirs, 1, 0),
        lambda: raw("process_vm_writev", victim, ours, 1, theirs, 1, 0),
        lambda: raw("pidfd_open", victim, 0),
        lambda: raw("pidfd_getfd", own, 0, 0),
        lambda: os.kill(victim, 0),
        lambda: os.kill(-1, 0),
        lambda: os.kill(0, 0),
        lambda: raw("tgkill", victim, victim, 0),
        lambda: fcntl.fcntl(own, fcntl.F_SETOWN, victim),
        lambda: os.sched_setaffinity(victim, {0}),
        lambda: os.setpriority(os.PRIO_PROCESS, victim, 19),
    ]
    return [error_of(way) for way in ways]


PARTS = ("mem", "maps", "environ", "fd", "task", "cmdline", "root", "cwd")


def test_other_processes_cannot_be_read_traced_signalled_or_slowed() -> None:
    memory = ctypes.create_string_buffer(b"private")
    told = sandboxed(spy, os.getpid(), ctypes.addressof(memory))
    assert set(told["value"]) <= REFUSALS
    assert memory.value == b"private"


def own_standing() -> dict[str, str]:
    with open("/proc/self/status") as status:
        lines = dict(line.rstrip("\n").split(":\t", 1) for line in status if ":\t" in line)
    return {k: lines[k] for k in ("NoNewPrivs", "Seccomp", "CapEff", "CapPrm")}


def raise_limits() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, resource.getrlimit(resource.RLIMIT_NOFILE))


def test_every_privilege_is_given_up_and_limits_stay_as_they_are() -> None:
    none = "0" * 16
    assert sandboxed(own_standing)["value"] == {
        "NoNewPrivs": "1",
        "Seccomp": "2",
        "CapEff": none,
        "CapPrm": none,
    }
    told = sandboxed(raise_limits)
    assert is_refused(told) or "not allowed" in told["error"]


def limits() -> list[tuple[int, int]]:
    return [resource.getrlimit(which) for which in (resource.RLIMIT_CORE, resource.RLIMIT_NOFILE)]


def limits_where_cores_are_off() -> list[tuple[int, int]]:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
    sandbox.apply(sandbox.Policy())
    return limits()


def test_a_crash_leaves_no_core_and_few_files_can_be_open() -> None:
    assert sandboxed(limits)["value"] == [[1, 1], [512, 512]]
    # Root could raise what is 0 already, others could not: both leave none.
    core, files = sandboxed(limits_where_cores_are_off, prepared=True)["value"]
    assert core in ([0, 0], [1, 1])
    assert files == [100, 100]


def thread_bomb(user: int) -> list[int]:
    """How many threads can be started, and whether the sandbox says that there is a limit."""
    if user:
        os.setgid(user)
        os.setuid(user)
    applied = sandbox.apply(sandbox.Policy())
    started, done = 0, threading.Event()
    threading.stack_size(2**16)
    try:
        while started < 512 + 8 * (os.cpu_count() or 1) + 100:
            threading.Thread(target=done.wait, daemon=True).start()
            started += 1
    except RuntimeError:
        pass
    done.set()
    return [started, int(any("limit on its threads" in text for text in applied.missing))]


def test_threads_are_limited_or_it_is_said_that_they_are_not() -> None:
    most = 512 + 8 * (os.cpu_count() or 1)
    users = [0] if os.getuid() else [0, 65534]  # root is never limited, so somebody else as well
    for user in users:
        started, is_missing = sandboxed(thread_bomb, user, prepared=True)["value"]
        assert is_missing or started < most, user
        assert is_missing == (user == os.getuid() == 0), user


# What must go on working


def make_memory() -> str:
    descriptor = os.memfd_create("x", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
    os.ftruncate(descriptor, 1 << 20)
    fcntl.fcntl(descriptor, 1033, 2)  # F_ADD_SEALS, F_SEAL_SHRINK
    with mmap.mmap(descriptor, 1 << 20) as memory:
        memory[:4] = b"here"
        return bytes(memory[:4]).decode()


def many_threads() -> int:
    results: list[int] = []
    threads = [threading.Thread(target=results.append, args=(i,)) for i in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len(results)


def last_words(number: int) -> None:
    os.dup2(number, 2)
    print("last words", file=sys.stderr, flush=True)
    os.abort()


def test_shared_memory_and_threads_work_as_before() -> None:
    assert sandboxed(make_memory)["value"] == "here"
    assert sandboxed(many_threads)["value"] == 20


def test_a_crash_is_still_an_abort_with_its_last_words() -> None:
    memory = os.memfd_create("stderr")
    try:
        told = sandboxed(last_words, descriptors=(memory,))
        assert os.WTERMSIG(told["status"]) == signal.SIGABRT
        assert os.pread(memory, 100, 0) == b"last words\n"
    finally:
        os.close(memory)


def test_the_parent_can_still_measure_and_end_it() -> None:
    told = sandboxed(measured, prepared=True)["value"]
    assert told == {"pss": True, "signal": signal.SIGKILL}


def measured() -> dict[str, Any]:
    ready, say = os.pipe()
    pid = os.fork()
    if pid == 0:
        sandbox.apply(sandbox.Policy())
        os.write(say, b"x")
        while True:
            time.sleep(1)
    os.close(say)
    assert os.read(ready, 1) == b"x"
    with open(f"/proc/{pid}/smaps_rollup") as file:
        has_pss = "Pss:" in file.read()
    signal.pidfd_send_signal(os.pidfd_open(pid), signal.SIGKILL)
    status = os.waitpid(pid, 0)[1]
    return {"pss": has_pss, "signal": os.WTERMSIG(status)}


def on_a_lifeline() -> int:
    """Fork a sandboxed child that dies by the kernel's hand when our end of a socket closes."""
    ours, theirs = socket.socketpair()
    ready, say = os.pipe()
    pid = os.fork()
    if pid == 0:
        ours.close()
        fcntl.fcntl(theirs, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(theirs, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(theirs, fcntl.F_SETFL, os.O_ASYNC | fcntl.fcntl(theirs, fcntl.F_GETFL))
        sandbox.apply(sandbox.Policy())
        os.write(say, b"x")
        while True:
            time.sleep(1)
    theirs.close()
    os.close(say)
    assert os.read(ready, 1) == b"x"
    ours.close()
    return os.WTERMSIG(os.waitpid(pid, 0)[1])


def test_a_lifeline_that_was_set_before_still_ends_it() -> None:
    assert sandboxed(on_a_lifeline, prepared=True)["value"] == signal.SIGKILL


# What is in force, and what cannot be


def standing() -> list[Any]:
    network = os.readlink("/proc/self/ns/net")
    applied = sandbox.apply(sandbox.Policy())
    moved = os.readlink("/proc/self/ns/net") != network
    return [applied.landlock_abi, applied.seccomp, applied.namespaces == moved, str(applied)]


def test_what_is_in_force_is_said() -> None:
    version, filtered, namespaces_are_true, text = sandboxed(standing, prepared=True)["value"]
    assert version >= 1
    assert (filtered, namespaces_are_true) == (True, True)
    assert text.startswith(f"sandbox: landlock (version {version}), seccomp")
    assert sandbox.unavailable() == ()


def apply_under_a_filter(best_effort: bool) -> str:
    """A filter that knows no Landlock stands in for a kernel that has none."""
    from sojourn.process.sandbox import libc

    libc.set_no_new_privs()
    seccomp.install(os.uname().machine, os.getpid())
    return str(sandbox.apply(sandbox.Policy(best_effort=best_effort)))


def test_a_missing_protection_is_an_error_that_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    told = sandboxed(apply_without_landlock, False, prepared=True)
    assert told["error"].startswith("SandboxError: cannot be applied here: closing off the file")
    assert "Linux 5.13" in told["error"]
    monkeypatch.setattr(sandbox.landlock, "abi", lambda: 0)
    assert "Landlock" in sandbox.unavailable()[0]


def apply_without_landlock(best_effort: bool) -> str:
    sandbox.landlock._CREATE_RULESET = 1000  # a call that no kernel has
    return str(sandbox.apply(sandbox.Policy(best_effort=best_effort)))


def test_best_effort_applies_the_rest_and_says_what_is_missing() -> None:
    text = sandboxed(apply_without_landlock, True, prepared=True)["value"]
    assert text.startswith("sandbox: seccomp")
    assert "missing: closing off the file system: needs Landlock" in text
    text = sandboxed(apply_under_a_filter, True, prepared=True)["value"]
    assert text.startswith("sandbox: nothing in force; missing: ")
    assert "refusing system calls" in text
    assert "namespaces" in text


def apply_with_a_thread() -> None:
    done = threading.Event()
    threading.Thread(target=done.wait).start()
    try:
        sandbox.apply(sandbox.Policy())
    finally:
        done.set()


def test_it_is_refused_where_it_would_not_hold() -> None:
    told = sandboxed(apply_with_a_thread, prepared=True)
    assert told["error"] == (
        "SandboxError: a sandbox must be applied before any thread: there are 2"
    )
    told = sandboxed(apply_to_nothing, prepared=True)
    assert told["error"] == (
        "SandboxError: /no/such/model cannot be made readable: No such file or directory"
    )


def apply_to_nothing() -> None:
    sandbox.apply(sandbox.Policy(("/no/such/model",)))


def test_neither_home_nor_temporary_folders_are_readable_by_default() -> None:
    paths = sandbox.interpreter_paths()
    for closed in ("/", "/usr", "/etc", "/home", "/proc", "/proc/self", "/sys", "/dev"):
        assert closed not in paths
    assert str(Path.home()) not in paths
    assert tempfile.gettempdir() not in paths


def test_the_attacks_are_real_they_succeed_without_the_sandbox(
    secret: Path, listener: socket.socket
) -> None:
    address = list(listener.getsockname())
    assert sandboxed(read, str(secret), prepared=True)["value"] == "the secret"
    assert sandboxed(write, str(secret), prepared=True) == {"value": None, "status": 0}
    assert sandboxed(connect, socket.AF_INET, socket.SOCK_STREAM, address, prepared=True) == {
        "value": None,
        "status": 0,
    }
    assert sandboxed(run_program, prepared=True) == {"status": 0}
    listener.accept()[0].close()
