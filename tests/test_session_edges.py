"""Sessions at the edges of what can be asked of them."""

from __future__ import annotations

import os
import signal
import threading
import time

import numpy as np
import pytest

import models
import sojourn
from faults.tools import wait_until
from sojourn.process.zygote import zygote as the_zygote
from sojourn.session import checkpoints

pytestmark = pytest.mark.usefixtures("zygote")


def halves():
    import tensorflow as tf

    x = tf.compat.v1.placeholder(tf.float32, [None, 4], name="x")
    return x, tf.split(x, 2, axis=1, name="split")


def echo():
    import tensorflow as tf

    x = tf.compat.v1.placeholder(tf.float32, [None], name="x")
    return {"x": x}, {"same": tf.identity(x), "x": x}


def test_outputs_of_one_op_keep_names_of_their_own():
    fed = np.arange(4, dtype=np.float32).reshape(1, 4)
    with sojourn.open(halves) as session:
        assert list(session.signature.outputs) == ["split:0", "split:1"]
        found = session.run(None, {"x": fed})
    assert found["split:0"].tolist() == [[0, 1]]
    assert found["split:1"].tolist() == [[2, 3]]


def test_the_tensors_of_a_live_graph_can_be_named_by_themselves():
    import tensorflow as tf

    graph = tf.Graph()
    with graph.as_default():
        x, (left, right) = halves()
    fed = {"x": np.ones((1, 4), np.float32)}
    for outputs, names in [
        ([left, right], ["split:0", "split:1"]),
        ("split:1", ["split"]),
        (right, ["split"]),
        ({"left": left, "right": "split:1"}, ["left", "right"]),
    ]:
        with sojourn.open(graph, inputs=[x], outputs=outputs) as session:
            assert list(session.run(None, fed)) == names
    with pytest.raises(TypeError, match=r"outputs must be names of tensors, .* not 3"):
        sojourn.open(graph, outputs=[3])


@pytest.mark.parametrize("isolation", ["process", "inline"])
def test_a_result_is_never_the_memory_that_was_fed(isolation):
    room = np.zeros(2048 + 16, np.float32)
    start = -room.ctypes.data % 64 // 4
    fed = room[start : start + 2048]  # aligned, so that TensorFlow takes it where it lies
    with sojourn.open(echo, isolation=isolation) as session:
        for _ in range(20):  # on both executors
            results = session.run(["same", "x"], {"x": fed})
            assert not any(np.may_share_memory(result, fed) for result in results)


@pytest.mark.parametrize("isolation", ["process", "inline"])
def test_a_result_is_never_memory_of_the_model(isolation):
    with sojourn.open(remembering, isolation=isolation) as session:
        for name in session.signature.outputs:
            first = session.run(name)
            for _ in range(20):  # engines try several ways
                again = session.run(name)
                assert np.array_equal(again, first)
                again[:] = -1
        before, same = session.run(["plain", "same"])
        session.run("Assign_new")
        assert before[0] == same[0] == 0
        before[0] = 2
        assert same[0] == 0
        assert session.run("plain")[0] == 5
    with sojourn.open(keeping_its_result, isolation=isolation) as session:
        session.run("output")[:] = -1
        assert session.run("output")[0] == 0


def keeping_its_result():
    kept = np.zeros(3)
    return lambda: kept


def remembering():
    import tensorflow as tf

    v1 = tf.compat.v1
    plain = v1.get_variable("plain", [3], initializer=v1.zeros_initializer(), use_resource=False)
    resource = v1.get_variable("resource", [3], initializer=v1.ones_initializer())
    constant = tf.constant([1.0, 2.0, 3.0])
    v1.assign(plain, [5.0, 5.0, 5.0], name="Assign_new")
    return {}, {
        "plain": plain,
        "same": tf.identity(plain),
        "read": resource.read_value(),
        "constant": constant,
        "folded": constant + constant,
    }


