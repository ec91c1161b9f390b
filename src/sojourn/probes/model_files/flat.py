"""A small reader of flatbuffers, for untrusted files.

Every offset is checked before it is followed, and nothing is allocated by a length that the file
merely claims. The same table may be referred to any number of times, so its users count.
Whatever is wrong is a `ModelError`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from sojourn.errors import ModelError
from sojourn.probes.model_files.wire import shown


class Table:
    """One table: fields by their place in the schema, each of which may be missing."""

    __slots__ = ("_at", "_data", "_fields", "_size")

    def __init__(self, data: memoryview, at: int) -> None:
        self._data = data
        self._at = at
        self._fields = at - _read(data, "<i", at)
        self._size = _read(data, "<H", self._fields)
        if self._size < 4:
            raise ModelError("damaged: a table without fields")

    def number(self, place: int, form: str, default: int = 0) -> int:
        """A number of the given form."""
        at = self._place(place)
        return _read(self._data, form, at) if at else default

    def text(self, place: int) -> str:
        """A text, for people."""
        at, count = self._vector(place, 1)
        return shown(self._data[at : at + count])

    def numbers(self, place: int) -> tuple[int, ...] | None:
        """A vector of integers of 32 bits; `None` if there is none."""
        if not self._place(place):
            return None
        at, count = self._vector(place, 4)
        return struct.unpack_from(f"<{count}i", self._data, at)

    def length(self, place: int) -> int:
        """How many items a vector of any kind claims to have, as far as there is room for them."""
        return self._vector(place, 1)[1]

    def table(self, place: int) -> Table | None:
        """A table inside of this one."""
        at = self._place(place)
        return Table(self._data, at + _read(self._data, "<I", at)) if at else None

    def tables(self, place: int) -> Iterator[Table]:
        """A vector of tables."""
        at, count = self._vector(place, 4)
        for here in range(at, at + 4 * count, 4):
            yield Table(self._data, here + _read(self._data, "<I", here))

    def _place(self, place: int) -> int:
        where = 4 + 2 * place
        if where + 2 > self._size:
            return 0
        offset = _read(self._data, "<H", self._fields + where)
        return self._at + offset if offset else 0

    def _vector(self, place: int, item_bytes: int) -> tuple[int, int]:
        at = self._place(place)
        if not at:
            return 0, 0
        at += _read(self._data, "<I", at)
        count = _read(self._data, "<I", at)
        if count * item_bytes > len(self._data) - at - 4:
            raise ModelError(f"damaged: {count} items where {len(self._data) - at - 4} bytes are")
        return at + 4, count


def root(data: memoryview, identifier: bytes) -> Table:
    """The table that everything hangs from."""
    if bytes(data[4:8]) != identifier:
        raise ModelError(f"it does not begin with {identifier.decode()}")
    return Table(data, _read(data, "<I", 0))


def _read(data: memoryview, form: str, at: int) -> int:
    if at < 0:
        raise ModelError("damaged: an offset leads before its beginning")
    try:
        value: int = struct.unpack_from(form, data, at)[0]
    except struct.error:
        raise ModelError("damaged: an offset leads beyond its end") from None
    return value
