"""Fetch models' files to a node: from a URL, or from a parcel that a caller sent.

A parcel is a tar file, identified by its checksum. An agent that lacks one requests it from others.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import tarfile
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from sojourn.cluster.links import Link, NodeLost
from sojourn.cluster.storage import checksum_of, protocols
from sojourn.cluster.terms import AgentFacts, ModelSource
from sojourn.cluster.wire import words
from sojourn.errors import ModelError, SojournError

_CHUNK_BYTES = 16 * 2**20
_CHUNK_SECONDS = 60.0  # limit for a node to send or accept a chunk
_SENT_SECONDS = 600.0  # age at which a parcel without a registration is removed
SENT_TO = 2  # nodes, so that one of these may be lost


class Files:
    """The fetched files on this node, in a folder that is removed with the agent. Thread-safe."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._lock = threading.Lock()  # one model is fetched at a time
        self._storing = threading.Lock()  # one part is stored at a time, independently of fetches
        self._sent: dict[str, float] = {}  # arrival of parcels not yet registered

    def path_of(self, source: ModelSource, others: Sequence[AgentFacts]) -> str:
        """Return the local path of a model's files. Raises ModelError if they cannot be fetched."""
        if source.parcel:
            with self._lock:
                return self._unpacked(source, others)
        if "://" not in source.path:
            return source.path
        with self._lock:
            try:
                return self._downloaded(source.path)
            except (OSError, ImportError, ValueError) as error:
                raise ModelError(f"{source.path} cannot be read: {error}") from error

    def keep_only(self, registered: Callable[[], Mapping[str, ModelSource]]) -> None:
        """Remove the files that no registered model needs, once no transfer is under way."""
        with self._lock, self._storing:
            used = {_name(source) for source in registered().values()}
            since = time.monotonic() - _SENT_SECONDS
            self._sent = {n: at for n, at in self._sent.items() if n not in used and at > since}
            used |= self._sent.keys()
            for entry in os.listdir(self._folder):
                if entry.partition(".")[0].partition("-")[0] not in used:
                    path = f"{self._folder}/{entry}"
                    (shutil.rmtree if os.path.isdir(path) else os.unlink)(path)

    # -- from a URL --------------------------------------------------------------------------------

    def _downloaded(self, url: str) -> str:
        from fsspec.core import url_to_fs

        files, root = url_to_fs(url)
        if "file" in protocols(files):
            return str(root)
        root = root.rstrip("/")
        files.invalidate_cache()  # its cached listing may be stale
        found: dict[str, Any] = files.find(root, detail=True)
        if not found:
            raise FileNotFoundError("nothing is there")
        state = hashlib.sha256(repr(sorted(found.items())).encode()).hexdigest()[:16]
        target = f"{self._folder}/{_digest(url)}-{state}/{os.path.basename(root)}"
        if not os.path.exists(target):
            with _whole(os.path.dirname(target)) as fresh:
                for name, facts in found.items():
                    _download(files, name, facts, f"{fresh}/{_below(name, root)}")
        return target

    # -- from a parcel -----------------------------------------------------------------------------

    def store(self, digest: str, offset: int, total: int, data: np.ndarray | None) -> int:
        """Store a part of a parcel; return how many bytes are stored: all, if it is complete."""
        whole = self._parcel(digest)
        part = f"{whole}.sent"
        with self._storing:  # held to the end: two callers may send the same parcel
            self._sent[_digest(digest)] = time.monotonic()
            if os.path.exists(whole):
                return total
            with open(part, "ab") as file:
                have = file.tell()
                if data is not None and offset == have:
                    file.write(data.data)
                    have = file.tell()
            if have < total:
                return have
            try:
                if _checksum(part) != digest:
                    raise ModelError("a model that was sent along arrived damaged")
                os.replace(part, whole)
            except BaseException:
                os.unlink(part)
                raise
            return total

    def read(self, digest: str, offset: int) -> tuple[int, np.ndarray]:
        """Return the parcel's total size and a part of it; the size is -1 if the parcel is not
        here."""
        try:
            with open(self._parcel(digest), "rb") as file:
                total = os.fstat(file.fileno()).st_size
                return total, np.frombuffer(os.pread(file.fileno(), _CHUNK_BYTES, offset), np.uint8)
        except FileNotFoundError:
            return -1, np.empty(0, np.uint8)

    async def take(self, ask: words.SendParcel, arrays: Sequence[np.ndarray]) -> words.ParcelFacts:
        data = arrays[0] if arrays else None
        have = await asyncio.to_thread(self.store, ask.digest, ask.offset, ask.total, data)
        return words.ParcelFacts(have)

    async def give(self, ask: words.FetchParcel) -> tuple[words.ParcelFacts, list[np.ndarray]]:
        have, data = await asyncio.to_thread(self.read, ask.digest, ask.offset)
        return words.ParcelFacts(have), [data]

    def _parcel(self, digest: str) -> str:
        return f"{self._folder}/{_digest(digest)}.tar"

    def _unpacked(self, source: ModelSource, others: Sequence[AgentFacts]) -> str:
        folder = f"{self._folder}/{_digest(source.parcel)}"
        if not os.path.exists(folder):
            if not os.path.exists(self._parcel(source.parcel)):
                self._fetch(source, others)
            with _whole(folder) as fresh, tarfile.open(self._parcel(source.parcel)) as parcel:
                parcel.extractall(fresh, filter="data")
        return f"{folder}/{source.path}"

    def _fetch(self, source: ModelSource, others: Sequence[AgentFacts]) -> None:
        for facts in others:
            link = Link(facts)
            try:
                with _whole(self._parcel(source.parcel)) as fresh:
                    _pull(link, source.parcel, fresh)
                return
            except (SojournError, OSError):
                pass  # another agent may have it
            finally:
                link.cut()
        raise ModelError(
            f"{source.name!r} was sent along, and no node has its files any more: register it again"
        )


