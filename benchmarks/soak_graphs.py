"""Random rounds with TensorFlow: saved and restored state, models in files, the drop-in."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import soak_models
from soak_models import PLAIN
from soak_rounds import GRAPHS, LIVE, Kept, Round, failures, happens, refused, wait_until

import sojourn
from sojourn.testing.injection import Refusals

FILES = "soak-models"  # below the folder of the whole run

# -- state --------------------------------------------------------------------------------------


@happens(GRAPHS, weight=2)
def save_and_restore(round: Round) -> None:
    kept = round.pick()
    path = _saved(round, kept)
    total, landed = kept.total, kept.landed
    kept.add(3)
    if round.chosen.random() < 0.5:
        kept.session.save(path)  # over the existing state
        total, landed = kept.total, kept.landed
    kept.add(5)
    kept.session.restore(path)
    kept.total, kept.landed = total, landed
    kept.add(1)


@happens(GRAPHS, weight=2)
def restored_by_another(round: Round) -> None:
    kept = round.new()
    kept.add(7)
    path = _saved(round, kept)
    round.end(kept)
    other = round.new()
    other.session.restore(path)
    other.total = kept.total
    other.add(1)
    round.open.append(other)


@happens(GRAPHS)
def reset(round: Round) -> None:
    kept = round.pick()
    kept.session.reset()
    kept.total, kept.landed = 0.0, set()
    kept.add(1)


@happens(GRAPHS)
def damaged_state(round: Round) -> bool:
    kept = round.pick()
    path = Path(_saved(round, kept))
    total, landed = kept.total, kept.landed
    kept.add(3)
    victim = round.chosen.choice(sorted(path.iterdir()))
    _damage(victim, round)
    try:
        kept.session.restore(path)
    except sojourn.CheckpointError:
        kept.add(1)  # nothing has changed
        return True
    kept.total, kept.landed = total, landed  # the damage does not matter
    kept.add(1)
    return False


@happens(GRAPHS)
def save_that_is_refused(round: Round) -> bool:
    kept = round.pick()
    path = _saved(round, kept)
    number = round.chosen.choice([errno.ENOSPC, errno.EIO, errno.EROFS])
    old = kept.total, kept.landed
    kept.add(3)
    new = kept.total, kept.landed
    with Refusals(lambda: OSError(number, os.strerror(number))) as refusals:
        for name in "open mkdir makedirs fsync rename listdir fstat lstat rmdir unlink".split():
            refusals.cover(os, name)
        refusals.at(round.chosen.randrange(1, 60))
        try:
            kept.session.save(path)
            old = new
        except sojourn.CheckpointError:
            pass
    kept.add(5)
    kept.session.restore(path)
    # The last system call of a save may fail when the new state is already in place.
    value = float(kept.ask(0, PLAIN))
    kept.total, kept.landed = new if value >= new[0] else old
    kept.add(1)
    return refusals.has_failed


@happens(GRAPHS)
def killed_while_it_saves(round: Round) -> bool:
    kept = round.lose()
    path = _saved(round, kept)
    other = round.new()
    with round.meanwhile(os.kill, kept.session.pid, signal.SIGKILL), refused(sojourn.SessionBroken):
        while True:
            kept.session.save(path)
    round.end(kept)
    other.session.restore(path)  # whichever save it is, it is whole
    other.total = kept.total
    other._unknown, other.landed = kept._unknown, kept.landed
    other.add(1)
    round.end(other)
    return True


@happens(GRAPHS, weight=2)
def back_from_a_checkpoint(round: Round) -> bool:
    kept = round.new(restart="from-checkpoint")
    kept.add(2)
    is_saved = round.chosen.random() < 0.8
    if is_saved:
        _saved(round, kept)
    total = kept.total if is_saved else 0.0
    kept.add(3)
    worker = kept.session.pid
    os.kill(worker, signal.SIGKILL)
    with contextlib.suppress(sojourn.SessionBroken):  # if the step was already sent
        for _ in range(10_000):
            result = kept.ask(0, PLAIN)
            if kept.session.pid != worker:
                assert result == total, f"{result} after the restart, {total} had been saved"
                break
    kept.total = total
    kept.add(1)
    assert kept.session.pid != worker
    round.end(kept)
    return True


def _saved(round: Round, kept: Kept) -> str:
    path = round.path()
    kept.add(1)
    kept.session.save(path)
    return path


def _damage(path: Path, round: Round) -> None:
    content = bytearray(path.read_bytes())
    at = round.chosen.randrange(len(content))
    how = round.chosen.choice(["flip", "cut", "empty", "missing", "longer"])
    round.note(f"{how} {path.name} at {at}")
    if how == "flip":
        content[at] ^= 1 << round.chosen.randrange(8)
    elif how == "cut":
        del content[at:]
    elif how == "empty":
        content.clear()
    else:
        content[at:at] = round.chosen.randbytes(40)
    if how == "missing":
        path.unlink()
    else:
        path.write_bytes(content)


# -- models in files ----------------------------------------------------------------------------


def write_files(folder: str) -> None:
    """Write the files once for the whole run."""
    files = os.path.join(folder, FILES)
    os.mkdir(files)
    sojourn.isolated(soak_models.write_files)(files)


def _file(name: str) -> str:
    return os.path.join(os.environ["TMPDIR"], FILES, name)


@happens(GRAPHS, weight=2)
def saved_model(round: Round) -> None:
    untrusted = round.chosen.random() < 0.5
    round.sessions += 1
    with sojourn.open(_file("doubling"), untrusted=untrusted) as session:
        assert session.run("y", {"x": [1.0, 2.0]}).tolist() == [2.0, 4.0]
        if untrusted:
            with refused(sojourn.CheckpointError):
                session.save(round.path())
    assert session.receipt is not None
    assert session.receipt.clean


@happens(GRAPHS)
def model_that_reads_files(round: Round) -> bool:
    round.sessions += 1
    with sojourn.open(_file("reading"), untrusted=True) as session, refused(*failures()):
        session.run("y", {"x": [1.0]})
    return True


@happens(GRAPHS)
def damaged_model(round: Round) -> bool:
    folder = Path(shutil.copytree(_file("doubling"), round.path()))
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    _damage(round.chosen.choice(files), round)
    round.sessions += 1
    verdicts: tuple[type[BaseException], ...] = (MemoryError, sojourn.SojournError, *failures())
    with contextlib.suppress(*verdicts), sojourn.open(folder) as session:
        session.run(None, {"x": [1.0]})
        return False
    return True


@happens(GRAPHS, weight=0.5)
def keras_model(round: Round) -> None:
    round.sessions += 1
    with sojourn.open(_file("twice.keras")) as session:
        assert session(x=np.array([[3.0]], np.float32)).tolist() == [[6.0]]


# -- with TensorFlow in this process ------------------------------------------------------------


@contextlib.contextmanager
def _own_graph() -> Iterator[Any]:
    import tensorflow as tf

    v1 = tf.compat.v1
    with tf.Graph().as_default() as graph:
        amount = v1.placeholder(tf.float64, [], name="amount")
        total = v1.get_variable("sum", initializer=np.float64(0), use_resource=True)
        tf.identity(v1.assign_add(total, amount), name="total")
        v1.global_variables_initializer()
        yield graph


@happens(LIVE, weight=4)
def live_graph(round: Round) -> None:
    round.sessions += 1
    with _own_graph() as graph, sojourn.open(graph, outputs=["total"]) as session:
        assert session(amount=2.0) == 2.0
        assert session(amount=2.0) == 4.0
    assert session.receipt is not None
    assert session.receipt.clean


@happens(LIVE, weight=8)
def drop_in(round: Round) -> bool:
    round.sessions += 1
    how = round.chosen.choice(["close", "fail", "kill", "grow"])
    round.note(how)
    feeds = {"amount:0": 1.0}
    with _own_graph() as graph, sojourn.compat.v1.Session(graph=graph) as session:
        session.run("init")
        for expected in range(1, 4):
            assert session.run("total:0", feeds) == expected
        if how == "fail":
            with refused(*failures(), TypeError, KeyError):
                session.run("nothing:0")
        elif how == "grow":
            import tensorflow as tf

            assert session.run(tf.constant(5.0) * 2.0) == 10.0
        elif how == "kill":
            os.kill(session._link.stay.pid, signal.SIGKILL)
            with refused(*failures(), sojourn.SessionBroken):
                for _ in range(10_000):
                    session.run("total:0", feeds)
    assert session.receipt is not None
    assert session.receipt.clean
    return how == "kill"


# -- pools --------------------------------------------------------------------------------------


@happens(GRAPHS, weight=2)
def parking_pool(round: Round) -> bool:
    """Two counters, room for one: acknowledged counts persist, unless a kill came first."""
    names = ["one", "other"]
    parked = dict.fromkeys(names, 0.0)
    totals = dict.fromkeys(names, 0.0)
    kills = 0
    with sojourn.Pool(max_sessions=1, parking_folder=round.folder) as pool:
        for name in names:
            pool.register(name, soak_models.graph)
        for _ in range(round.chosen.randrange(3, 9)):
            name = round.chosen.choice(names)
            [another] = set(names) - {name}
            with pool.lease(name, timeout=120) as session:
                parked[another] = totals[another]  # parked to make room
                totals[name] += 1
                result = session.run("total", {"amount": 1.0})
                assert result == totals[name], f"{result} instead of {totals[name]}"
                how = round.chosen.choice(["use", "use", "evict", "kill", "kill idle"])
                round.note(how)
                worker = session.pid
                if how == "kill" and kills < 2:
                    os.kill(worker, signal.SIGKILL)
                    with refused(sojourn.SessionBroken):
                        for _ in range(10_000):
                            session.run("total", {"amount": 0.0})
                    kills += 1
                    totals[name] = parked[name]
            if how == "evict":
                assert pool.evict(name), "it is still there"
                parked[name] = totals[name]
            elif how == "kill idle" and kills < 2:
                os.kill(worker, signal.SIGKILL)
                wait_until(functools.partial(_is_gone, worker))
                kills += 1
                totals[name] = parked[name]
        counters = pool.stats().counters
        round.sessions += counters["opens"]
    return kills > 0


def _is_gone(pid: int) -> bool:
    return not os.path.exists(f"/proc/{pid}")
