"""What a session does while it is open."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

import models
import sojourn
from sojourn import State
from sojourn.process import crossing

pytestmark = pytest.mark.usefixtures("zygote")

ONE = np.ones((1, 784), np.float32)


@pytest.fixture(scope="module")
def shared(zygote: None) -> sojourn.Session:
    with sojourn.open(models.softmax_regression, name="softmax") as session:
        session.run("y", {"x": ONE})
        yield session


@pytest.mark.quick
def test_one_name_gives_an_array_a_list_a_list_and_none_a_dict(shared):
    y = shared.run("y", {"x": ONE})
    assert y.shape == (1, 10)
    assert y.sum() == pytest.approx(1)
    [again] = shared.run(["y"], {"x": ONE})
    np.testing.assert_array_equal(again, y)
    np.testing.assert_array_equal(shared.run(None, {"x": ONE})["y"], y)
    np.testing.assert_array_equal(shared(x=ONE), y)


def test_the_names_of_the_graph_work_too(shared):
    assert shared.run("w:0").shape == (784, 10)
    assert shared.run(["x:0", "b:0"], {"x:0": ONE})[1].shape == (10,)


def test_an_operation_is_run_for_its_effect_and_gives_none():
    with sojourn.open(models.counter) as session:
        assert session.run(["store", "amount:0"], {"amount": 3.0}) == [None, 3.0]
        assert session.run("value") == 3.0


def test_the_signature_is_known_without_tensorflow_in_the_caller(shared):
    assert str(shared.signature) == "(x: float32[?, 784]) -> (y: float32[?, 10])"


def test_the_status_line_says_what_it_is(shared):
    assert repr(shared).startswith("<Session 'softmax' ready | pid ")
    assert "test_sessions.py" in repr(shared)


@pytest.mark.quick
def test_results_own_their_memory_and_outlive_their_session():
    with sojourn.open(models.softmax_regression) as session:
        first = session.run("y", {"x": ONE})
        kept = first.copy()
        for _ in range(20):
            session.run("y", {"x": np.random.rand(1, 784)})
        np.testing.assert_array_equal(first, kept)
        assert first.flags.owndata
        assert first.flags.writeable
    np.testing.assert_array_equal(first, kept)
    print(first)


def test_a_variable_never_lives_in_a_fed_buffer():
    def build():
        import tensorflow as tf

        v1 = tf.compat.v1
        x = v1.placeholder(tf.float32, [1024], name="x")
        v = v1.get_variable("v", [1024], use_resource=True)
        return {"x": x}, {"assign": v.assign(x).op, "v": v.read_value()}

    for isolation in ("process", "inline"):
        with sojourn.open(build, isolation=isolation) as session:
            session.run("assign", {"x": np.full(1024, 1, np.float32)})
            fed = np.full(1024, 2, np.float32)
            session.run("assign", {"x": fed})
            fed[:] = 7
            session.run("x:0", {"x": np.full(1024, 9, np.float32)})
            assert session.run("v").tolist() == [2.0] * 1024


@pytest.mark.parametrize(
    ("feeds", "says"),
    [
        ({"x": np.ones((2, 7), np.float32)}, "takes float32[?, 784]; got float32[2, 7]"),
        ({"x": np.ones((2, 784), complex)}, "complex128[2, 784], which would lose"),
        ({"x": [[None] * 784]}, "None"),
        ({"nope": 1}, "there is no input 'nope'; there are x"),
        ({}, "the input 'x' must be fed"),
        ({"x": "text"}, "takes float32[?, 784]; got string[]"),
        ({3: ONE}, "inputs are named by strings"),
    ],
)
@pytest.mark.quick
def test_wrong_input_says_what_was_expected_and_what_came(shared, feeds, says):
    with pytest.raises(sojourn.InputError) as caught:
        shared.run("y", feeds)
    assert says in str(caught.value)
    assert shared.state is State.READY


def test_an_output_that_is_not_there_is_named(shared):
    with pytest.raises(sojourn.InputError, match=r"there is no output 'nope'; there are y"):
        shared.run("nope", {"x": ONE})


@pytest.mark.parametrize("fetches", [5, [5], [["y"]]])
def test_outputs_that_are_no_names_are_refused(shared, fetches):
    with pytest.raises(sojourn.InputError, match="outputs are named by strings"):
        shared.run(fetches, {"x": ONE})


@pytest.mark.quick
def test_errors_of_the_users_own_code_arrive_whatever_they_are():
    def build():
        def fail(how):
            if how == 0:
                raise TimeoutError("a server of mine")  # not ours, though we have one as well
            if how == 1:
                raise OSError("no file \udce9")  # bytes that are no text
            if how == 2:
                error = KeyError("odd")
                error.op = "no op of TensorFlow's"
                raise error

            class Mute(Exception):
                def __str__(self):
                    raise RuntimeError("no words")

            raise Mute

        return fail

    with sojourn.open(build) as session:
        for how, kind, says in (
            (0, TimeoutError, "^a server of mine$"),
            (1, OSError, r"no file \\udce9"),
            (2, KeyError, "odd"),
            (3, sojourn.EngineError, "no words"),
        ):
            with pytest.raises(kind, match=says):
                session.run("output", {"how": how})
        assert session.state is State.READY


@pytest.mark.parametrize("answer", [b"", b"\xc1", b"\xa2\xff\xfe", b"\x91" * 100_000])
def test_an_answer_that_is_no_error_at_all_is_known_as_such(answer):
    with pytest.raises(crossing.NONSENSE):
        crossing.revive(answer)


@pytest.mark.quick
def test_many_threads_call_one_session_at_once():
    with sojourn.open(models.softmax_regression) as session:
        _call_from_many_threads(session)


def _call_from_many_threads(shared):
    expected = {n: shared.run("y", {"x": np.full((n, 784), n, np.float32)}) for n in range(1, 9)}
    wrong = []

    def call(n):
        for _ in range(30):
            got = shared.run("y", {"x": np.full((n, 784), n, np.float32)})
            if not np.array_equal(got, expected[n]):
                wrong.append(n)

    threads = [threading.Thread(target=call, args=(n,)) for n in expected]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.quick
def test_steps_that_wait_for_each_other_run_side_by_side():
    def build():
        import tensorflow as tf

        v1 = tf.compat.v1
        queue = tf.queue.FIFOQueue(1, [tf.float32], shapes=[[]])
        x = v1.placeholder(tf.float32, [], name="x")
        return {"x": x}, {"put": queue.enqueue(x), "got": queue.dequeue()}

    with sojourn.open(build) as session:
        got = []
        reader = threading.Thread(target=lambda: got.append(session.run("got")))
        reader.start()
        time.sleep(0.05)
        session.run("put", {"x": 5.0})
        reader.join(60)
        assert got == [5.0]


@pytest.mark.quick
def test_sessions_of_one_program_do_not_share_variables_or_random_numbers():
    def build():
        import tensorflow as tf

        v1 = tf.compat.v1
        return {}, {"r": tf.random.uniform([4]), "v": v1.get_variable("v", [4])}

    with sojourn.open(build) as one, sojourn.open(build) as two:
        assert not np.array_equal(one.run("r"), two.run("r"))
        assert not np.array_equal(one.run("v"), two.run("v"))


@pytest.mark.quick
def test_reset_puts_the_variables_back():
    with sojourn.open(models.counter) as session:
        session.run("total", {"amount": 2.0})
        session.reset()
        assert session.run("value") == 0.0


@pytest.mark.quick
def test_a_step_that_takes_too_long_times_out_and_the_session_goes_on():
    with sojourn.open(models.sleeper) as session:
        session.run("output", {"seconds": 0.0})  # prepared, so that the time is the step's own
        with pytest.raises(sojourn.StepTimeout, match="outcome is unknown"):
            session.run("output", {"seconds": 30.0}, timeout=0.1)
        assert session.run("output", {"seconds": 0.0}) == 0.0


@pytest.mark.quick
def test_what_the_worker_prints_is_shown_in_order(capsys):
    def build():
        def speak(words):
            for word in words.tolist():
                print(word.decode())
            return words

        return speak

    with sojourn.open(build) as session:
        session.run("output", {"words": ["one", "two"]})
        session.run("output", {"words": ["three"]})
    assert capsys.readouterr().out == "one\ntwo\nthree\n"


def test_tf_print_reaches_the_callers_standard_error(capfd):
    def build():
        import tensorflow as tf

        x = tf.compat.v1.placeholder(tf.float32, [], name="x")
        with tf.control_dependencies([tf.print("x is", x)]):
            return {"x": x}, {"y": tf.identity(x)}

    with sojourn.open(build) as session:
        session.run("y", {"x": 4.0})
        assert "x is 4" in capfd.readouterr().err


@pytest.mark.quick
def test_a_tensor_larger_than_the_limit_fails_and_the_session_stays_usable():
    def build():
        import tensorflow as tf

        n = tf.compat.v1.placeholder(tf.int32, [], name="n")
        return {"n": n}, {"sum": tf.reduce_sum(tf.ones([n, 2**18]))}

    with sojourn.open(build, memory="1GiB") as session:
        with pytest.raises(Exception, match="OOM when allocating") as caught:
            session.run("sum", {"n": 4096})
        assert isinstance(caught.value.__cause__, sojourn.RemoteTraceback)
        assert session.run("sum", {"n": 16}) == 16 * 2**18


def test_a_worker_sees_the_callers_folder_environment_and_import_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SOJOURN_TEST", "seen")

    def build():
        import os
        import sys

        facts = [os.getcwd(), os.environ["SOJOURN_TEST"], str(len(sys.path))]

        def tell():
            import numpy as np

            return np.array(facts)

        return tell

    import sys

    with sojourn.open(build) as session:
        assert [fact.decode() for fact in session.run("output")] == [
            str(tmp_path),
            "seen",
            str(len(sys.path)),
        ]


@pytest.mark.quick
def test_a_builder_that_fails_is_reported_with_its_own_error_and_the_worker_is_gone():
    def build():
        raise KeyError("no such thing")

    with pytest.raises(KeyError, match="no such thing") as caught:
        sojourn.open(build)
    assert "in build" in str(caught.value.__cause__)


def test_what_is_no_model_is_refused():
    with pytest.raises(sojourn.ModelError):
        sojourn.open(42)
    with pytest.raises(ValueError, match="isolation"):
        sojourn.open(models.counter, isolation="thread")


def test_an_inline_session_has_the_same_api_and_an_honest_receipt():
    with sojourn.open(models.softmax_regression, isolation="inline") as session:
        assert session.run("y", {"x": ONE}).shape == (1, 10)
        with pytest.raises(sojourn.InputError):
            session.run("y", {"x": np.ones((1, 3))})
    with pytest.raises(sojourn.SessionClosed, match=r"was closed at .*test_sessions.py"):
        session.run("y", {"x": ONE})
    assert "until the process ends" in str(session.receipt)
    assert session.receipt.returned_bytes <= session.receipt.held_bytes


def test_tensorflow_errors_arrive_as_their_own_type_where_tensorflow_is_loaded():
    import tensorflow as tf

    def build():
        import tensorflow as tf

        x = tf.compat.v1.placeholder(tf.float32, [None], name="x")
        return {"x": x}, {"y": tf.debugging.check_numerics(x, "bad number")}

    with sojourn.open(build) as session:
        with pytest.raises(tf.errors.InvalidArgumentError, match="bad number") as caught:
            session.run("y", {"x": [float("nan")]})
        assert isinstance(caught.value.__cause__, sojourn.RemoteTraceback)


def test_a_graph_built_in_the_caller_runs_in_the_worker():
    import tensorflow as tf

    graph = tf.Graph()
    with graph.as_default():
        x = tf.compat.v1.placeholder(tf.float32, [None], name="x")
        v = tf.compat.v1.get_variable("v", initializer=[1.0, 2.0])
        tf.add(x, v, name="y")
        tf.compat.v1.global_variables_initializer()
    with sojourn.open(graph, initializer="init", outputs=["y"]) as session:
        assert session.run("y", {"x": [1.0, 1.0]}).tolist() == [2.0, 3.0]
        assert session.signature.inputs["x"].shape == (None,)
