"""`sojourn.isolated`: what goes in, what comes out, and that the worker is gone afterwards."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import importlib.util
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pytest

import sojourn
from sojourn.errors import RemoteTraceback
from sojourn.probes import memory, processes

pytestmark = pytest.mark.usefixtures("zygote")


def workers() -> list[int]:
    """The workers that are alive now."""
    return [found.pid for found in processes.of_client(os.getpid()) if not found.is_zygote]


class Refused(Exception):
    """Its class wants other arguments than it keeps, so that it cannot simply be unpickled."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(f"{code}: {reason}")
        self.code = code


# -- how it is written -------------------------------------------------------------------------


def test_the_decorator_works_with_and_without_arguments() -> None:
    @sojourn.isolated
    def plain(a: int, b: int = 2) -> int:
        """Adds."""
        return a + b

    @sojourn.isolated(name="named", memory="1GiB", device="cpu")
    def limited() -> str | None:
        return os.environ.get("CUDA_VISIBLE_DEVICES")

    assert plain(1) == 3
    assert plain(1, b=5) == 6
    assert (plain.__name__, plain.__doc__) == ("plain", "Adds.")
    assert limited() == "-1"
    assert limited.receipt is not None
    assert limited.receipt.session.startswith("named-")
    assert repr(limited).startswith("<isolated 'named' | memory 1.0 GiB, on cpu | last call closed")


@pytest.mark.quick
def test_it_runs_in_another_process_that_is_gone_afterwards() -> None:
    pid = sojourn.isolated(os.getpid)()
    assert pid != os.getpid()
    assert pid not in workers()
    assert not Path(f"/proc/{pid}").exists()


def test_lambdas_closures_partials_builtins_and_classes_are_functions_too() -> None:
    base = 10
    assert sojourn.isolated(lambda x: x + base)(1) == 11
    assert sojourn.isolated(functools.partial(pow, 2))(5) == 32
    assert sojourn.isolated(len)([1, 2]) == 2
    assert sojourn.isolated(dict)(a=1) == {"a": 1}


class Scale:
    def __init__(self, factor: int) -> None:
        self.factor = factor

    @sojourn.isolated
    def times(self, x: int) -> int:
        return self.factor * x

    @sojourn.isolated
    def steps(self) -> Any:
        yield self.factor

    @classmethod
    @sojourn.isolated
    def kind(cls, x: int) -> tuple[str, int]:
        return cls.__name__, x

    @staticmethod
    @sojourn.isolated
    def plain(x: int) -> int:
        return x

    def undecorated(self, x: int) -> int:
        return self.factor + x


class Trainer:
    map = "mercator"

    def __init__(self) -> None:
        self.map = self._run = self.submit = "its own"
        self._settings = {"rate": 3}

    def __call__(self, x: int) -> int:
        return x * self._settings["rate"]


def test_objects_that_are_called_keep_attributes_of_any_name_to_themselves() -> None:
    isolated = sojourn.isolated(Trainer())
    assert isolated(2) == 6
    assert isolated.map([1, 2], quiet=True) == [3, 6]
    assert isolated.submit(3).result(timeout=60) == 9

    def named(x: int) -> int:
        return x

    named.map, named.paper = "a map", "a paper"  # type: ignore[attr-defined]
    marked = sojourn.isolated(named)
    assert marked.map([1], quiet=True) == [1]
    assert marked.paper == "a paper"  # type: ignore[attr-defined]


def test_methods_of_every_kind_can_be_isolated() -> None:
    scale = Scale(3)
    assert scale.times(4) == 12
    assert Scale.times(scale, 5) == 15
    assert list(scale.steps()) == [3]
    assert Scale.kind(1) == ("Scale", 1)
    assert scale.plain(2) == 2
    assert sojourn.isolated(scale.undecorated)(4) == 7
    assert scale.times.receipt is Scale.times.receipt is not None


def module_level(x: int) -> tuple[int, str]:
    return x * 2, __name__


def test_a_function_of_an_importable_module_goes_by_name() -> None:
    assert sojourn.isolated(module_level)(4) == (8, __name__)


def test_a_function_of_a_module_that_workers_cannot_import_goes_by_value(tmp_path: Path) -> None:
    file = tmp_path / "loaded_by_hand.py"
    file.write_text("HALF = 0.5\ndef inner(x): return x * HALF\ndef outer(x): return inner(x)\n")
    module = _load(file)
    try:
        assert sojourn.isolated(module.outer)(4) == 2.0
    finally:
        del sys.modules[module.__name__]


