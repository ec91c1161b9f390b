"""The results file of one sweep: which items already have a result in it."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import FunctionType, ModuleType
from typing import Any

from sojourn.engines.code_capture import plain
from sojourn.functions.items import as_call, described, key
from sojourn.functions.options import Options
from sojourn.functions.results_file import ResultsFile
from sojourn.values import arguments

Item = tuple[Any, ...]


class Stored:
    """A results file as used by one sweep. Each of several equal items has its own result."""

    def __init__(self, path: Any, function: Callable[..., Any], options: Options) -> None:
        self.path = arguments.path("results", path)
        self._file = ResultsFile(self.path, _name(function))
        try:
            # The present values that a call depends on besides its item.
            self._context = (_bound(function), options.seed, options.deterministic)
        except Exception as error:
            raise TypeError(
                f"results= needs a function that can be recognised in another run, and what "
                f"{_name(function)} is bound to or has closed over cannot: {error}"
            ) from error
        self._found: dict[bytes, list[Any]] = {}
        self._used: Counter[bytes] = Counter()
        self._keys: dict[int, bytes] = {}  # of items without a result, as first seen

    def read(self) -> None:
        """Read the results in the file."""
        self._found = self._file.read()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Lock the file within the block, so that results can be added."""
        with self._file.writing() as self._found:
            yield

    def recall(self, index: int, item: Item) -> list[Any]:
        """Return the stored result of an item in a list, or an empty list. Later changes of the
        item do not matter."""
        known = self._keys.get(index) or self._key(item)
        place = self._used[known]
        found = self._found.get(known, [])[place : place + 1]
        self._used[known] += len(found)
        self._keys[index] = known
        if found:
            del self._keys[index]
        return found

    def add(self, index: int, value: Any) -> None:
        """Add the result of an item that had none. It is on disk when this returns."""
        known = self._keys.pop(index)
        self._used[known] += 1
        self._file.append(known, value)

    def _key(self, item: Item) -> bytes:
        try:
            return key(*as_call(item), self._context)
        except Exception as error:
            raise TypeError(
                f"results= needs items that can be recognised in another run, and "
                f"({described(item)}) cannot: {error}"
            ) from error


def _name(function: Callable[..., Any]) -> str:
    function = plain(function)
    name = getattr(function, "__qualname__", type(function).__qualname__)
    if "<lambda>" in name:
        raise TypeError("results= needs a function with a name, not a lambda")
    return f"{getattr(function, '__module__', None)}.{name}"


def _bound(function: Any) -> list[bytes]:
    """Return digests of the values bound to a function: the arguments of a partial, the object of
    a method, its closure, its defaults. Digests, because the values may be large and are part of
    the key of every item."""
    if isinstance(function, partial):
        return [key(function.args, function.keywords), *_bound(function.func)]
    if inspect.ismethod(function):
        return [key(function.__self__), *_bound(function.__func__)]
    if isinstance(function, FunctionType):
        kept = _closed_over(function)
        return [key(*kept)] if any(kept) else []
    return [] if inspect.isroutine(function) or inspect.isclass(function) else [key(function)]


def _closed_over(function: FunctionType, above: tuple[FunctionType, ...] = ()) -> tuple[Any, ...]:
    """Return the variables of a function's closure, by name, and its defaults. `above` are the
    functions whose closures led to it."""
    above = (*above, function)
    found: dict[str, Any] = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            value = cell.cell_contents
        except ValueError:
            continue  # the cell has no value yet
        if isinstance(value, ModuleType):
            value = value.__name__
        elif not isinstance(value, FunctionType):
            value = getattr(value, "__wrapped__", value)  # an isolated or cached function
        if isinstance(value, FunctionType) and "<lambda>" not in value.__qualname__:
            value = value not in above and (_name(value), *_closed_over(value, above))
        if name != "__class__":  # the class is known from the function's name
            found[name] = value
    return found, function.__defaults__, function.__kwdefaults__