def pack(path: str) -> tuple[str, str]:
    """Pack the files of a model; return the parcel's path, which the caller removes, and its
    checksum."""
    fd, parcel = tempfile.mkstemp(prefix="sojourn-parcel-")
    try:
        # Links are replaced by their targets: on another node they would lead elsewhere.
        with (
            os.fdopen(fd, "wb") as file,
            tarfile.open(fileobj=file, mode="w", dereference=True) as packed,
        ):
            packed.add(path, os.path.basename(path), filter=_plain)
        return parcel, _checksum(parcel)
    except BaseException:
        os.unlink(parcel)
        raise


def send(parcel: str, digest: str, links: Sequence[Link]) -> None:
    """Send a parcel to up to `SENT_TO` nodes, at least one."""
    total, sent = os.path.getsize(parcel), 0
    failure: Exception | None = None
    for link in links:
        if sent == SENT_TO:
            break
        try:
            _push(link, parcel, digest, total)
            sent += 1
        except (NodeLost, TimeoutError) as error:
            failure = error
    if not sent:
        raise failure or NodeLost("there is no node to send a model to")


def _push(link: Link, parcel: str, digest: str, total: int) -> None:
    reply, _ = link.ask(words.SendParcel(digest, 0, total), (), _soon())
    with open(parcel, "rb") as file:
        while reply.have < total:
            data = np.frombuffer(os.pread(file.fileno(), _CHUNK_BYTES, reply.have), np.uint8)
            reply, _ = link.ask(words.SendParcel(digest, reply.have, total), [data], _soon())


def _pull(link: Link, digest: str, target: str) -> None:
    with open(target, "wb") as file:
        while True:
            reply, arrays = link.ask(words.FetchParcel(digest, file.tell()), (), _soon())
            if reply.have < 0:
                raise FileNotFoundError(digest)
            file.write(arrays[0].data)
            if file.tell() >= reply.have:
                break
    if _checksum(target) != digest:
        raise ModelError("a model that was sent along arrived damaged")


def _soon() -> float:
    return time.monotonic() + _CHUNK_SECONDS


@contextmanager
def _whole(target: str) -> Iterator[str]:
    """Yield a path that is renamed to the target on success, and removed otherwise."""
    fresh = f"{target}.part"
    shutil.rmtree(fresh, ignore_errors=True)
    try:
        yield fresh
        os.rename(fresh, target)
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        if os.path.isfile(fresh):
            os.unlink(fresh)
        raise


def _download(files: Any, name: str, facts: Any, target: str) -> None:
    os.makedirs(os.path.dirname(target), exist_ok=True)
    files.get_file(name, target)
    if os.path.getsize(target) != facts["size"]:
        raise OSError(f"{name} was changed while it was read")


def _below(name: str, root: str) -> str:
    """Return a file's path below the root's folder. The listing is not trusted."""
    rest = name.lstrip("/").removeprefix(root.lstrip("/")).lstrip("/")
    if ".." in rest.split("/"):
        raise ValueError(f"{name} is not below {root}")
    base = os.path.basename(root)
    return f"{base}/{rest}" if rest else base


def _plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """Remove owners and times, so that the same content gives the same parcel."""
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mtime = 0
    return entry


def _name(source: ModelSource) -> str:
    return _digest(source.parcel or source.path)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _checksum(path: str) -> str:
    with open(path, "rb") as file:
        return checksum_of(file)