def test_names_may_come_from_a_generator_and_run_again():
    with sojourn.open(halves) as session:
        fed = {"x": np.ones((1, 4), np.float32)}
        for _ in range(2):
            results = session.run((f"split:{i}" for i in range(2)), fed)
            assert [result.shape for result in results] == [(1, 2), (1, 2)]


@pytest.mark.parametrize("timeout", [0, 1e300, float("inf")])
def test_any_patience_closes_a_session(timeout):
    session = sojourn.open(models.adder)
    assert session.close(timeout=timeout).clean


def test_a_negative_patience_is_refused_and_the_session_stays_open():
    with sojourn.open(models.adder) as session:
        with pytest.raises(ValueError, match="timeout must not be negative, got -1"):
            session.close(timeout=-1)
        assert session.run("output", {"a": 1.0, "b": 2.0}) == 3.0


def test_a_session_in_a_fork_holds_nothing_there():
    with sojourn.open(models.adder) as session:
        pid = os.fork()
        if pid == 0:
            good = session.footprint().host_bytes == 0 and "closed" in repr(session)
            os._exit(0 if good else 1)
        assert os.waitpid(pid, 0)[1] == 0
        assert session.footprint().host_bytes > 0


def test_a_timeout_of_opening_holds_while_the_zygote_imports_and_lets_it_go_on():
    the_zygote.end()
    with pytest.raises(sojourn.StepTimeout, match=r"did not get a worker within 0\.01 s"):
        sojourn.open(models.adder, timeout=0.01)
    importing = the_zygote.pid
    with sojourn.open(models.adder) as session:
        assert session.run("output", {"a": 1.0, "b": 2.0}) == 3.0
    assert the_zygote.pid == importing


def test_a_timeout_of_opening_holds_while_the_zygote_does_not_answer(monkeypatch):
    monkeypatch.setattr("sojourn.probes.processes.is_stopped", lambda pid: False)
    pid = the_zygote.pid
    os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(sojourn.StepTimeout, match="did not get a worker"):
            sojourn.open(models.adder, timeout=0.2)
    finally:
        os.kill(pid, signal.SIGCONT)
    with sojourn.open(models.adder) as session:
        assert session.run("output", {"a": 1.0, "b": 2.0}) == 3.0
    assert the_zygote.pid == pid


def test_who_hears_that_a_session_broke_can_ask_it_how():
    heard = []

    def hear(event):
        if event.kind == "session.broken":
            try:
                session.run("output", {"a": 1.0, "b": 2.0})
            except sojourn.SessionBroken as error:
                heard.append(str(error))

    unsubscribe = sojourn.events.subscribe(hear)
    try:
        with sojourn.open(models.adder) as session:
            os.kill(session.pid, signal.SIGKILL)
            with pytest.raises(sojourn.SessionBroken):
                session.run("output", {"a": 1.0, "b": 2.0})
    finally:
        unsubscribe()
    assert len(heard) == 1
    assert "SIGKILL" in heard[0]


def test_a_step_that_was_only_prepared_when_the_worker_died_is_known_not_to_have_begun():
    with sojourn.open(models.adder) as session:
        os.kill(session.pid, signal.SIGKILL)
        with pytest.raises(sojourn.SessionBroken, match="has not begun"):
            session.run("output", {"a": 1.0, "b": 2.0})


def test_an_impatient_close_ends_the_worker_that_is_just_coming_back(tmp_path, monkeypatch):
    monkeypatch.setattr("sojourn.probes.processes.is_stopped", lambda pid: False)
    slow = tmp_path / "slow"

    def slow_the_second_time():
        if slow.exists():
            time.sleep(600)
        return models.counter()

    session = sojourn.open(slow_the_second_time, restart="from-checkpoint")
    slow.touch()
    os.kill(session.pid, signal.SIGKILL)
    wait_until(lambda: not os.path.exists(f"/proc/{session.pid}"))
    failed = []

    def step():
        try:
            session.run("value")
        except sojourn.SojournError as error:
            failed.append(error)

    os.kill(the_zygote.pid, signal.SIGSTOP)  # so that the next worker is still to come
    stepping = threading.Thread(target=step)
    closing = threading.Thread(target=session.close, kwargs={"timeout": 0})
    try:
        stepping.start()
        while session.state is not sojourn.State.OPENING:
            time.sleep(0.01)
        closing.start()
        time.sleep(0.1)
    finally:
        os.kill(the_zygote.pid, signal.SIGCONT)
    closing.join(60)
    stepping.join(60)
    assert session.state is sojourn.State.CLOSED
    assert len(failed) == 1


