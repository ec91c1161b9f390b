"""The handle of a pool that users hold: many models under one memory budget."""

from __future__ import annotations

import math
import os
import sys
import threading
import warnings
import weakref
from collections.abc import Iterable, Sequence
from functools import partial
from types import CodeType
from typing import TYPE_CHECKING, Any, NoReturn

from sojourn.pool.decisions.status import PoolStatus
from sojourn.pool.decisions.terms import Holder, Model, Policy
from sojourn.pool.driver import Driver, MakeModel, Switch, Wish
from sojourn.pool.hands import Source
from sojourn.pool.keeper import Keeper
from sojourn.pool.leasing import PoolLease, here, this_thread
from sojourn.pool.metrics import families
from sojourn.pool.options import ModelOptions, OpenOptions, check
from sojourn.pool.parking import Parking
from sojourn.process import exits, interrupts
from sojourn.process.deadlines import deadline_after
from sojourn.session.metrics import others as others_with_metrics
from sojourn.session.opening import Blueprint
from sojourn.values import Place, arguments, caller

if TYPE_CHECKING:
    from typing import Unpack

    from sojourn.pool.aio import AsyncLease

CLOSE_SECONDS = 30.0
_BASE_BYTES = 64 * 2**20  # generous: what a worker holds before it loads its model


