"""Runs `sojourn run` for the tests: imports TensorFlow once, then one fork a program.

Reads a line of JSON a run (arguments, folder, where the output goes) and answers with the exit
code. It runs no op itself, so that forking is safe.
"""

import contextlib
import gc
import json
import os
import sys

import tensorflow  # noqa: F401

import sojourn.compat.legacy.tf1  # noqa: F401
from sojourn.cli.run import command


def run(args: list[str], folder: str, out: str, err: str) -> int:
    pid = os.fork()
    if pid == 0:
        code = 99
        with contextlib.suppress(BaseException):
            os.chdir(folder)
            os.dup2(os.open(out, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 1)
            os.dup2(os.open(err, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            try:
                command.main(args, prog_name="sojourn run")
            except SystemExit as ending:
                code = int(ending.code or 0)
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


gc.freeze()  # or each program would look through all of TensorFlow, and copy it, many times
for line in sys.stdin:
    print(run(**json.loads(line)), flush=True)
