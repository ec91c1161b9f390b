"""What looks after the tests is itself proven: it catches every leak that is seeded, by name."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parent

GROWN = r"memory has grown by \d{7,8} bytes, the zygote's by "
# What the fixture must say of each seed in `faults/seeded_leaks.py`.
SAYS = {
    "a_session": r"session '.+', opened at .+, is open; worker process \d+ is left",
    "a_child": r"child process \d+ is left",
    "a_zombie": r"child process \d+ is left",
    "a_daemon_of_a_worker": r"process \d+ that a worker started is left",
    "a_grandchild_that_nobody_is_the_parent_of": r"process \d+ that a program of this run started",
    "a_second_zygote": r"a zygote beside another is left",
    "a_descriptor": r"descriptors are left: {\d+: '/dev/null'}",
    "a_descriptor_in_the_place_of_another": r"descriptors are left: {\d+: '/dev/zero'}",
    "a_descriptor_that_only_the_collector_would_close": r"descriptors are left: .+'/dev/null'}",
    "a_thread": r"left behind: thread .+ is left$",
    "a_thread_that_python_does_not_know": r"left behind: native thread \d+ .+ is left$",
    "a_file[/dev/shm]": r"leaked-\d+ is left in /dev/shm",
    "a_file[temporary]": r"leaked-\d+ is left in the temporary folder",
    "a_file[runtime]": r"leaked-\d+ is left in the runtime folder",
    "a_file_in_a_folder_that_was_there": r"was-there/nested is left in the temporary folder",
    "a_file_that_is_removed": r"was-there/removed was removed from the temporary folder",
    "a_file_that_is_changed": r"was-there/changed was changed in the temporary folder",
    "private_memory": GROWN + "0",
    "private_memory_while_the_zygote_ends": GROWN + "0",
    "shared_memory_that_is_only_open": GROWN + "0",
    "shared_memory_that_is_only_mapped": GROWN + "0",
    "shared_memory_that_is_only_open_beside_more_that_is_mapped": GROWN + "0",
    "a_port[tcp]": r"a port is open: tcp \d+",
    "a_port[udp]": r"a port is open: udp \d+",
    "in_the_zygote[descriptor]": r"the zygote has \d+ descriptors, it had \d+",
    "in_the_zygote[thread]": r"the zygote has \d+ threads",
    "in_the_zygote[private memory]": GROWN + r"\d{7}",
    "in_the_zygote[shared memory]": GROWN + r"\d{7}",
    "in_the_zygote[zombie]": r"process \d+ that a worker started is left, or its zombie",
    "in_the_zygote[child]": r"process \d+ that a worker started is left",
    "in_the_zygote[port]": r"a port is open: tcp \d+",
    "a_transition[told twice]": r"reported to go from ready to ready",
    "a_transition[illegal]": r"reported to go from opening to running",
    "a_transition[never closed]": r"was opened, and is ready at the end",
    "a_transition[closed twice]": r"reported to go from closed to closed",
    "other_bits_for_others": r"another session computes other bits",
    "the_next_open_is_slow[zygote stays]": r"the next open took \d\.\d+ s",
    "the_next_open_is_slow[zygote is replaced]": r"the next open took \d\.\d+ s",
    "the_next_open_fails": r"ModelError|TypeError|InputError",
}


def test_every_leak_that_is_seeded_is_caught_for_what_it_is():
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-rA", "--tb=line", "-p", "no:cacheprovider"),
            *("-W", "ignore", "faults/seeded_leaks.py"),
        ],
        cwd=TESTS,
        env={**os.environ, "COLUMNS": "9999"},
        capture_output=True,
        text=True,
    )
    ran = set(re.findall(r"^PASSED .+::test_(.+)$", done.stdout, re.MULTILINE))
    caught = dict(re.findall(r"^ERROR .+?::test_(.+?) - (.+)$", done.stdout, re.MULTILINE))
    assert ran == set(SAYS), done.stdout
    wrong = {
        name: caught.get(name) for name in SAYS if not re.search(SAYS[name], caught.get(name, ""))
    }
    assert not wrong, wrong
