"""One call of one of the user's functions, in the worker that was forked for it.

The result is sent back as an outcome: a value, an error of its own type, or a generator that stays
in the worker and is resumed item by item.
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
    """Calls one function once."""

    def __init__(self) -> None:
        self.signature = Signature()
        self._stream: Generator[Any, Any, Any] | None = None

    @classmethod
    def load(cls, load: Load, arrays: Arrays) -> CallingEngine:
        """Prepare the worker; the function itself arrives with the call."""
        return cls()

    def plan(self, feeds: Sequence[str], fetches: Sequence[str]) -> EnginePlan:
        raise InputError("an isolated function is called; it has no steps")

    def operations(self) -> dict[str, Operation]:
        return {"call": self._call, "resume": self._resume}

    def close(self) -> None:
        _flush()

    def _call(self, arguments: dict[str, Any], arrays: Arrays) -> tuple[Any, Arrays]:
        def work() -> Any:
            # The arguments are views of shared memory, and the function may keep them: copy.
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
            if self._stream is not None:  # its last item may have been impossible to send
                with contextlib.suppress(BaseException):
                    self._stream.close()
            # Raise these errors: a raised error is sent as a plain record, so that the caller need
            # not load TensorFlow, and a shortage of memory is reported as one.
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
    # Leave out the frames of this module, which mean nothing to the user.
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
        return outcome, ()  # the error cannot be pickled: send its description only


def _travelling(error: BaseException) -> BaseException | _Parts:
    """Return the error, or a stand-in that becomes the error when it is unpickled."""
    if _can_travel(error):
        return error
    args = error.args
    if isinstance(error, _GROUP):
        args = args[0], [_travelling_in_group(one) for one in error.exceptions]
    state = {key: value for key, value in vars(error).items() if _can_travel(value)}
    return _Parts(type(error), args, state)


def _travelling_in_group(error: BaseException) -> BaseException | _Parts:
    """Like `_travelling`, with a description in place of an error that cannot be sent at all."""
    travelling = _travelling(error)
    if _can_travel(travelling):
        return travelling
    return EngineError(f"{type(error).__name__}: {_words(error)}")


def _words(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # an error in `__str__` must not replace the error itself
        return "<its message cannot be read>"


def _can_travel(value: Any) -> bool:
    """Whether a value can be pickled, and unpickled without TensorFlow.

    Many errors pickle well and fail to unpickle: `__init__` takes other arguments than `args`.
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
    """The parts of an error, unpickled as that error without calling its `__init__`."""

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
    """Flush Python's and C's streams: printed output must be out before the answer is sent."""
    program.flush()
    ctypes.CDLL(None).fflush(None)
