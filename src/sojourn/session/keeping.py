"""The variables of a stay, which may outlive its worker: saved, restored, and brought back after a
crash."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from sojourn import events
from sojourn.errors import CheckpointError
from sojourn.kinds import Load
from sojourn.process.calls import NoAnswer, WorkerDied
from sojourn.process.deadlines import deadline_after, held
from sojourn.session import checkpoints
from sojourn.session.backend import Backend, MakeBackend
from sojourn.session.states import Input, State

if TYPE_CHECKING:
    from sojourn.session.stay import Stay

# How long to wait, before the state is touched, for running steps whose callers have given up.
_SETTLE_SECONDS = 30.0
_READY = frozenset({State.READY})
_NOT_RUNNING = frozenset(State) - {State.RUNNING}


class Keeping:
    """Operations of a stay on all its variables at once."""

    def __init__(self, stay: Stay) -> None:
        self._stay = stay
        self.operations: frozenset[str] = frozenset()  # those that the engine supports
        self._forbidden: dict[str, str] = {}  # operation -> why it is refused
        self.acknowledged: str | None = None  # the path last saved to or restored from
        # Held by the thread that replaces the worker. Reentrant, because a subscriber may close the
        # session whose restart it is notified of.
        self.lock = threading.RLock()

    def save(self, path: str) -> None:
        """Save to a folder; when this returns, it is durable."""
        self._require("save")
        self._stay.do_alone(
            lambda: self._write(path), f"it was being saved to {path}, where nothing has changed"
        )
        self.acknowledged = path
        events.emit("session.saved", self._stay.name, path=path)

    def park(self, path: str) -> None:
        """Save, and refuse steps from the start. If it fails, the session is ready again."""
        self._require("save")
        lifecycle = self._stay.lifecycle
        while lifecycle.happened_in(_READY, Input.PARK_ASKED, None) is not State.READY:
            self._stay.require_usable()
            lifecycle.wait_for(_NOT_RUNNING)
        try:
            self._write(path)
        except WorkerDied as death:
            raise self._stay.broken_by(death, "it was being parked") from None
        except BaseException:
            lifecycle.happened(Input.PARK_FAILED)
            raise
        lifecycle.happened(Input.PARK_DONE)

    def restore(self, path: str) -> None:
        """Restore all variables from a folder, or none if it fails."""
        self._require("restore")
        self._stay.changed = True
        self._stay.do_alone(lambda: self._restore(path), "it was being restored")
        self.acknowledged = path
        events.emit("session.restored", self._stay.name, path=path)

    def reset(self) -> None:
        """Reset the variables to the values that they had after loading."""
        self._require("reset")
        self._stay.changed = True

        def work() -> None:
            self._settle()
            self._backend.call("reset", {})

        self._stay.do_alone(work, "it was being reset")

    def placement(self) -> dict[str, int]:
        """How many ops ran on each device."""
        if "placement" not in self.operations:
            return {}
        counts, _ = self._stay.call("placement", {}, result=dict[str, int], counts=False)
        return dict(counts)

    def comeback_with(
        self,
        new_backend: MakeBackend,
        what_to_load: Callable[[], tuple[Load, Sequence[np.ndarray]]],
    ) -> Callable[[float | None], None]:
        """Return the function that replaces the worker after a crash and restores the last
        acknowledged state.

        The function takes the deadline of the step that waits for it.
        """

        def comeback(deadline: float | None) -> None:
            stay = self._stay
            with held(self.lock, deadline):
                # OPENING: a Ctrl-C has interrupted the comeback for another step, so try again.
                asked = frozenset({State.BROKEN, State.OPENING})
                if stay.lifecycle.happened_in(asked, Input.WAKE_ASKED, stay.owner) not in asked:
                    return  # another thread has done it, or has closed the session
                try:
                    load, arrays = what_to_load()
                    if not stay.beginning.replace_backend(new_backend, deadline):
                        return
                    self._backend.call("load", load, arrays, deadline=deadline)
                    if self.acknowledged is not None:
                        self._restore(self.acknowledged, deadline)
                except BaseException as error:
                    self._backend.kill()
                    stay.lifecycle.happened(Input.DIED)
                    if isinstance(error, WorkerDied):
                        raise error.kind(
                            f"session {stay.name!r}: its new worker {error.how} as well"
                        ) from None
                    raise
                if not stay.beginning.came_back():
                    return
            events.emit("session.restarted", stay.name, stay.owner, path=self.acknowledged)

        return comeback

    def _settle(self) -> None:
        """Wait for steps that still run in the worker although no other caller is in a step:
        abandoned ones, and those awaited by this thread's event loop, which is blocked now."""
        try:
            self._backend.settle(deadline_after(_SETTLE_SECONDS))
        except NoAnswer:
            raise CheckpointError(
                f"session {self._stay.name!r}: a step that nobody waits for still runs after "
                f"{_SETTLE_SECONDS:g} s, and the state is not whole before it ends; try again "
                "later, or close it"
            ) from None

    def _write(self, path: str) -> None:
        self._settle()

        def produce(prefix: bytes) -> checkpoints.Written:
            written, _ = self._backend.call("save", {"prefix": prefix}, result=checkpoints.Written)
            assert isinstance(written, checkpoints.Written)
            return written

        checkpoints.write(path, produce, self._stay.name)

    def _restore(self, path: str, deadline: float | None = None) -> None:
        self._settle()
        with checkpoints.opened(path) as saved:
            while saved.has_values:
                arguments = {"folder": saved.identity, "may_lack": saved.may_lack}
                prefix = saved.prefix()
                try:
                    self._backend.call(
                        "restore", {**arguments, "prefix": prefix}, deadline=deadline
                    )
                    return
                except CheckpointError as error:
                    if saved.prefix() == prefix:  # else a save moved it: try again
                        raise CheckpointError(
                            f"state cannot be restored from {path}: {error}"
                        ) from error.__cause__

    @property
    def _backend(self) -> Backend:
        backend = self._stay.backend
        assert backend is not None
        return backend

    def forbid(self, operation: str, why: str) -> None:
        """Refuse an operation of the engine from now on."""
        self._forbidden[operation] = why

    def _require(self, operation: str) -> None:
        if operation in self._forbidden:
            raise CheckpointError(f"session {self._stay.name!r}: {self._forbidden[operation]}")
        if operation not in self.operations:
            raise CheckpointError(
                f"session {self._stay.name!r} has no variables that it knows of, so there is "
                f"nothing to {operation}"
            )
