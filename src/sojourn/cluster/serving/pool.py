"""The models of a cluster in the form a server needs: a pool whose sessions may be on any node.

Leases are kept briefly after their last request, so that most requests cost one message. A thread
polls the cluster's status, so nothing here blocks a server's loop.
"""

from __future__ import annotations

import hashlib
import logging
import os
import queue
import re
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from types import TracebackType
from typing import Any

from sojourn.cluster.handle import Cluster
from sojourn.cluster.lease import RemoteLease
from sojourn.errors import ModelError, SessionClosed
from sojourn.pool.decisions.status import CopyStatus, ModelStatus, PoolStatus
from sojourn.process.aside import aside
from sojourn.values import Place, Receipt

IDLE_SECONDS = 2.0  # a lease is returned after this, so that its copy may be evicted
_LOOK_SECONDS = 0.5
_EVICT_SECONDS = 30.0
_KEY = re.compile(r"(.+):([1-9][0-9]*)")
_STATES = {"open": "resident", "opening": "opening", "leaving": "closing"}
_log = logging.getLogger("sojourn.service")


class ClusterPool:
    """A server's pool on a cluster, until `close()`. Its owner closes the connection to the
    cluster."""

    def __init__(self, everywhere: Cluster) -> None:
        self._everywhere = everywhere
        self._lock = threading.Lock()
        self._ours: dict[str, dict[int, str]] = {}  # by name and version: the cluster's key
        self._copies: dict[str, int] = {}
        self._idle: dict[str, list[tuple[RemoteLease, float]]] = {}
        self._status: Mapping[str, Any] = {"nodes": [], "models": [], "marks": {}}
        self._orders: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self._is_over = threading.Event()
        self.on_receipt: list[Callable[[str, Receipt], None]] = []  # nodes send no receipts
        self._look()
        self._thread = threading.Thread(target=self._run, name="sojourn-cluster-pool", daemon=True)
        self._thread.start()

    @property
    def _driver(self) -> ClusterPool:
        return self

    def close(self) -> None:
        """Return all leases. May be called twice."""
        self._is_over.set()
        self._thread.join()
        for lease in self._take_idle(time.monotonic() + IDLE_SECONDS):
            lease.close()

    def require_open(self) -> None:
        if self._is_over.is_set():
            raise SessionClosed("the pool of the cluster's models was closed")

    # -- models ----------------------------------------------------------------------------------

    def register(
        self, name: str, model: Any, *, version: int | None = None, **options: Any
    ) -> None:
        """Register a version, or become one of its holders. The same files with the same rules are
        one model, whichever front registers first; others get a separate key."""
        number = version or 1
        key, stamp = _key_of(name, number), _stamp(os.fspath(model), options)
        try:
            self._everywhere.hold(key, model, stamp=stamp, **options)
        except ModelError:
            key = f"{key}~{stamp[:8]}"
            self._everywhere.hold(key, model, stamp=stamp, **options)
        with self._lock:
            self._ours.setdefault(name, {})[number] = key
            self._copies[key] = options.get("copies", 1)

    def unregister(
        self, name: str, *, version: int | None = None, timeout: float | None = None
    ) -> bool:
        """Release a version; it is removed from the nodes with the last front that holds it."""
        key = self._key(name, version)
        with self._lock:
            versions = self._ours.get(name, {})
            for number in [n for n, known in versions.items() if known == key]:
                del versions[number]
            if not versions:
                self._ours.pop(name, None)
        self._give_back(key)
        self._everywhere.unregister(key)
        self._look()
        return True

    def preload(
        self, *names: str, version: int | None = None, timeout: float | None = None
    ) -> None:
        """Open these models on some node."""
        for name in names:
            self._everywhere.lease(self._key(name, version), timeout=timeout).close()

    def evict(self, name: str, *, timeout: float | None = None, version: int | None = None) -> bool:
        """Close the copies of a model once they are not in use."""
        key = self._key(name, version)
        self._give_back(key)
        seconds = _EVICT_SECONDS if timeout is None else timeout
        gone = self._everywhere._control.evict(key, seconds)
        self._look()
        return gone

    def pin(self, name: str, pinned: bool = True, *, version: int | None = None) -> None:
        """Set whether a model is open all the time. Applied asynchronously."""
        key = self._key(name, version)
        self._orders.put(partial(self._everywhere._control.pin, key, pinned))

    def keep(self, name: str, seconds: float | None, *, version: int | None = None) -> None:
        """Set how long idle copies of a model stay. Applied asynchronously."""
        key = self._key(name, version)
        if seconds is not None and seconds == float("inf"):
            seconds = None
        self._orders.put(partial(self._everywhere._control.keep, key, seconds))

    def _key(self, name: str, version: int | None) -> str:
        with self._lock:
            ours = self._ours.get(name)
            if ours:
                number = max(ours) if version is None else version
                if number in ours:
                    return ours[number]
        number = version or self.latest(name) or 1
        return _key_of(name, number)

    # -- lookups -----------------------------------------------------------------------------------

    def names(self) -> tuple[str, ...]:
        with self._lock:
            ours = tuple(self._ours)
        return tuple(dict.fromkeys((*ours, *self._others())))

    def versions(self, name: str) -> tuple[int, ...]:
        with self._lock:
            ours = self._ours.get(name)
            if ours:
                return tuple(sorted(ours))
        return tuple(sorted(self._others().get(name, ())))

    def latest(self, name: str) -> int | None:
        return max(self.versions(name), default=None)

    def registration(self, name: str, version: int | None = None) -> str | None:
        """Identify the registration of a version, by default the latest; None if no such version
        exists."""
        there = self.versions(name)
        number = max(there, default=None) if version is None else version
        if number not in there:
            return None
        key = self._key(name, number)
        return f"{key} {self._status['marks'].get(key)}"

    def copies(self, name: str, version: int | None = None) -> int:
        """Return how many requests for a model one front runs concurrently."""
        return max(1, self._copies.get(self._key(name, version), 1))

    def _others(self) -> dict[str, list[int]]:
        """Return the models that other programs have registered with the cluster."""
        found: dict[str, list[int]] = {}
        for key in self._status["models"]:
            if "#" not in key and "~" not in key:  # keys that fronts use internally
                name, version = _parsed(key)
                found.setdefault(name, []).append(version)
        return found

    def stats(self) -> PoolStatus:
        """Return the status of all nodes together, as of the last poll."""
        nodes = self._status["nodes"]
        copies = [
            CopyStatus(
                name=f"{copy['model']} on {node['node']}",
                model=_named(copy["model"])[0],
                version=_named(copy["model"])[1],
                slot=0,
                generation=0,
                state="leased" if copy["leases"] else _STATES[copy["state"]],
                bytes=copy["bytes"],
                runs=copy["runs"],
                changed=False,
                holders=(),
                device=node["node"],
                pinned=copy["pinned"],
            )
            for node in nodes
            for copy in node["copies"]
        ]
        return PoolStatus(
            charged_bytes=sum(node["held_bytes"] for node in nodes),
            limit_bytes=sum(node["budget_bytes"] for node in nodes),
            leased=sum(copy.state == "leased" for copy in copies),
            idle=sum(copy.state == "resident" for copy in copies),
            waiting=0,
            opening=sum(copy.state == "opening" for copy in copies),
            leaving=sum(copy.state == "closing" for copy in copies),
            copies=tuple(copies),
            models=tuple(self._models(copies)),
        )

    def _models(self, copies: list[CopyStatus]) -> list[ModelStatus]:
        found = []
        for name in self.names():
            for version in self.versions(name):
                here = [c for c in copies if (c.model, c.version) == (name, version)]
                is_latest = version == self.latest(name)
                leased = sum(copy.state == "leased" for copy in here)
                found.append(ModelStatus(name, version, is_latest, "serving", len(here), leased, 0))
        return found

    # -- leases ----------------------------------------------------------------------------------

    def _leasing(
        self, name: str, version: int | None, timeout: float | None, place: Place
    ) -> _Leasing:
        return _Leasing(self, self._key(name, version), timeout, place)

    def lease(self, key: str, timeout: float | None, place: Place) -> RemoteLease:
        """Take a new lease. It does not repeat steps lost with a node: the server repeats or
        reports them."""
        return self._everywhere._lease(key, timeout, place, repeats=False)

    def kept(self, key: str) -> RemoteLease | None:
        """Return a recently used lease that can still be used."""
        mark = self._status["marks"].get(key)
        with self._lock:
            idle = self._idle.get(key, [])
            while idle:
                lease, _ = idle.pop()
                if lease.mark == mark and lease.is_active and lease.link.is_usable:
                    return lease
                self._orders.put(lease.close)  # of an earlier model, or its node is lost
        return None

    def put_back(self, key: str, lease: RemoteLease) -> None:
        with self._lock:
            self._idle.setdefault(key, []).append((lease, time.monotonic()))

    def _give_back(self, key: str) -> None:
        with self._lock:
            idle = self._idle.pop(key, [])
        for lease, _ in idle:
            lease.close()

    def _take_idle(self, now: float) -> list[RemoteLease]:
        """Remove and return the leases that were not used for `IDLE_SECONDS`."""
        found: list[RemoteLease] = []
        with self._lock:
            for key, leases in list(self._idle.items()):
                old = [lease for lease, since in leases if now - since >= IDLE_SECONDS]
                found += old
                rest = [kept for kept in leases if kept[0] not in old]
                if rest:
                    self._idle[key] = rest
                else:
                    del self._idle[key]
        return found

    # -- on its thread -----------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._is_over.is_set():
            try:
                order = self._orders.get(timeout=_LOOK_SECONDS)
                order()
            except queue.Empty:
                self._look()
            except Exception as error:
                _log.warning("the cluster: %s", error)
            for lease in self._take_idle(time.monotonic()):
                lease.close()

    def _look(self) -> None:
        try:
            self._status = self._everywhere.status()
        except Exception as error:  # the controller may be restarting
            _log.debug("the cluster does not say how it is: %s", error)