def _load(file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    spec.loader.exec_module(module)
    return module


def test_an_argument_may_have_any_name() -> None:
    @sojourn.isolated
    def named(self: int, function: int) -> int:
        return self - function

    assert named(self=5, function=2) == 3
    assert named.submit(self=5, function=2).result(60) == 3
    assert asyncio.run(named.acall(self=5, function=2)) == 3


def test_what_cannot_be_isolated_is_refused_when_it_is_decorated() -> None:
    async def coroutine() -> None: ...

    with pytest.raises(TypeError, match="async def"):
        sojourn.isolated(coroutine)
    with pytest.raises(TypeError, match="above @isolated"):
        sojourn.isolated(classmethod(lambda cls: None))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="not int"):
        sojourn.isolated(3)  # type: ignore[call-overload]
    for wrong in ({"timeout": 0}, {"memory": "lots"}, {"device": "tpu"}, {"seed": -1}):
        with pytest.raises(ValueError):
            sojourn.isolated(len, **wrong)  # type: ignore[call-overload]


# -- what crosses ------------------------------------------------------------------------------


@pytest.mark.quick
def test_values_of_many_kinds_cross_both_ways() -> None:
    values = [
        None,
        "text",
        b"bytes",
        {"a": [1, 2.5, (3, {4})]},
        np.float32(1.5),
        np.array([], dtype=np.float64),
        np.array(["a", None], dtype=object),
        np.datetime64("2020-01-01"),
        Refused,
        bytearray(b"x" * 10_000),
    ]
    back = sojourn.isolated(lambda x: x)(values)
    for sent, received in zip(values, back, strict=True):
        assert type(received) is type(sent)
        np.testing.assert_array_equal(received, sent)
    assert back[8] is Refused


def test_large_arrays_keep_dtype_order_and_writability() -> None:
    frozen = np.arange(10_000)
    frozen.flags.writeable = False
    sent = {
        "plain": np.arange(30_000, dtype=np.float32).reshape(100, 300),
        "fortran": np.asfortranarray(np.random.rand(70, 80)),
        "strided": np.arange(20_000)[::2],
        "record": np.zeros(2_000, dtype=[("a", "i4"), ("b", "f8")]),
        "frozen": frozen,
    }

    def check(arrays: dict[str, Any]) -> tuple[dict[str, Any], bool]:
        arrays["plain"][0, 0] = 7  # its own copy: arguments may be changed
        return arrays, arrays["frozen"].flags.writeable

    received, frozen_was_writable = sojourn.isolated(check)(sent)
    assert sent["plain"][0, 0] == 0
    assert received["plain"][0, 0] == 7
    assert not frozen_was_writable
    for name, array in sent.items():
        np.testing.assert_array_equal(received[name].ravel()[1:], array.ravel()[1:])
        assert received[name].dtype == array.dtype
    assert received["fortran"].flags.f_contiguous


def test_a_result_outlives_its_worker_and_belongs_to_the_caller() -> None:
    result = sojourn.isolated(lambda: np.full(100_000, 3.0))()
    other = sojourn.isolated(lambda: np.full(100_000, 4.0))()
    result += 1
    assert (result == other).all()


def test_an_argument_that_cannot_travel_is_named() -> None:
    with pytest.raises(sojourn.InputError, match=r"argument 'lock' \(a lock\) of '<lambda>'"):
        sojourn.isolated(lambda a, lock: None)(1, lock=threading.Lock())


class Guarded:
    def __init__(self) -> None:
        self.rate = 0.1
        self.lock = threading.Lock()

    def fit(self) -> float:
        return self.rate

    @sojourn.isolated
    def fit_apart(self) -> float:
        return self.rate

    def __call__(self) -> float:
        return self.rate


def test_what_cannot_travel_of_an_object_is_named() -> None:
    trainer = Guarded()
    why = r"\(a Guarded, because of its 'lock'\)"
    with pytest.raises(sojourn.InputError, match=rf"^argument 1 {why} of 'str'"):
        sojourn.isolated(str)(trainer)
    for function in (trainer.fit, trainer, functools.partial(trainer.fit)):
        with pytest.raises(sojourn.InputError, match=rf"^the object {why} of "):
            sojourn.isolated(function)()
    with pytest.raises(sojourn.InputError, match=rf"^a bound argument {why} of 'fit_apart'"):
        trainer.fit_apart()


