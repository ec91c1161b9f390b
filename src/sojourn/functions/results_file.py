"""Results of a sweep in a file, from which a rerun continues.

The file has a header line, then one record for each result, appended and synced when the result
arrives. A truncated record, after `kill -9` or on a full disk, is detected by its checksum and
overwritten by the next one; a damaged record between others is skipped, whichever part of it is
damaged. Results are pickles: read only files that you trust.
"""

from __future__ import annotations

import fcntl
import io
import os
import pickle
import struct
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import cloudpickle
import msgspec

from sojourn.engines.code_serving import PROGRAM
from sojourn.errors import ResultsError

VERSION = 1
_MAGIC = b"sojourn results "
_HEADER_AT_MOST = 4096  # bytes of the header line
# the head of a record: length and checksum of the pickle after it, and the key of the item
_HEAD = struct.Struct("<QI32s")
_PICKLED = b"\x80\x05"  # how the pickle of each record begins: protocol 5
_CHUNK_BYTES = 2**16


class _About(msgspec.Struct, frozen=True):
    function: str


class ResultsFile:
    """The file of results of one function's sweeps. Open only while it is read or written."""

    def __init__(self, path: str, function: str) -> None:
        self.path = path
        self._header = b"%s%d %s\n" % (
            _MAGIC,
            VERSION,
            msgspec.json.encode(_About(function)),
        )
        self._function = function
        self._fd = -1
        self._end = 0  # of the last whole record

    def read(self) -> dict[bytes, list[Any]]:
        """Return the results by key, those of equal items in the order of their records."""
        if os.path.exists(self.path) and not os.path.isfile(self.path):  # open() of a pipe blocks
            what = "a folder" if os.path.isdir(self.path) else "no plain file"
            raise ResultsError(f"{self.path} is {what}; results= needs a file")
        if not os.path.isdir(folder := os.path.dirname(self.path)):
            raise ResultsError(f"there is no folder {folder} for the file of results= to be in")
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return {}
        try:
            return self._read(fd)
        finally:
            os.close(fd)

    @contextmanager
    def writing(self) -> Iterator[dict[bytes, list[Any]]]:
        """Lock the file within the block, so that `append` works; yields its results."""
        is_new, owner = not os.path.exists(self.path), os.getpid()
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ResultsError(f"{self.path} is in use by another sweep") from None
            results = self._read(fd)
            self._fd = fd
            if not self._end:
                self._add(self._header)
            if is_new:
                _sync_folder(os.path.dirname(self.path))
            yield results
        finally:
            self._fd = -1
            if os.getpid() == owner:
                fcntl.flock(fd, fcntl.LOCK_UN)  # a fork of this process may keep it open
            os.close(fd)

    def append(self, key: bytes, value: Any) -> None:
        """Append a result. It is on disk when this returns."""
        payload = _pickled(value)
        checksum = zlib.crc32(payload, zlib.crc32(key))
        self._add(_HEAD.pack(len(payload), checksum, key), payload)

    def _add(self, *parts: bytes) -> None:
        at = self._end
        os.ftruncate(self._fd, at)  # remove what an interrupted write left
        for part in parts:
            left = memoryview(part)
            while left:  # one call writes at most 2 GiB
                written = os.pwrite(self._fd, left, at)
                left, at = left[written:], at + written
        os.fsync(self._fd)
        self._end = at

    def _read(self, fd: int) -> dict[bytes, list[Any]]:
        size = os.fstat(fd).st_size
        self._end = self._check_header(os.pread(fd, _HEADER_AT_MOST, 0))
        results: dict[bytes, list[Any]] = {}
        at = self._end
        while at and at + _HEAD.size <= size:
            length, checksum, key = _HEAD.unpack(_read_all(fd, _HEAD.size, at))
            start = at + _HEAD.size
            payload = _read_all(fd, length, start) if length <= size - start else None
            if payload is not None and zlib.crc32(payload, zlib.crc32(key)) == checksum:
                results.setdefault(key, []).append(self._unpickled(payload))
                self._end = at = start + length
            else:
                at = _next_start(fd, at + 1, size)  # the length itself may be damaged
        return results

    def _check_header(self, start: bytes) -> int:
        """Return where the records begin; 0 if the header is incomplete. Refuses other files."""
        if self._header.startswith(start):
            return len(start) if start == self._header else 0
        line, newline, _ = start.partition(b"\n")
        if not newline or not line.startswith(_MAGIC):
            raise ResultsError(f"{self.path} is not a file of results")
        version, _, about = line.removeprefix(_MAGIC).partition(b" ")
        if version != b"%d" % VERSION:
            raise ResultsError(
                f"{self.path} has version {version.decode(errors='replace')} of the format; "
                f"this sojourn reads version {VERSION}"
            )
        try:
            function = msgspec.json.decode(about, type=_About).function
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise ResultsError(f"{self.path} is damaged: its first line cannot be read") from None
        if function != self._function:
            raise ResultsError(
                f"{self.path} has results of {function!r}, not of {self._function!r}"
            )
        return len(line) + 1

    def _unpickled(self, payload: bytearray) -> Any:
        try:
            return pickle.loads(payload)
        except Exception as error:
            raise ResultsError(
                f"a result in {self.path} cannot be read: {type(error).__name__}: {error}"
            ) from error


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickles classes of the main program with their names, since the next run defines its own."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, type) and _of_program(value.__qualname__) is value:
            return _class_of_program, (value.__qualname__, cloudpickle.dumps(value, protocol=5))
        return super().reducer_override(value)


def _pickled(value: Any) -> bytes:
    file = io.BytesIO()
    _Pickler(file, protocol=5).dump(value)
    return file.getvalue()


def _class_of_program(name: str, as_it_was: bytes) -> Any:
    found = _of_program(name)
    return found if isinstance(found, type) else pickle.loads(as_it_was)


def _of_program(name: str) -> Any:
    found: Any = sys.modules.get(PROGRAM)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found if getattr(found, "__module__", None) == PROGRAM else None


def _read_all(fd: int, length: int, at: int) -> bytearray:
    """Read this many bytes at an offset; one call reads at most 2 GiB."""
    data = bytearray(length)
    left = memoryview(data)
    while left and (count := os.preadv(fd, [left], at)):
        left, at = left[count:], at + count
    return data


def _next_start(fd: int, at: int, size: int) -> int:
    """Return the next offset at which a record may begin; the file's size if there is none."""
    place = at + _HEAD.size
    while place < size:
        chunk = _read_all(fd, min(_CHUNK_BYTES, size - place), place)
        found = chunk.find(_PICKLED)
        if found >= 0:
            return place + found - _HEAD.size
        place += max(1, len(chunk) - 1)  # the mark may begin in the last byte
    return size


def _sync_folder(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
