"""Disks that are full, read-only or broken, while TensorFlow itself writes and reads."""

from __future__ import annotations

from faults.mounts import run_with_mounts

# The zygote is to have TensorFlow. A disk of our own, whose size can be changed while it is used.
DISK = """
del os.environ["SOJOURN_PRELOAD"]
import shutil, tempfile
from pathlib import Path
import faults.judgement
from faults import kinds

faults.judgement.GROWTH_BYTES = 32 * 2**20  # it loads a pool, conversions and models of all kinds
top = tempfile.mkdtemp()
disk = Path(top, "disk")
disk.mkdir()
mount("tmpfs", disk, "tmpfs", 0, "nr_inodes=10000")
files = Path(top, "files")
files.mkdir()

def resize(**limits):
    limits = ",".join(f"{name}={n}" for name, n in limits.items())
    mount("tmpfs", disk, "tmpfs", REMOUNT, limits)

def enlarge():
    resize(size="4m", nr_inodes=10000)

def fill(spare):
    # Leave room for this many pages, or one: without any it would have no limit.
    enlarge()
    used = os.statvfs(disk)
    resize(size=max(1, used.f_blocks - used.f_bfree + spare) * 4096)

def number(spare):
    # Leave room for this many files.
    enlarge()
    used = os.statvfs(disk)
    resize(nr_inodes=used.f_files - used.f_ffree + spare)

def attempt(act):
    try:
        act()
        return ""
    except sojourn.CheckpointError as error:
        return str(error)

def content(path):
    return {p.name: p.read_bytes() for p in path.iterdir()} if path.exists() else {}
"""
CLEAN = """
libc.umount2(os.fsencode(disk), 2)
shutil.rmtree(top)
"""

SAVES = """
def with_state(name):
    # A graph whose value changes, and model files.
    if name == "graph":
        return sojourn.open(models.wide_counter)
    return kinds.KINDS[name].open(files)

kinds.write_files(str(files))
for name in ("graph", "saved-model", "keras"):
    with with_state(name) as session:
        is_graph = name == "graph"
        for path in (disk / "saved", disk / "saved"):  # a new one, and one that is replaced
            value = session.run("total", {"amount": 1.0}) if is_graph else None
            for limit in (fill, number):
                old, failed = content(path), 0
                for n in range(80):
                    limit(n)
                    said = attempt(lambda: session.save(path))
                    assert sorted(os.listdir(disk)) in ([], ["saved"]), (n, os.listdir(disk))
                    if not said:
                        break
                    failed += 1
                    assert "disk is full" in said or "No space left" in said, said
                    assert content(path) == old, n
                    if old:
                        session.restore(path)
                    if is_graph:
                        assert session.run("value").flat[0] in (value, value - 1)
                        session.run("store", {"amount": value})
                assert 2 < failed < 79, (name, failed)
                if is_graph:
                    session.run("total", {"amount": 1.0})
                    session.restore(path)
                    assert session.run("value").flat[0] == value
        shutil.rmtree(disk / "saved")
        enlarge()
    tell(name, session.receipt.clean)
"""


PARKS = """
with sojourn.Pool(memory="1GiB", parking_folder=disk) as pool:
    pool.register("count", models.wide_counter)
    total = 0
    for spare in (0, 2, 5):
        fill(spare)
        with pool.lease("count") as lease:
            total = lease.run("total", {"amount": 1.0})
        # It cannot leave: what it knows would be lost.
        assert not pool.evict("count")
        [copy] = pool.stats().copies
        assert "disk is full" in copy.park_error or "No space" in copy.park_error, copy
    enlarge()
    with pool.lease("count") as lease:
        tell(total, lease.run("value").flat[0])
    tell(pool.evict("count"))
    with pool.lease("count") as lease:
        tell(lease.run("value").flat[0])
    tell(pool.stats().counters["parks"])
tell(os.listdir(disk))
"""


BROKEN = """
with sojourn.open(models.wide_counter) as session:
    path = disk / "saved"
    session.run("store", {"amount": 5.0})
    session.save(path)
    session.run("store", {"amount": 6.0})
    mount("none", disk, "none", REMOUNT | READ_ONLY)
    tell("read-only" in attempt(lambda: session.save(path)))
    tell("read-only" in attempt(lambda: session.save(disk / "another")))
    assert session.run("value").flat[0] == 6
    session.restore(path)
    tell(session.run("value").flat[0])
    mount("none", disk, "none", REMOUNT)
    # What cannot be read at all: the beginning of our memory, where nothing ever is.
    for part in sorted(os.listdir(path)):
        session.run("store", {"amount": 6.0})
        mount("/proc/self/mem", path / part, "none", BIND)
        said = attempt(lambda: session.restore(path))
        done(libc.umount2(os.fsencode(path / part), 2), "umount")
        tell(part.partition("-")[0], "Input/output error" in said, session.run("value").flat[0])
    session.restore(path)
    tell(session.run("value").flat[0])
tell(session.receipt.clean)
"""


# One program for all: TensorFlow takes its time to load.
def test_a_real_disk_that_is_full_read_only_or_cannot_be_read_harms_nothing():
    assert run_with_mounts(DISK + SAVES + PARKS + BROKEN + CLEAN) == [
        *("graph True", "saved-model True", "keras True"),
        *("3.0 3.0", "True", "3.0", "1", "[]"),
        *("True", "True", "5.0"),
        "checkpoint True 6.0",
        "manifest.json True 6.0",
        "state.data True 6.0",
        "state.index True 6.0",
        *("5.0", "True"),
    ]