def test_a_result_that_cannot_travel_is_an_error_here() -> None:
    with pytest.raises(sojourn.InputError, match="the result, of type lock, cannot be sent back"):
        sojourn.isolated(lambda: threading.Lock())()


# -- errors ------------------------------------------------------------------------------------


@pytest.mark.quick
def test_a_variable_that_cannot_travel_is_named() -> None:
    rate, lock = 0.1, threading.Lock()

    def helper() -> float:
        with lock:
            return rate

    with pytest.raises(sojourn.InputError, match=r"^the variable 'lock' \(a lock\) of 'helper'"):
        sojourn.isolated(helper)()
    with pytest.raises(sojourn.InputError, match=r"variable 'helper' \(a function\) of 'outer'"):
        sojourn.isolated(lambda: helper() + rate, name="outer")()
    with pytest.raises(sojourn.InputError, match=r"^argument 1 \(a lock\) of 'len' cannot be sent"):
        sojourn.isolated(len)(lock)  # type: ignore[arg-type]


def test_objects_with_slots_cross_with_a_class_that_travels_by_value() -> None:
    @dataclasses.dataclass(slots=True)
    class Loss:
        value: float
        epoch: int = 0

    class Named(Loss):
        __slots__ = ("_kept", "name")

    class Private:
        __slots__ = ("__value",)

        def __init__(self, value: int) -> None:
            self.__value = value

        def get(self) -> int:
            return self.__value

    class Pair(NamedTuple):
        one: int
        other: int = 2

    @sojourn.isolated
    def report(given: Any) -> Any:
        assert not hasattr(given, "__dict__")
        return given, Loss(0.5), Private(3), Pair(1)

    named = Named(0.1)
    named.name = "first"
    given, made, private, pair = report(named)
    assert made == Loss(0.5)
    assert (type(pair), pair.other) == (Pair, 2)
    assert (type(given), given.value, given.name) == (Named, 0.1, "first")
    assert not hasattr(given, "_kept")
    assert private.get() == 3
    assert report(Private(4))[0].get() == 4


def test_an_error_keeps_its_type_its_attributes_and_its_traceback() -> None:
    def fail() -> None:
        raise Refused(404, "not there")

    with pytest.raises(Refused, match="404: not there") as caught:
        sojourn.isolated(fail)()
    assert caught.value.code == 404
    assert isinstance(caught.value.__cause__, sojourn.RemoteTraceback)
    assert 'raise Refused(404, "not there")' in caught.value.__cause__.text
    assert "engines" not in caught.value.__cause__.text


def test_an_error_class_made_on_the_spot_is_the_same_class_here() -> None:
    class Local(KeyError):
        pass

    def fail() -> None:
        raise Local("k")

    with pytest.raises(Local):
        sojourn.isolated(fail)()


def test_an_error_loses_only_what_cannot_travel() -> None:
    def fail() -> None:
        error = ValueError("locked")
        error.lock = threading.Lock()  # type: ignore[attr-defined]
        error.number = 3  # type: ignore[attr-defined]
        raise error

    with pytest.raises(ValueError, match="locked") as caught:
        sojourn.isolated(fail)()
    assert vars(caught.value) == {"number": 3}


def test_an_error_that_cannot_travel_at_all_is_described() -> None:
    def fail() -> None:
        raise ValueError("locked", threading.Lock())

    with pytest.raises(sojourn.EngineError, match=r"ValueError: .*locked"):
        sojourn.isolated(fail)()


@pytest.mark.skipif(sys.version_info < (3, 11), reason="there are no groups of errors")
def test_a_group_of_errors_keeps_its_errors() -> None:
    def fail() -> None:
        raise ExceptionGroup(  # noqa: F821
            "both", [Refused(3, "closed"), ExceptionGroup("inner", [KeyError(1)]),  # noqa: F821
                     ValueError("locked", threading.Lock())]
        )  # fmt: skip

    with pytest.raises(ExceptionGroup, match="both") as caught:  # noqa: F821
        sojourn.isolated(fail)()
    refused, inner, described = caught.value.exceptions
    assert isinstance(refused, Refused)
    assert (str(refused), refused.code) == ("3: closed", 3)
    assert isinstance(inner.exceptions[0], KeyError)
    assert isinstance(described, sojourn.EngineError)
    assert str(described).startswith("ValueError: ('locked'")


