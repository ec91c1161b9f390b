"""Fixtures and options of the tests. A test fails if it leaves anything behind."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import faults_table
import invariants
import sojourn
from sojourn.process import limits
from sojourn.service import records
from sojourn.session.conversion import cache, examining

if TYPE_CHECKING:
    from cluster_stand_in import StandIn
    from sojourn.cluster import Cluster

# A private temporary folder: the leak check sees what a test, TensorFlow or sojourn puts into it.
_private = tempfile.mkdtemp(prefix="sojourn-tests-")
os.environ["TMPDIR"] = tempfile.tempdir = _private
os.environ["XDG_RUNTIME_DIR"] = os.path.join(_private, "runtime")
os.mkdir(os.environ["XDG_RUNTIME_DIR"])
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
invariants.mark_this_run()
invariants.give_back_at_once()
gc.disable()  # until everything is imported: imported modules are never garbage
# A shell that starts pytest in the background may have set signals to ignored that tests need.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

_faults = faults_table.named_tests()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("sojourn's own tests")
    group.addoption("--faults", action="store_true", help="only those that docs/faults.md names")
    group.addoption("--repeats", type=int, default=1, help="run every test this many times")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    repeats = metafunc.config.getoption("--repeats")
    if repeats > 1:
        metafunc.fixturenames.append("repeat")
        metafunc.parametrize("repeat", range(1, repeats + 1))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With `-m quick`, skip the import of modules that never use the mark."""
    if config.getoption("-m") == "quick" and collection_path.suffix == ".py":
        return "mark.quick" not in collection_path.read_text() or None
    return None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--faults"):
        chosen: list[pytest.Item] = []
        left_out: list[pytest.Item] = []
        for item in items:
            is_named = item.function.__name__ in _faults  # type: ignore[attr-defined]
            (chosen if is_named else left_out).append(item)
        config.hook.pytest_deselected(items=left_out)
        items[:] = chosen
    if config.getoption("--repeats") > 1:
        # In rounds: a run that is cut short has run every test a few times, not a few tests often.
        items.sort(key=lambda item: item.callspec.params["repeat"])  # type: ignore[attr-defined]


def pytest_collection_finish(session: pytest.Session) -> None:
    invariants.forget_what_is_loaded()


def pytest_unconfigure(config: pytest.Config) -> None:
    shutil.rmtree(_private, ignore_errors=True)


@pytest.fixture(scope="session")
def zygote() -> None:
    """Start a zygote that has imported TensorFlow; it stays for the whole run."""
    sojourn.warm_up(wait=True)


@pytest.fixture(scope="session")
def bystanders() -> Iterator[invariants.Bystanders]:
    """Provide the session that faults must not harm; it stays open from one fault to the next."""
    bystanders = invariants.Bystanders()
    yield bystanders
    bystanders.leave()


@pytest.fixture(autouse=True)
def nothing_left_behind(
    request: pytest.FixtureRequest, bystanders: invariants.Bystanders
) -> Iterator[None]:
    """Fail a test that leaves anything behind or harms other sessions."""
    if "zygote" in request.fixturenames:
        request.getfixturevalue("zygote")
    others = None
    if request.function.__name__ in _faults or request.path.parent.name == "faults":
        request.getfixturevalue("zygote")
        others = bystanders.one(request.module)
    else:
        bystanders.leave()  # such tests may count the open sessions
    yield from invariants.hold(request, others)


@pytest.fixture
def own_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let commands that run here find only the servers that this process has started: tests that
    run in other processes at the same time start servers too."""
    real = records._of_process

    def ours(pid: int) -> records.Record | None:
        found = real(pid)
        is_ours = found is None or pid in (os.getpid(), *limits.descendants(os.getpid()))
        return found if is_ours else None

    monkeypatch.setattr(records, "_of_process", ours)


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Converted models go to a folder of this test's own. A moment is enough to time them."""
    monkeypatch.setenv(cache.FOLDER, str(tmp_path / "cache"))
    monkeypatch.setattr(examining, "_TIMING_SECONDS", 0.01)
    return tmp_path / "cache"


@pytest.fixture
def nodes() -> Iterator[StandIn]:
    """Start the nodes `a` and `b` of a cluster without Ray."""
    from cluster_stand_in import stand_in

    with stand_in("a", "b") as nodes:
        yield nodes


@pytest.fixture
def everywhere(nodes: StandIn) -> Iterator[Cluster]:
    """Connect a caller to that cluster."""
    with nodes.connect() as everywhere:
        yield everywhere