class Pool:
    """Sessions of many models under one memory budget. Close it by `close()`, best by `with`.

    `memory`, such as `"8GiB"`, is what all sessions together may hold, on the host and on devices;
    without it there is no limit. A session that is not used for `idle_seconds` is closed.
    `max_sessions` limits their number. `devices`, such as `["gpu:0", "gpu:1"]`, are filled evenly.
    A lease that is held for longer than `lease_warning_seconds` is reported as `lease.overdue`.
    Sessions whose variables changed are parked in a private folder below `parking_folder` (the
    folder for temporary files) before they are closed.

    `spares` is the number of spare workers to keep ready, if there is room for them: workers in
    which TensorFlow has run before, so that opening a model takes less than half the time. They are
    charged to the budget, and are the first to be closed when room is needed.
    """

    def __init__(
        self,
        memory: int | str | None = None,
        *,
        devices: Sequence[str] = (),
        idle_seconds: float | None = 300.0,
        max_sessions: int | None = None,
        lease_warning_seconds: float | None = None,
        parking_folder: str | os.PathLike[str] | None = None,
        spares: int = 0,
    ) -> None:
        policy = Policy(
            limit_bytes=None if memory is None else arguments.memory("memory", memory),
            max_sessions=max_sessions,
            idle_seconds=idle_seconds,
            devices=_devices(devices),
            spares=spares,
        )
        if lease_warning_seconds is not None:
            arguments.seconds("lease_warning_seconds", lease_warning_seconds)
        folder = None
        if parking_folder is not None:
            folder = arguments.path("parking_folder", parking_folder)
        self._driver = driver = Driver(policy, caller(), Parking(folder))
        self._keeper = Keeper(driver, lease_warning_seconds)
        self._finalizer = weakref.finalize(self, _forgotten, driver, self._keeper)
        self._finalizer.atexit = False  # at exit, see below
        _open_pools[driver] = self._keeper
        if spares:
            driver.start_keeper()
            driver.tell(lambda scheduler, now: scheduler.on_timer(now))

    def register(
        self,
        name: str,
        model: Any,
        *,
        version: int | None = None,
        **options: Unpack[ModelOptions],
    ) -> None:
        """Register a model under a name. It is opened with its first lease.

        A session is shared by all its holders, and up to `copies` are opened when it is busy;
        with `exclusive` each copy has one holder at a time, as a training loop needs it. A
        `pinned` one is never closed for others; `keep_seconds` replaces the pool's idle_seconds.
        `memory` is reserved before opening and is the most a copy may allocate. After `max_runs`
        steps, or once it has grown by `max_growth` bytes, a copy is replaced by a fresh one. All
        other options are those of `sojourn.open`. A live model is packed as it is now.

        With `version` (1 by default) several versions of a name can be registered; a lease gets
        the highest unless it asks for one.
        """
        make = _maker(name, model, caller(), dict(options))
        self._driver.register(make, name, _version(version))

    def update(
        self,
        name: str,
        model: Any,
        *,
        version: int | None = None,
        keep_old: bool = False,
        ready_seconds: float | None = None,
        **options: Unpack[ModelOptions],
    ) -> int:
        """Replace a model by a new version, and return its number; options as for `register`.

        The new version is opened while the old one serves. When it is ready, new leases get
        it, and the old one is closed once its leases have been given back; with `keep_old` it
        stays, for leases that ask for its version. If the new one cannot be opened, is not ready
        within `ready_seconds`, or only when a newer one serves already, this raises an error, and
        the old one, or the newer one, continues to serve.
        """
        place = caller()
        wish = Wish(name, this_thread(place), self, _version(version))
        make = _maker(name, model, place, dict(options))
        switch = Switch(
            self._driver, make, wish, arguments.timeout(ready_seconds, "ready_seconds"), keep_old
        )
        interrupts.to_the_end(switch.run, switch.hurry)
        return switch.version

    def unregister(
        self, name: str, *, version: int | None = None, timeout: float | None = None
    ) -> bool:
        """Remove a model, or one version of it. Its name can then be registered again.

        Idle copies are closed now, leased ones once they are given back; requests that wait for
        it are refused. Returns True when the idle copies are closed, False if that takes longer
        than `timeout` seconds.
        """
        arguments.text("a model's name", name)
        return self._driver.unregister(name, _version(version), arguments.timeout(timeout))

    def lease(
        self, name: str, *, timeout: float | None = None, version: int | None = None
    ) -> PoolLease:
        """Lease a session of this model, for a `with` block. Opens it if necessary.

        Waits for at most `timeout` seconds; then PoolTimeout or BudgetExceeded name the holders.
        """
        frame = sys._getframe(1)
        code = frame.f_code
        try:  # most leases are taken by a line that has taken one before
            holder = here.holders[id(code), frame.f_lasti][0]
        except KeyError:
            holder = _new_holder(code, frame.f_lasti)
        if type(name) is not str:
            arguments.text("a model's name", name)
        if version is not None:
            version = _version(version)
        if timeout is not None:
            timeout = arguments.timeout(timeout)
        lease = self._driver.at_door(name, version, holder, self)
        if lease is not None:
            return lease
        return self._driver.lease(Wish(name, holder, self, version), timeout)

    def alease(
        self, name: str, *, timeout: float | None = None, version: int | None = None
    ) -> AsyncLease:
        """Lease a session in asyncio: `async with pool.alease(name) as session`."""
        arguments.text("a model's name", name)
        return self._leasing(name, _version(version), arguments.timeout(timeout), caller())

    def _leasing(
        self, name: str, version: int | None, timeout: float | None, place: Place
    ) -> AsyncLease:
        from sojourn.pool.aio import AsyncLease

        return AsyncLease(self, name, version, timeout, place)

    def preload(
        self, *names: str, version: int | None = None, timeout: float | None = None
    ) -> None:
        """Open every copy of these models now, or of all; returns when they are ready.

        `timeout` limits the seconds for all of them together.
        """
        driver = self._driver
        holder = this_thread(caller())
        deadline = deadline_after(arguments.timeout(timeout))
        version = _version(version)
        for name in names:
            arguments.text("a model's name", name)
        wishes = [
            Wish(name, holder, self, version, slot)
            for name in names or driver.names()
            for slot in range(driver.copies(name, version))
        ]
        driver.preload(wishes, deadline)

    def evict(self, name: str, *, timeout: float | None = None, version: int | None = None) -> bool:
        """Close the copies of a model: idle ones now, leased ones once they are given back.

        Returns True when the idle ones are closed; False if that takes longer than `timeout`
        seconds, or if one stays because it could not be parked (`stats().copies` has its
        `park_error`).
        """
        return self._driver.evict(name, _version(version), arguments.timeout(timeout))

    def pin(self, name: str, pinned: bool = True, *, version: int | None = None) -> None:
        """Never close a model for others or for idleness; `pinned=False` allows it again."""
        arguments.text("a model's name", name)
        self._driver.change(name, _version(version), pinned=bool(pinned))

    def keep(self, name: str, seconds: float | None, *, version: int | None = None) -> None:
        """Set the seconds for which idle copies of a model are kept: None is the pool's setting,
        `math.inf` is forever, 0 closes them when their last lease ends."""
        arguments.text("a model's name", name)
        if seconds not in (None, math.inf):
            arguments.seconds("seconds", seconds)
        self._driver.change(name, _version(version), keep_seconds=seconds)

    def versions(self, name: str) -> tuple[int, ...]:
        """The registered versions of a model, the latest last; none if it is not registered."""
        return self._driver.versions(name)

    def stats(self) -> PoolStatus:
        """The registered models, the open copies, their holders, and counts since the start."""
        return self._driver.status()

    def close(self, *, timeout: float | None = CLOSE_SECONDS) -> None:
        """Close every session. May be called twice.

        Waiting requests are refused. Leases have `timeout` seconds (None: no limit) to be given
        back, except those of the closing thread itself; then they expire. Parked states are
        deleted. Not in a signal handler: raise there, or start a thread that closes.
        """
        end = partial(
            _end, self._driver, self._keeper, arguments.timeout(timeout), caller(), here.key
        )
        interrupts.to_the_end(end, self._driver.hurry)
        self._finalizer.detach()

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def __contains__(self, name: str) -> bool:
        return name in self._driver.names()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a pool cannot be pickled: its workers belong to this process. Create one pool per "
            "process"
        )

    def __repr__(self) -> str:
        return str(self._driver.status())