def test_an_error_whose_message_fails_is_not_replaced_by_that_failure() -> None:
    class Wordless(Exception):
        def __str__(self) -> str:
            raise KeyError("no words")

    @sojourn.isolated
    def fail() -> None:
        raise Wordless

    with pytest.raises(Wordless) as raised:
        fail()
    assert isinstance(raised.value.__cause__, RemoteTraceback)


def test_an_error_of_tensorflow_does_not_load_tensorflow_here() -> None:
    loaded_before = "tensorflow" in sys.modules

    def fail() -> None:
        import tensorflow as tf

        tf.raw_ops.Reshape(tensor=[1, 2], shape=[3])

    with pytest.raises(Exception, match="reshape") as caught:
        sojourn.isolated(fail)()
    assert ("tensorflow" in sys.modules) == loaded_before
    name = type(caught.value).__name__
    assert name == ("InvalidArgumentError" if loaded_before else "EngineError")


@pytest.mark.quick
def test_exits_and_crashes_do_not_take_the_caller_along() -> None:
    with pytest.raises(SystemExit) as caught:
        sojourn.isolated(sys.exit)(3)
    assert caught.value.code == 3

    def crash() -> None:
        os.kill(os.getpid(), signal.SIGKILL)
        threading.Event().wait()

    crash_here = sojourn.isolated(crash)
    with pytest.raises(sojourn.SessionBroken, match="killed by SIGKILL"):
        crash_here()
    assert crash_here.receipt is not None
    assert crash_here.receipt.clean


# -- limits ------------------------------------------------------------------------------------


@pytest.mark.quick
def test_a_call_that_takes_too_long_is_ended() -> None:
    @sojourn.isolated(timeout=0.2)
    def stuck() -> None:
        while True:
            pass

    with pytest.raises(sojourn.StepTimeout, match=r"'stuck' did not answer within 0\.2 s"):
        stuck()
    assert workers() == []
    assert stuck.receipt is not None
    assert stuck.receipt.clean


def test_more_memory_than_allowed_is_an_error_and_not_the_end_of_the_machine() -> None:
    @sojourn.isolated(memory="300MiB")
    def fill(count: int) -> float:
        return float(np.ones(count).sum())

    assert fill(1000) == 1000.0
    with pytest.raises(MemoryError):
        fill(10**9)


def test_a_gpu_that_is_not_there_is_an_error_that_says_what_is() -> None:
    # Hidden, so that this holds on a machine with one too.
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
    try:
        with pytest.raises(sojourn.DeviceError, match="there is no 'gpu' here: "):
            sojourn.isolated(lambda: 1, device="gpu")()
    finally:
        del os.environ["CUDA_VISIBLE_DEVICES"]


# -- output ------------------------------------------------------------------------------------


def test_what_is_printed_appears_here_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    def talk() -> None:
        for i in range(3):
            print("line", i)
        os.write(1, b"raw\n")
        sys.stderr.write("aside\n")
        print("no newline", end="")

    sojourn.isolated(talk)()
    shown = capsys.readouterr()
    assert shown.out == "line 0\nline 1\nline 2\nraw\nno newline"
    assert shown.err == "aside\n"


class Tee:
    """The least that `print` needs."""

    def write(self, text: str) -> int:
        return sys.__stdout__.write(text)


@pytest.mark.parametrize("stream", [None, Tee()])
def test_a_result_is_not_lost_to_what_a_function_prints_to(stream: Any) -> None:
    def replace() -> int:
        sys.stdout = stream
        print("hello")
        return 5

    assert sojourn.isolated(replace)() == 5


def test_output_is_shown_while_the_call_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen = tmp_path / "seen"

    class Watcher:
        def write(self, text: str) -> None:
            if "hello" in text:
                seen.touch()

        def flush(self) -> None: ...

    def wait_until_seen() -> bool:
        print("hello")
        for _ in range(2000):
            if seen.exists():
                return True
            threading.Event().wait(0.01)
        return False

    monkeypatch.setattr(sys, "stdout", Watcher())
    assert sojourn.isolated(wait_until_seen)()


# -- surroundings ------------------------------------------------------------------------------


def test_it_sees_the_folder_and_the_variables_of_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SOME_SETTING", "now")
    assert sojourn.isolated(lambda: (os.getcwd(), os.environ["SOME_SETTING"]))() == (
        str(tmp_path),
        "now",
    )


