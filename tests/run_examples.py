"""Runs scripts one after the other in this process, and prints as JSON what each one printed.

They share one import of TensorFlow, its mode and one zygote. Each starts with an empty graph, and
what it made stays until the exit. Before a `--` stand scripts that run in a mode and with a zygote
of their own, in a fork: nothing has used TensorFlow by then. They have their own line of JSON.
"""

from __future__ import annotations

import contextlib
import gc
import io
import json
import os
import runpy
import sys
import threading
import traceback
import warnings
from typing import Any

made: list[dict[str, Any]] = []


def main() -> None:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tensorflow as tf

    gc.freeze()  # otherwise each collection would go through all of TensorFlow
    scripts = sys.argv[1:]
    if "--" in scripts:
        at = scripts.index("--")
        child = os.fork()
        if child == 0:
            run(scripts[:at], tf)
            os._exit(0)
        os.waitpid(child, 0)
        scripts = scripts[at + 1 :]
    run(scripts, tf)


def run(scripts: list[str], tf: Any) -> None:
    told = {}
    for script in scripts:
        tf.compat.v1.reset_default_graph()
        sys.path.insert(0, os.path.dirname(script))
        out = io.StringIO()
        failure = None
        with contextlib.redirect_stdout(out), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", ResourceWarning)
            try:
                made.append(runpy.run_path(script, run_name="__main__"))
            except BaseException:
                failure = traceback.format_exc()
            gc.collect()
            for thread in threading.enumerate():
                if thread.name == "sojourn-forgotten":
                    thread.join()
        told[os.path.basename(script)] = {
            "printed": out.getvalue().splitlines(),
            "failure": failure,
            "warnings": [str(w.message) for w in caught if w.category is ResourceWarning],
        }
    print(json.dumps(told), flush=True)


main()
