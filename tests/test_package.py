"""What importing sojourn costs, and what the package promises about itself."""

from __future__ import annotations

import json
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
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["False True", "True True", "isolated Pool sojourn.audit"]
