"""Runs every case below `sojourn audit` in a process of its own, and prints what was found.

TensorFlow is imported once and each case is forked from there: a case takes a fraction of a
second. Nothing of TensorFlow has run before the fork, so that it is safe.
"""

import gc
import json
import os
import runpy
import sys
from pathlib import Path

import tensorflow  # noqa: F401

HERE = Path(__file__).parent


def in_a_fork(arguments, output):
    """The exit code of the command, and what it printed. Without arguments: the blocks."""
    child = os.fork()
    if child == 0:
        code = 70
        try:
            descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            os.dup2(descriptor, 1)
            if arguments is None:
                runpy.run_path(str(HERE / "blocks.py"))
            else:
                from sojourn.cli.main import main

                main(arguments)
        except SystemExit as ending:
            code = ending.code or 0
        finally:
            sys.stdout.flush()
            os._exit(code)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status), Path(output).read_text()


def main(folder):
    """Print one JSON object: a case's name to its exit code, and its report."""
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    results = {}
    gc.freeze()  # or each case would look through all of TensorFlow, and copy it, many times
    for case in sys.argv[2:]:
        output = os.path.join(folder, f"{case}.json")
        page = os.path.join(folder, f"{case}.html")
        if case == "suite_of_tests":
            pytest = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly"]
            pytest += ["--sojourn-audit"]
            pytest += ["--rootdir", str(HERE), "-c", os.devnull, "--noconftest"]
            arguments = ["audit", "--json", *pytest, str(HERE / f"{case}.py")]
        elif case == "examples":
            examples = sorted(HERE.parents[1].glob("examples/session_*.py"))
            chosen = [
                e for e in examples if any(w in e.stem for w in ("with_block", "keras", "two"))
            ]
            arguments = ["audit", "--json", str(HERE.parent / "run_examples.py")]
            arguments += map(str, chosen)
        elif case == "blocks":
            arguments = None
        else:
            arguments = ["audit", "--json", "--html", page, str(HERE / f"{case}.py")]
        code, text = in_a_fork(arguments, output)
        results[case] = {"exit": code, "report": json.loads(text) if text else None}
    print(json.dumps(results))


if __name__ == "__main__":
    main(sys.argv[1])
