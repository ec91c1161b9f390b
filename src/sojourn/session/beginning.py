"""The opening of a stay (worker and engine, or nothing is left over), and the replacement of a
worker that has died."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from sojourn.errors import StepTimeout
from sojourn.kinds import Load
from sojourn.process.calls import NoAnswer, WorkerDied
from sojourn.process.deadlines import deadline_after, left_until
from sojourn.session.backend import Backend, MakeBackend
from sojourn.session.ending import open_stays
from sojourn.session.states import Input, State
from sojourn.session.words import in_a_line
from sojourn.values import Footprint, Signature

if TYPE_CHECKING:
    from sojourn.session.stay import Stay

# Is called when an opening has begun, with the function that cancels it.
IsUnderWay = Callable[[Callable[[], None]], None]
_OPENING = frozenset({State.OPENING})
_PATIENCE_SECONDS = 5.0  # how long to wait for callers still in a step of the dead worker


class Beginning:
    """Opens one stay: starts its worker, loads its engine, and replaces a worker that died."""

    def __init__(self, stay: Stay) -> None:
        self._stay = stay
        self._opened = 0.0

    def open(
        self,
        make_backend: MakeBackend,
        load: Load,
        arrays: Sequence[np.ndarray] = (),
        timeout: float | None = None,
        is_under_way: IsUnderWay | None = None,
    ) -> None:
        """Make the backend and load the engine, both within the timeout. If this raises, nothing
        is left over.

        `is_under_way` is called once the worker exists, with the function that kills it.
        """
        stay = self._stay
        deadline = deadline_after(timeout)
        try:
            stay.lifecycle.announce(stay.owner)
            self._start(make_backend(deadline))
            if is_under_way is not None:
                is_under_way(stay.hurry)
            self._load(load, arrays, deadline)
        except NoAnswer:
            missing = "get a worker" if stay.backend is None else "load its model"
            late = StepTimeout(
                f"session {stay.name!r} did not {missing} within {round(timeout or 0, 3):g} s"
            )
            self.abandon(late)
            raise late from None
        except BaseException as error:
            self.abandon(error)  # also after a Ctrl-C: nobody else has a reference to this session
            raise

    def _start(self, backend: Backend) -> None:
        """Attach the backend, whose engine is not loaded yet."""
        stay = self._stay
        stay.backend = backend
        stay.pid = backend.pid
        self._opened = time.monotonic()  # shared by all processes, and never adjusted
        self.describe(stay.device)
        if stay.ending.is_impatient:
            backend.kill()

    def describe(self, device: str) -> None:
        """Publish the facts about the session, now on this device, on its status page."""
        stay = self._stay
        stay.device = device
        stay.lifecycle.page.describe(
            {
                **stay.lifecycle.identity,
                "isolation": stay.isolation,
                "device": device,
                "engine": stay.engine.partition(":")[0],
                "worker_pid": stay.pid,
                "opened": self._opened,
            }
        )

    def _load(
        self,
        load: Load,
        arrays: Sequence[np.ndarray],
        deadline: float | None = None,
    ) -> None:
        """Load the engine in the worker."""
        stay = self._stay
        try:
            loaded, _ = stay.operate("load", load, arrays, _Loaded, deadline)
        except WorkerDied as death:
            how = death.describe(" while it loaded the model")
            raise death.kind(f"session {stay.name!r}: the worker {how}") from None
        stay.signature = loaded.signature
        stay.keeping.operations = frozenset(loaded.operations)
        before = stay.lifecycle.happened_in(_OPENING, Input.OPENED, stay.owner)
        if before not in _OPENING:  # closed meanwhile: the program exits
            raise stay.refusal(before)

    def replace_backend(self, new_backend: MakeBackend, deadline: float | None) -> bool:
        """Replace the worker that has died; the engine of the new one is not loaded yet.

        Returns False, with no worker left over, if a subscriber has closed the session meanwhile.
        """
        stay = self._stay
        assert stay.backend is not None
        if stay.lifecycle.state is not State.OPENING:
            return False
        # Callers in steps of the dead worker still use its lanes.
        stay.lifecycle.wait_idle(left_until(deadline, most=_PATIENCE_SECONDS))
        stay.lifecycle.leave_behind()
        stay.backend.end(Footprint(0))
        stay.backend.release()
        stay.planning.forget()
        backend = new_backend(deadline)
        if stay.lifecycle.state is not State.OPENING:
            backend.kill()
            backend.end(Footprint(0))
            backend.release()
            return False
        self._start(backend)
        return True

    def came_back(self) -> bool:
        """Mark the session ready with its new worker; False if it has been closed meanwhile."""
        stay = self._stay
        stay.how_it_died = None
        return stay.lifecycle.happened_in(_OPENING, Input.OPENED, stay.owner) in _OPENING

    def abandon(self, error: BaseException) -> None:
        """End the stay before its first use, because loading failed or was interrupted."""
        stay = self._stay
        stay.lifecycle.failure = in_a_line(error)
        stay.closed_at = stay.closed_at or stay.owner
        before = stay.lifecycle.happened_in(_OPENING, Input.OPEN_FAILED, stay.owner)
        if before is State.OPENING and stay.backend is not None:
            stay.backend.kill()
            stay.backend.end(Footprint(0))
            stay.backend.release()
        elif before not in (State.OPENING, State.CLOSED):
            stay.close(0, stay.owner)  # it became ready, or the exit of the program is closing it
        open_stays.discard(stay)


class _Loaded(msgspec.Struct, frozen=True):
    signature: Signature
    operations: list[str]
