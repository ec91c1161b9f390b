"""Programs that are run to their end, and may complain about nothing on the way."""

from __future__ import annotations

import signal
import subprocess

from clients import client, remaining

# Whatever a program does wrong shows on its standard error, which must stay empty: also what it
# leaves behind in itself, when it exits.
STRICT = """
import gc, warnings
warnings.simplefilter("error")
import faulthandler; faulthandler.enable()
from faults.judgement import Judgement
judgement = Judgement()

def descriptors():
    gc.collect()
    return len(os.listdir("/proc/self/fd"))

def zygote_pid():
    from sojourn.process.zygote import zygote
    return zygote.pid

SUM = ("output", {"a": 1, "b": 2})
"""


def run_to_end(code: str, may_complain: bool = False) -> list[str]:
    """Run a program that must end well and leave nothing; the lines it told."""
    with client(STRICT + code) as process:
        try:
            output, errors = process.communicate(timeout=300)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGABRT)  # it says where it hangs
            process.wait()
            raise
        assert process.returncode == 0, errors
        assert may_complain or not errors, errors
        assert remaining(process.pid) == []
        return output.splitlines()
