"""Which items of a sweep have a result in its file."""

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
    """A results file as one sweep sees it. Equal items have one result each."""

    def __init__(self, path: Any, function: Callable[..., Any], options: Options) -> None:
        self.path = arguments.path("results", path)
        self._file = ResultsFile(self.path, _name(function))
        try:
            # What a call depends on besides its item, as it is now.
            self._context = (_bound(function), options.seed, options.deterministic)
        except Exception as error:
            raise TypeError(
                f"results= needs a function that can be recognised in another run, and what "
                f"{_name(function)} is bound to or has closed over cannot: {error}"
            ) from error
        self._found: dict[bytes, list[Any]] = {}
        self._used: Counter[bytes] = Counter()
        self._keys: dict[int, bytes] = {}  # of items that have no result yet, as they were then

    def read(self) -> None:
        """Learn what is in the file."""
        self._found = self._file.read()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Within the block results can be added, and no other sweep adds any."""
        with self._file.writing() as self._found:
            yield

    def recall(self, index: int, item: Item) -> list[Any]:
        """The result of an item, alone in a list; an empty list if there is none. What changes of
        the item from now on does not matter."""
        known = self._keys.get(index) or self._key(item)
        place = self._used[known]
        found = self._found.get(known, [])[place : place + 1]
        self._used[known] += len(found)
        self._keys[index] = known
        if found:
            del self._keys[index]
        return found

    def add(self, index: int, value: Any) -> None:
        """Add the result of an item that had none. It is on the disk when this returns."""
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
    """What is bound to it: the arguments of a partial, the object of a method, what it has closed
    over, its defaults. Of each a digest: it goes into the key of every item, and may be large."""
    if isinstance(function, partial):
        return [key(function.args, function.keywords), *_bound(function.func)]
    if inspect.ismethod(function):
        return [key(function.__self__), *_bound(function.__func__)]
    if isinstance(function, FunctionType):
        kept = _closed_over(function)
        return [key(*kept)] if any(kept) else []
    return [] if inspect.isroutine(function) or inspect.isclass(function) else [key(function)]


def _closed_over(function: FunctionType, above: tuple[FunctionType, ...] = ()) -> tuple[Any, ...]:
    """What it has closed over, by name, and its defaults; `above` are those it is reached by."""
    above = (*above, function)
    found: dict[str, Any] = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            value = cell.cell_contents
        except ValueError:
            continue  # there is nothing in it yet
        if isinstance(value, ModuleType):
            value = value.__name__
        elif not isinstance(value, FunctionType):
            value = getattr(value, "__wrapped__", value)  # an isolated or a cached one
        if isinstance(value, FunctionType) and "<lambda>" not in value.__qualname__:
            value = value not in above and (_name(value), *_closed_over(value, above))
        if name != "__class__":  # its name tells
            found[name] = value
    return found, function.__defaults__, function.__kwdefaults__
