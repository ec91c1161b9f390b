"""A trial of the lifeline on a child process, for `sojourn doctor`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from sojourn.process import lifeline

_CHILD = """
import os, signal, sys
sys.path[:] = sys.argv[2].split(os.pathsep)
from sojourn.process import lifeline
os.setsid()
lifeline.arm(int(sys.argv[1]), -os.getpid())
os.write(1, b"armed")
os.kill(os.getpid(), signal.SIGSTOP)  # even one that is stopped must end
"""


def try_lifeline(seconds: float = 10.0) -> None:
    """Raise OSError if the kernel does not kill a process whose client has ended."""
    ours, theirs = lifeline.pair()
    child = subprocess.Popen(
        [sys.executable, "-c", _CHILD, str(theirs.fileno()), os.pathsep.join(sys.path)],
        pass_fds=[theirs.fileno()],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert child.stdout is not None
    try:
        theirs.close()
        armed = child.stdout.read(5)
        ours.close()
        if armed != b"armed":
            raise OSError("a process could not be tied to ours")
        status = child.wait(seconds)
        if status != -signal.SIGKILL:
            raise OSError(f"the process ended with {status} instead of being killed")
    except subprocess.TimeoutExpired:
        raise OSError("a process outlived its client") from None
    finally:
        ours.close()
        child.kill()
        child.wait()
        child.stdout.close()
