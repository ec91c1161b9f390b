"""One call of one function of the user's, in the worker that was forked for it.

Whatever comes of it goes back as an outcome: a value, an error of its own type, or a generator
that stays here and is resumed item by item.
"""

from __future__ import annotations

import builtins
import contextlib
import ctypes
import inspect
import io
import pickle
import traceback
from collections.abc import Callable, Generator, Sequence
from typing import Any

from sojourn import program
from sojourn.engines import code_serving, parcels, shortage
from sojourn.engines.base import Arrays, EnginePlan, Operation
from sojourn.errors import EngineError, InputError
from sojourn.kinds import Load
from sojourn.values import Signature
from sojourn.values.texts import sendable

VALUE, STREAM, STREAM_ENDED, ERROR = "value", "stream", "stream-ended", "error"
NEXT, SEND, THROW, CLOSE = "next", "send", "throw", "close"
_GROUP = getattr(builtins, "BaseExceptionGroup", ())  # Python 3.11


class CallingEngine:
    """Calls a function, once."""

    def __init__(self) -> None:
        self.signature = Signature()
        self._stream: Generator[Any, Any, Any] | None = None

    @classmethod
    def load(cls, load: Load, arrays: Arrays) -> CallingEngine:
        """Prepare the worker for the function; it comes with the call."""
        return cls()

    def plan(self, feeds: Sequence[str], fetches: Sequence[str]) -> EnginePlan:
        raise InputError("an isolated function is called; it has no steps")

    def operations(self) -> dict[str, Operation]:
        return {"call": self._call, "resume": self._resume}

    def close(self) -> None:
        _flush()

    def _call(self, arguments: dict[str, Any], arrays: Arrays) -> tuple[Any, Arrays]:
        def work() -> Any:
            # The function may keep its arguments, and these are views of shared memory: copy.
            code_serving.install(arrays[0])
            function, args, kwargs = parcels.unpack([array.copy() for array in arrays[1:]])
            return function(*args, **kwargs)

        return self._outcome(work)

    def _resume(self, arguments: dict[str, Any], arrays: Arrays) -> tuple[Any, Arrays]:
        stream = self._stream
        assert stream is not None

        def work() -> Any:
            how = arguments["how"]
            if how == NEXT:
                return next(stream)
            if how == CLOSE:
                return stream.close()
            given = parcels.unpack([array.copy() for array in arrays])
            return stream.send(given) if how == SEND else stream.throw(given)

        return self._outcome(work, resumed=True)

    def _outcome(self, work: Callable[[], Any], resumed: bool = False) -> tuple[Any, Arrays]:
        kind = VALUE
        try:
            try:
                value = work()
            except StopIteration as end:
                if not resumed:
                    raise
                kind, value = STREAM_ENDED, end.value
            if inspect.isgenerator(value) and not resumed:
                self._stream = value
                return {"kind": STREAM}, ()
            return {"kind": kind}, _packed(value)
        except BaseException as error:
            if isinstance(error, MemoryError):
                shortage.relieve(error)
            if self._stream is not None:  # it may wait for an item that could not be sent
                with contextlib.suppress(BaseException):
                    self._stream.close()
            # It crosses as a plain record: the caller need not load TensorFlow, and a shortage of
            # memory is reported as one.
            if _is_tensorflows(error) or shortage.is_shortage(error):
                raise
            return _error(error)
        finally:
            _flush()


def _packed(value: Any) -> Arrays:
    try:
        return parcels.pack(value)
    except MemoryError:
        raise
    except Exception as error:
        raise InputError(
            f"the result, of type {type(value).__name__}, cannot be sent back: {error}"
        ) from error


def _error(error: BaseException) -> tuple[Any, Arrays]:
    # Without the frames of this module, which say nothing to the user.
    inner = error.__traceback__
    while inner is not None and inner.tb_frame.f_code.co_filename == __file__:
        inner = inner.tb_next
    outcome = {
        "kind": ERROR,
        "message": sendable(f"{type(error).__name__}: {_words(error)}"),
        "traceback": sendable(
            "".join(traceback.format_exception(type(error), error, inner)).rstrip()
        ),
    }
    try:
        return outcome, parcels.pack(_travelling(error))
    except Exception:
        return outcome, ()  # then the description must do


def _travelling(error: BaseException) -> BaseException | _Parts:
    """The error, or what turns into it when it is unpickled."""
    if _can_travel(error):
        return error
    args = error.args
    if isinstance(error, _GROUP):
        args = args[0], [_travelling_in_group(one) for one in error.exceptions]
    state = {key: value for key, value in vars(error).items() if _can_travel(value)}
    return _Parts(type(error), args, state)


def _travelling_in_group(error: BaseException) -> BaseException | _Parts:
    """The same; of one that cannot travel at all, its description."""
    travelling = _travelling(error)
    if _can_travel(travelling):
        return travelling
    return EngineError(f"{type(error).__name__}: {_words(error)}")


def _words(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # its own code is wrong, and must not take its place
        return "<its message cannot be read>"


def _can_travel(value: Any) -> bool:
    """Whether it can be pickled, unpickled, and that without TensorFlow.

    Many errors pickle well and fail to unpickle: their class wants other arguments than it keeps.
    """
    try:
        pickled, *buffers = parcels.pack(value)
        _WithoutFramework(io.BytesIO(pickled.data), buffers=buffers).load()
    except Exception:
        return False
    return True


class _WithoutFramework(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if module.partition(".")[0] in ("tensorflow", "keras", "tf_keras"):
            raise pickle.UnpicklingError("this would load TensorFlow in the caller's process")
        return super().find_class(module, name)


class _Parts:
    """An error that turns into itself when it is unpickled, without calling its `__init__`."""

    def __init__(
        self, kind: type[BaseException], args: tuple[Any, ...], state: dict[str, Any]
    ) -> None:
        self._parts = kind, args, state

    def __reduce__(self) -> tuple[Any, ...]:
        return _assembled, self._parts


def _assembled(
    kind: type[BaseException], args: tuple[Any, ...], state: dict[str, Any]
) -> BaseException:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error


def _is_tensorflows(error: BaseException) -> bool:
    return any(kind.__module__.partition(".")[0] == "tensorflow" for kind in type(error).__mro__)


def _flush() -> None:
    """What was printed so far must be there before the answer is, C's own streams included."""
    program.flush()
    ctypes.CDLL(None).fflush(None)