def test_what_it_started_ends_with_it() -> None:
    def start() -> int:
        import subprocess

        global _kept  # so that nothing ends it but the end of the worker
        _kept = subprocess.Popen(["sleep", "1000"])
        return _kept.pid

    pid = sojourn.isolated(start)()
    assert not Path(f"/proc/{pid}").exists()


def test_an_isolated_function_may_call_itself() -> None:
    @sojourn.isolated
    def factorial(n: int) -> int:
        # The worker starts a zygote of its own. TensorFlow is not needed for this.
        os.environ["SOJOURN_PRELOAD"] = "none"
        return 1 if n <= 1 else n * factorial(n - 1)

    assert factorial(3) == 6


def test_calls_on_several_threads_have_workers_of_their_own() -> None:
    pids: list[int] = []
    threads = [
        threading.Thread(target=lambda: pids.append(sojourn.isolated(os.getpid)()))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(pids)) == 4


# -- TensorFlow --------------------------------------------------------------------------------


def train(epochs: int) -> list[bytes]:
    import tensorflow as tf

    model = tf.keras.Sequential(
        [
            tf.keras.Input((8,)),
            tf.keras.layers.Dense(16, activation="relu"),
            tf.keras.layers.Dropout(0.5),
            tf.keras.layers.Dense(1),
        ]
    )
    model.compile("adam", "mse")
    x = np.random.rand(64, 8)
    model.fit(x, x.sum(axis=1), epochs=epochs, verbose=0)
    return [w.tobytes() for w in model.get_weights()]


def test_autograph_leaves_no_file_and_its_errors_name_the_users_line() -> None:
    loaded_before = "tensorflow" in sys.modules

    def traced(n: int) -> int:
        import tensorflow as tf

        @tf.function
        def halve(n: Any) -> Any:
            while n > 10:
                n = n // 2
            if n == 7:
                tf.undefined_name()
            return n

        return int(halve(tf.constant(n)))

    with pytest.raises(AttributeError, match="undefined_name") as caught:
        sojourn.isolated(traced)(100)
    assert "in halve  *" in str(caught.value.__cause__)
    assert ("tensorflow" in sys.modules) == loaded_before


def test_trainings_leave_the_callers_memory_where_it_was() -> None:
    isolated = sojourn.isolated(train)
    isolated(1)
    before = memory.of_process()
    for _ in range(2):
        isolated(1)
    after = memory.of_process()
    assert before is not None
    assert after is not None
    # Of what is shared with other programs, our share grows as they end.
    assert after.anonymous_bytes - before.anonymous_bytes < 5_000_000
    assert isolated.receipt is not None
    assert isolated.receipt.held_bytes > 10 * 2**20
    assert isolated.receipt.clean


def test_the_same_seed_gives_the_same_bits_also_among_noisy_neighbours() -> None:
    seeded = sojourn.isolated(train, seed=11, deterministic=True)
    stop = threading.Event()

    def noise() -> None:
        while not stop.is_set():
            sojourn.isolated(lambda: np.random.rand(200, 200) @ np.random.rand(200, 200))()

    alone = seeded(1)
    neighbour = threading.Thread(target=noise)
    neighbour.start()
    try:
        [among_others, also] = seeded.map([1, 1], workers=2)
    finally:
        stop.set()
        neighbour.join()
    assert alone == among_others == also


def test_the_seed_reaches_every_generator_and_unseeded_calls_differ() -> None:
    def draw() -> tuple[float, float, float]:
        import random

        import tensorflow as tf

        return random.random(), float(np.random.rand()), float(tf.random.uniform([]))

    seeded = sojourn.isolated(draw, seed=2**40)
    first, second, free, free_again = (
        seeded(),
        seeded(),
        *sojourn.isolated(_drawn(draw)).map([1, 2]),
    )
    assert first == second
    assert all(a != b for a, b in zip(free, free_again, strict=True))
    assert all(a != b for a, b in zip(first, free, strict=True))


def _drawn(draw: Any) -> Any:
    return lambda _: draw()


def test_a_thread_that_goes_on_after_the_main_thread_can_make_its_first_call() -> None:
    code = """
import threading
import sojourn

def work():
    threading.main_thread().join()
    print(sojourn.isolated(abs)(-3))

threading.Thread(target=work).start()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("3\n", "")