class _Leasing:
    """A session on some node, for one request or batch."""

    def __init__(self, pool: ClusterPool, key: str, timeout: float | None, place: Place) -> None:
        self._pool, self._key, self._timeout, self._place = pool, key, timeout, place
        self._lease: RemoteLease | None = None

    async def __aenter__(self) -> RemoteLease:
        lease = self._pool.kept(self._key)
        if lease is None:
            take = partial(self._pool.lease, self._key, self._timeout, self._place)
            lease = await aside(take, RemoteLease.close)
        self._lease = lease
        return lease

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        lease = self._lease
        assert lease is not None
        if lease.is_active:
            self._pool.put_back(self._key, lease)


def _key_of(name: str, version: int) -> str:
    """Return the cluster's key for a version of a model: "resnet", "resnet:2"."""
    return name if version == 1 else f"{name}:{version}"


def _parsed(key: str) -> tuple[str, int]:
    """Return the name and version in a key of the cluster."""
    match = _KEY.fullmatch(key)
    return (key, 1) if match is None else (match[1], int(match[2]))


def _named(key: str) -> tuple[str, int]:
    """Return the name and version in a key that may have a front's stamp."""
    return _parsed(key.partition("~")[0])


def _stamp(path: str, options: Mapping[str, Any]) -> str:
    """Return a stamp that distinguishes files and rules from others under the same name."""
    digest = hashlib.sha256(repr(sorted(options.items())).encode())
    paths = [path]
    for folder, folders, names in os.walk(path):
        folders.sort()
        paths += (os.path.join(folder, name) for name in sorted(names))
    for one in paths:
        facts = os.stat(one)
        digest.update(f"{one} {facts.st_size} {facts.st_mtime_ns}".encode())
    return digest.hexdigest()
