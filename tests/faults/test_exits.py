"""The interpreter shuts down, in every order: no crash, no hang, no complaint, nothing left."""

from __future__ import annotations

import pytest

from faults.programs import run_to_end

USE = """
def use(session):
    try:
        return session.run(*SUM)
    except sojourn.SessionClosed:
        return "closed"
"""
OPEN = (
    USE
    + """
session = sojourn.open(models.adder)
use(session)
"""
)

ORDERS = {
    # Handlers run last in, first out; ours was registered when sojourn was imported.
    "a handler that runs before ours uses the session": (
        OPEN + "import atexit; atexit.register(lambda: tell(use(session)))",
        ["3"],
    ),
    "a handler that runs before ours closes it": (
        OPEN + "import atexit; atexit.register(session.close)",
        [],
    ),
    "a handler ends the process before ours": (
        OPEN + "import atexit; atexit.register(lambda: tell('ending') or os._exit(0))",
        ["ending"],
    ),
    "a global that is never closed": (OPEN, []),
    "two sessions, one in the middle of a close": (
        OPEN
        + """
other = sojourn.open(models.sleeper)
def run():
    try:
        other.run("output", {"seconds": 60})
    except sojourn.SessionClosed:
        pass  # anything else would be told as the error of a thread
threads = [threading.Thread(target=target, daemon=True) for target in (run, other.close)]
for thread, state in zip(threads, (sojourn.State.RUNNING, sojourn.State.DRAINING)):
    thread.start()
    while other.state is not state:
        time.sleep(0.01)
""",
        [],
    ),
    "a daemon thread that runs steps": (
        OPEN
        + """
def run():
    while use(session) == 3:
        pass
threads = [threading.Thread(target=run, daemon=True) for _ in range(3)]
for thread in threads:
    thread.start()
time.sleep(0.1)
""",
        [],
    ),
    "a daemon thread that opens sessions": (
        OPEN
        + """
def run():
    try:
        while True:
            with sojourn.open(models.adder) as other:
                use(other)
    except (sojourn.SojournError, OSError, RuntimeError):
        pass  # the program exits
threading.Thread(target=run, daemon=True).start()
time.sleep(0.2)
judgement.stop()  # it goes on, from one session to the next, until the very end
""",
        [],
    ),
    "a daemon thread that waits for a zygote which does not answer": (
        OPEN
        + """
from sojourn.process import zygote
zygote._STATUS_SECONDS = 0.5
os.kill(zygote_pid(), signal.SIGSTOP)
def run():
    try:
        sojourn.open(models.adder)
    except sojourn.SojournError:
        pass
threading.Thread(target=run, daemon=True).start()
time.sleep(0.2)
""",
        [],
    ),
    "a daemon thread whose worker comes after the sessions were closed": (
        OPEN
        + """
import atexit
from sojourn.process import exits, zygote
from sojourn.session.ending import open_stays
has_begun, may_go_on, fork = threading.Event(), threading.Event(), zygote.Zygote.fork
def fork_late(*given):
    has_begun.set()
    may_go_on.wait()
    return fork(*given)
zygote.Zygote.fork = fork_late
def run():
    try:
        sojourn.open(models.adder)
    except sojourn.SojournError:
        pass
thread = threading.Thread(target=run, daemon=True)
thread.start()
has_begun.wait()
def late():
    may_go_on.set()
    thread.join()
    tell(len(open_stays))
    judgement.stop()  # there is another zygote
atexit.unregister(exits._run)
atexit.register(late)
atexit.register(exits._run)
""",
        ["0"],
    ),
    "a thread that is no daemon finishes its step first": (
        OPEN + "threading.Thread(target=lambda: (time.sleep(0.3), tell(use(session)))).start()",
        ["3"],
    ),
    "an executor": (
        OPEN
        + """
from concurrent.futures import ThreadPoolExecutor
executor = ThreadPoolExecutor(4)
for _ in range(40):
    executor.submit(use, session)
""",
        [],
    ),
    "a finalizer closes it when the modules are torn down": (
        OPEN
        + """
class Holder:
    def __init__(self, session): self.session = session
    def __del__(self): tell(self.session.close().clean)
holder = Holder(session)
""",
        ["True"],
    ),
    "a finalizer uses it when the modules are torn down": (
        OPEN
        + """
class Holder:
    def __init__(self, session): self.session, self.use = session, use
    def __del__(self): tell(self.use(self.session))
holder = Holder(session)
""",
        ["closed"],
    ),
    "a cycle that only the last collection finds": (
        OPEN
        + """
gc.disable()
class Node: pass
one, two = Node(), Node()
one.other, two.other, one.session = two, one, session
del one, two, session
""",
        [],
    ),
    "the exit happens inside the block": (
        USE + "with sojourn.open(models.adder) as session:\n    use(session)\n    sys.exit(0)",
        [],
    ),
    "a fork that exits as a program does": (
        OPEN
        + """
child = os.fork()
if child == 0:
    sys.exit(0)  # runs the handlers it has inherited
os.waitpid(child, 0)
tell(use(session))
""",
        ["3"],
    ),
    "a lent session whose lease was never given back": (
        OPEN + "warnings.simplefilter('ignore')\nlease = session.lend(lease_warning_seconds=60)",
        [],
    ),
    "a pool that is never closed, with a lease that was never given back": (
        USE
        + """
warnings.simplefilter("ignore")
pool = sojourn.Pool(memory="1GiB")
pool.register("sum", models.adder)
pool.register("other", models.adder)
with pool.lease("other") as lease:
    use(lease)
lease = pool.lease("sum")
tell(use(lease))
judgement.stop()  # its keeper, a daemon, ends with the process
""",
        ["3"],
    ),
    "a generator in a worker of its own, half-way through": (
        """
@sojourn.isolated
def numbers():
    yield from range(10)
going = numbers()
tell(next(going), next(going))
""",
        ["0 1"],
    ),
    "it was imported and warmed up, nothing more": ("sojourn.warm_up()", []),
    "a thread is still starting the zygote": (
        """
def start():
    try:
        sojourn.warm_up(wait=True)
    except sojourn.SojournError:
        pass  # the program exits
threading.Thread(target=start, daemon=True).start()
time.sleep(0.02)
""",
        [],
    ),
}


@pytest.mark.parametrize("order", ORDERS)
def test_the_interpreter_exits_while(order):
    code, says = ORDERS[order]
    assert run_to_end(code) == says


def test_a_handler_that_fails_does_not_keep_ours_from_running():
    code = """
import atexit
pid = session.pid
def look():
    tell(session.state, os.path.exists(f"/proc/{pid}"))
    os.write(2, b"seen")
from sojourn.process import exits
atexit.unregister(exits._run)  # so that one runs after ours, and one that fails before
atexit.register(look)
atexit.register(exits._run)
atexit.register(lambda: 1 / 0)
"""
    assert run_to_end(OPEN + code, may_complain=True) == ["closed False"]


def test_handlers_that_run_after_ours_find_it_closed_and_can_open_others():
    code = """
import atexit
from sojourn.process import exits
def late():
    tell(use(session))
    with sojourn.open(models.adder) as other:
        tell(use(other))
    global forgotten
    judgement.stop()
    forgotten = sojourn.open(models.adder)  # the kernel ends this one
    warnings.simplefilter("ignore")
atexit.unregister(exits._run)  # as if the program's own had been registered before the import
atexit.register(late)
atexit.register(exits._run)
"""
    assert run_to_end(OPEN + code) == ["closed", "3"]