def _new_holder(code: CodeType, instruction: int) -> Holder:
    holder = this_thread(caller())
    if len(here.holders) > 1000:
        here.holders.clear()
    here.holders[id(code), instruction] = holder, code  # keeps `code` alive: its id is unique
    return holder


def _devices(wanted: Sequence[str]) -> tuple[str, ...]:
    if isinstance(wanted, str):
        wanted = (wanted,)
    if not isinstance(wanted, Iterable):
        raise TypeError(f"devices must be a list such as ['gpu:0', 'gpu:1'], not {wanted!r}")
    return tuple(arguments.device("each of devices", device) for device in wanted)


def _version(version: int | None) -> int | None:
    return None if version is None else arguments.whole("version", version)


def _maker(name: str, model: Any, place: Place, options: dict[str, Any]) -> MakeModel:
    """Check and pack a model; return a function that makes it from the number of its version."""
    check(options)
    device = arguments.device("device", options.pop("device", "auto"))
    memory, growth = options.pop("memory", None), options.pop("max_growth", None)
    of_pool = ModelOptions.__annotations__.keys() - OpenOptions.__annotations__.keys()
    rules = {key: options.pop(key) for key in of_pool & options.keys()}
    rules["memory_bytes"] = None if memory is None else arguments.memory("memory", memory)
    rules["max_growth_bytes"] = None if growth is None else arguments.memory("max_growth", growth)
    rules["parks"] = not options.get("untrusted", False)  # an untrusted worker writes no files
    rules["estimate_bytes"] = _estimate(model)
    Model(name, **rules)  # report errors in the rules before errors in the model
    is_packed = isinstance(model, Blueprint)  # by another process, which has the model's code
    blueprint = model if is_packed else Blueprint(model, memory=memory, **options)
    blueprint.model_name = name
    rules["takes_spares"] = blueprint.takes_spares(device)
    blueprint.keep_zygote()

    def make(version: int) -> tuple[Model, Source]:
        numbered = Model(name, version, **rules)
        return numbered, Source(numbered, blueprint, place, device)

    return make


def _estimate(model: Any) -> int | None:
    """Estimate the size of a model in files, for its first opening: at least that of the files."""
    if not isinstance(model, str | os.PathLike):
        return None
    path = os.fspath(model)
    if not os.path.isdir(path):
        return _BASE_BYTES + os.path.getsize(path) if os.path.isfile(path) else None
    files = (os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names)
    # lstat: a link may be dangling, or lead to a file that is no part of the model.
    return _BASE_BYTES + sum(os.lstat(file).st_size for file in files)


# -- pools that nobody closed ------------------------------------------------------------------

_open_pools: dict[Driver, Keeper] = {}


def _end(
    driver: Driver, keeper: Keeper, timeout: float | None, place: Place, closer: int | None = None
) -> None:
    driver.close(timeout, place, closer)
    if not driver.is_foreign:
        keeper.join()
    _open_pools.pop(driver, None)


def _forgotten(driver: Driver, keeper: Keeper) -> None:
    """Close a pool that was garbage-collected, without leases. Runs in the garbage collector."""
    if driver.is_foreign:
        return

    end = partial(_end, driver, keeper, 0, driver.made_at)
    try:
        threading.Thread(target=end, name="sojourn-pool-forgotten").start()
    except RuntimeError:
        pass  # the interpreter exits, which closes the sessions
    warnings.warn(
        f"the pool made at {driver.made_at} was never closed; use `with` or call close()",
        ResourceWarning,
        stacklevel=2,
    )


def _end_all_at_exit() -> None:
    # Threads can no longer be started, so only files that would stay are removed. The sessions,
    # and with them their workers, are closed right after this.
    for driver in list(_open_pools):
        driver.parking.leave()


def _forget_all_in_child() -> None:
    for driver, keeper in _open_pools.items():
        driver.become_foreign()
        keeper.become_foreign()
    _open_pools.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all_in_child)
exits.at_exit(exits.POOLS, _end_all_at_exit)
others_with_metrics.append(lambda: families(list(_open_pools)))
