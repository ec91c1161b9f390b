"""What importing sojourn costs, and what the package promises about itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys

HEAVY = ("tensorflow", "keras", "torch", "matplotlib", "textual", "libcst", "ray", "grpc", "flask",
         "fastapi", "rich", "pynvml", "IPython")  # fmt: skip


def test_importing_sojourn_loads_no_framework_web_plot_or_cluster_library():
    code = (
        "import json, sys, threading, sojourn\n"
        "print(json.dumps([list(sys.modules), threading.active_count()]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    modules, threads = json.loads(done.stdout)
    loaded = {name.partition(".")[0] for name in modules}
    assert not loaded & set(HEAVY)
    assert threads == 1
    assert done.stderr == ""


def test_elsewhere_import_works_and_process_isolation_says_that_it_needs_linux():
    code = (
        "import sys; sys.platform = 'darwin'\n"
        "import os\n"
        "for name in ('memfd_create', 'eventfd', 'pidfd_open', 'sched_getaffinity'):\n"
        "    delattr(os, name)\n"
        "import sojourn\n"
        "try:\n"
        "    sojourn.open(lambda: (lambda a: a))\n"
        "except sojourn.PlatformError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "process isolation needs Linux" in done.stdout
    assert 'isolation="inline"' in done.stdout


def test_importing_sojourn_does_no_work(tmp_path):
    code = (
        "import os, sys\n"
        "opened = []\n"
        "def hook(event, args):\n"
        "    if event == 'open' and not str(args[0]).endswith(('.py', '.pyc', '.so')):\n"
        "        opened.append(args[0])\n"
        "    if event in ('os.fork', 'subprocess.Popen', 'socket.__new__'):\n"
        "        opened.append(event)\n"
        "import logging, msgspec\n"
        "sys.addaudithook(hook)\n"
        "import sojourn\n"
        "listening = sojourn.events.is_listening()\n"
        "path = os.environ['SOJOURN_EVENTS']\n"
        "print(opened, os.path.exists(path), listening)\n"
        "sojourn.events.emit('session.ready', 'late')\n"
        "print(os.path.exists(path))\n"
        "logging.getLogger('sojourn').addHandler(logging.StreamHandler())\n"
        "print(sojourn.events.is_listening())\n"
    )
    events = str(tmp_path / "events.jsonl")
    for path, listening in ((events, "True"), ("", "False")):
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            env={**os.environ, "SOJOURN_EVENTS": path},
        )
        assert done.stdout.splitlines() == [f"[] False {listening}", str(bool(path)), "True"], (
            done.stdout + done.stderr
        )


def test_every_public_name_is_there():
    import sojourn

    for name in sojourn.__all__:
        assert getattr(sojourn, name) is not None


def test_importing_sojourn_is_light_and_what_is_asked_for_is_loaded_then():
    code = (
        "import sys, sojourn\n"
        "print('numpy' in sys.modules, 'open' in dir(sojourn))\n"
        "print(sojourn.open is sojourn.open, 'numpy' in sys.modules)\n"
        "from sojourn import *\n"
        "print(isolated.__name__, Pool.__name__, audit.__name__)\n"
        "print('sojourn.session.conversion.converting' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "False True",
        "True True",
        "isolated Pool sojourn.audit",
        "False",
    ]


def test_names_may_be_looked_up_first_on_several_threads_at_once():
    program = """
import threading, sojourn
names = ["open", "Pool", "isolated", "Session", "empty", "metrics"] * 4
failures = []
ready = threading.Barrier(len(names))
def look(name):
    ready.wait()
    try:
        getattr(sojourn, name)
    except Exception as error:
        failures.append(repr(error))
threads = [threading.Thread(target=look, args=(name,)) for name in names]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(failures)
"""
    for _ in range(3):
        answer = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True
        )
        assert answer.stdout == "[]\n"