def test_errors_that_somebody_keeps_keep_no_memory_of_their_session():
    def shared_memory() -> list[str]:
        names = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
        found = [os.readlink(name) for name in names if os.path.lexists(name)]
        return [target for target in found if "memfd" in target]

    before = shared_memory()
    kept = []
    with sojourn.open(models.sleeper) as session:
        for fault in (lambda: None, lambda: os.kill(session.pid, signal.SIGKILL)):
            fault()
            try:
                session.run(None, {"seconds": 60.0}, timeout=0.1)
            except sojourn.SojournError as error:
                kept.append(error)
    assert [type(error) for error in kept] == [sojourn.StepTimeout, sojourn.SessionBroken]
    assert shared_memory() == before


def test_state_that_is_saved_behind_a_link_stays_behind_it(tmp_path):
    (tmp_path / "real").mkdir()
    link = tmp_path / "latest"
    link.symlink_to(tmp_path / "real" / "step")
    with sojourn.open(models.counter) as session:
        for amount in (1.0, 2.0):
            session.run("store", {"amount": amount})
            session.save(link)
        session.reset()
        session.restore(link)
        assert session.run("value") == 2.0
    assert link.is_symlink()
    assert sorted(os.listdir(tmp_path)) == ["latest", "real"]
    assert os.listdir(tmp_path / "real") == ["step"]


def test_a_manifest_of_bytes_that_are_no_text_is_damage(tmp_path):
    (tmp_path / "manifest.json").write_bytes(b'{"format": 1, "session": "\xff"}')
    with (
        pytest.raises(sojourn.CheckpointError, match=r"manifest\.json is damaged"),
        checkpoints.opened(str(tmp_path)),
    ):
        pass


def test_an_inline_session_refuses_a_limit_that_it_could_not_keep():
    with pytest.raises(ValueError, match="an inline session has none"):
        sojourn.open(models.adder, isolation="inline", memory="1GiB")


@pytest.mark.parametrize("isolation", ["process", "inline"])
def test_what_a_function_gives_arrives_unharmed_or_is_refused_by_name(isolation):
    gives = {
        "nul": ["a\0", b"b\0"],
        "mixed": ["a", 1],
        "ragged": [[1], [1, 2]],
        "none": None,
        "masked": np.ma.masked_array([1, 2], mask=[True, False]),
        "moment": np.array(["2026-01-01"], "datetime64[D]"),
        "numbers": np.arange(3, dtype=">i4"),
    }

    def build():
        return lambda: gives

    with sojourn.open(build, outputs=list(gives), isolation=isolation) as session:
        assert session.run("nul").tolist() == [b"a\0", b"b\0"]
        assert session.run("numbers").tolist() == [0, 1, 2]
        for name in ("mixed", "ragged", "none", "masked", "moment"):
            with pytest.raises(sojourn.ModelError, match=f"'{name}' of the function"):
                session.run(name)


def test_names_that_are_no_text_are_refused_and_numpys_own_are_taken():
    with sojourn.open(models.adder) as session:
        feeds = {np.str_("a"): 1.0, "b": 2.0}
        assert session.run(np.array(["output"]), feeds) == [3.0]
        assert session.run(np.str_("output"), feeds) == 3.0
        with pytest.raises(sojourn.InputError, match="outputs are named by strings"):
            session.run("\ud800", feeds)
        with pytest.raises(sojourn.InputError, match="inputs are named by strings"):
            session.run("output", {"\ud800": 1.0})
