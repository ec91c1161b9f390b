"""The session as the user holds it."""

from __future__ import annotations

import os
from collections.abc import Coroutine, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NoReturn, overload

import numpy as np

from sojourn.errors import InputError
from sojourn.session import defaults
from sojourn.session.plans import Fetches
from sojourn.session.states import State
from sojourn.session.stay import Stay
from sojourn.values import (
    Footprint,
    Place,
    Receipt,
    Signature,
    arguments,
    caller,
    format_bytes,
    html,
)

if TYPE_CHECKING:
    from sojourn.process.sandbox import Applied
    from sojourn.session.lease import Lease

Feeds = Mapping[str, Any]


class Usable:
    """The part that a session and a lease share: every use of a stay except ending it."""

    _stay: Stay

    @property
    def name(self) -> str:
        """The name of the session in messages, events and the process list."""
        return self._stay.name

    @property
    def state(self) -> State:
        """The current state of the session."""
        return self._stay.lifecycle.state

    @property
    def pid(self) -> int:
        """The id of the process in which the engine runs."""
        return self._stay.pid

    @property
    def owner(self) -> Place:
        """The line of code that opened the session."""
        return self._stay.owner

    @property
    def signature(self) -> Signature:
        """The model's inputs and outputs."""
        return self._stay.signature

    @property
    def engine(self) -> str:
        """The engine that computes, and, if it was chosen, why."""
        return self._stay.engine

    @property
    def sandbox(self) -> Applied | None:
        """The restrictions in force for an untrusted model; None if the model is trusted.

        The worker reported them before it loaded the model.
        """
        backend = self._stay.backend
        return None if backend is None else backend.sandbox

    @overload
    def run(
        self, fetches: None = ..., feeds: Feeds | None = ..., *, timeout: float | None = ...
    ) -> dict[str, Any]: ...

    @overload
    def run(
        self, fetches: str, feeds: Feeds | None = ..., *, timeout: float | None = ...
    ) -> Any: ...

    @overload
    def run(
        self, fetches: Iterable[str], feeds: Feeds | None = ..., *, timeout: float | None = ...
    ) -> list[Any]: ...

    def run(
        self, fetches: Fetches = None, feeds: Feeds | None = None, *, timeout: float | None = None
    ) -> Any:
        """Run one step. The results own their memory and outlive the session.

        One name gives an array, a list gives a list, None gives a dict of every output. Names are
        the signature's, or those of the graph (`"w:0"`, `"init"`). If the step takes longer than
        `timeout` seconds, it raises StepTimeout, and its outcome is then unknown.
        """
        return self._run(fetches, feeds, timeout)

    @overload
    def arun(
        self, fetches: None = ..., feeds: Feeds | None = ..., *, timeout: float | None = ...
    ) -> Coroutine[Any, Any, dict[str, Any]]: ...

    @overload
    def arun(
        self, fetches: str, feeds: Feeds | None = ..., *, timeout: float | None = ...
    ) -> Coroutine[Any, Any, Any]: ...

    @overload
    def arun(
        self, fetches: Iterable[str], feeds: Feeds | None = ..., *, timeout: float | None = ...
    ) -> Coroutine[Any, Any, list[Any]]: ...

    def arun(
        self, fetches: Fetches = None, feeds: Feeds | None = None, *, timeout: float | None = None
    ) -> Coroutine[Any, Any, Any]:
        """Like `run`, awaited: the event loop is not blocked, and no thread is used.

        Any number of steps may be awaited at once. They are run in order, a few at a time.
        Cancelling a step leaves its outcome unknown, as a timeout does.
        """
        return self._arun(fetches, feeds, timeout)

    def _run(self, fetches: Fetches, feeds: Feeds | None, timeout: float | None) -> Any:
        return self._stay.run(fetches, feeds, timeout)

    async def _arun(self, fetches: Fetches, feeds: Feeds | None, timeout: float | None) -> Any:
        return await self._stay.arun(fetches, feeds, timeout)

    def changes_nothing(self, fetches: Fetches, feeds: Iterable[str]) -> bool:
        """Whether a step of these names, which has run before, is known to change no state, so that
        it may be repeated. It is never known for plain functions and LiteRT."""
        return self._stay.planning.changes_nothing(fetches, feeds)

    def __call__(self, *misplaced: Any, **inputs: Any) -> Any:
        """Run a step with inputs by keyword; return the only output, or a dict of all outputs."""
        return self.run(self._all_outputs(misplaced), inputs)

    async def acall(self, *misplaced: Any, **inputs: Any) -> Any:
        """Like `session(...)`, awaited."""
        return await self.arun(self._all_outputs(misplaced), inputs)

    def _all_outputs(self, misplaced: tuple[Any, ...]) -> str | None:
        signature = self.signature
        if misplaced:
            names = ", ".join(f"{name}=..." for name in signature.inputs)
            raise InputError(f"inputs are given by name: session({names})")
        outputs = list(signature.outputs)
        return outputs[0] if len(outputs) == 1 else None

    def empty(self, name: str, *dimensions: int) -> np.ndarray:
        """Return a new array in shared memory for this input; feeding it makes no copy.

        The dimensions that the signature leaves open are given in order, the number of rows first.
        """
        from sojourn.transport.placed import empty

        spec = self.signature.inputs.get(name)
        if spec is None:
            known = ", ".join(map(repr, self.signature.inputs)) or "none"
            raise InputError(f"session {self.name!r} has no input {name!r}; it has {known}")
        return empty(spec.filled(name, dimensions), spec.dtype)

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"session {self.name!r} cannot be pickled: its worker belongs to this process. Send "
            "the model's path or the function that builds it, and open a session there"
        )

    def reset(self) -> None:
        """Reset the variables and tables to the values they had when the session was opened.

        A graph is initialised again, so random initializers without a seed draw new values.
        """
        self._stay.keeping.reset()

    def save(self, path: str | bytes | os.PathLike[Any]) -> None:
        """Save the variables to the folder `path`: when this returns, they are on the disk.

        The files are a TensorFlow checkpoint with a manifest. Steps that are started meanwhile
        wait. If saving fails (CheckpointError), the previous content of the path is still there.
        """
        self._stay.keeping.save(arguments.path("path", path))

    def restore(self, path: str | bytes | os.PathLike[Any]) -> None:
        """Restore the variables from the state saved at `path`, either all or none.

        Every byte is checked first. `path` may also be the prefix of a plain TensorFlow checkpoint.
        """
        self._stay.keeping.restore(arguments.path("path", path))

    @property
    def placement(self) -> dict[str, int]:
        """How many ops of the steps so far ran on each device of the session."""
        return self._stay.keeping.placement()

    def as_default(self) -> AbstractContextManager[Usable]:
        """Make `sojourn.current()` return this session inside the block, in its thread or task."""
        return defaults.as_default(self)

    def footprint(self) -> Footprint:
        """The memory that the session holds now, as the kernel and the GPU driver count it."""
        return self._stay.footprint()


class Session(Usable):
    """One stay of one model on one device. It lives until `close()`; prefer a `with` block."""

    def __init__(self, stay: Stay) -> None:
        self._stay = stay
        stay.ending.watch(self, stay.ending.forgotten)

    @property
    def receipt(self) -> Receipt | None:
        """The receipt of the close; None while the session is open."""
        return self._stay.receipt

    def close(self, *, timeout: float | None = None) -> Receipt:
        """Close the session: new steps are refused, running steps finish, then the worker ends.

        After `timeout` seconds, running steps are cut off. Closing twice gives the same receipt.
        """
        return self._stay.close(arguments.timeout(timeout), caller())

    def lend(
        self,
        *,
        max_seconds: float | None = None,
        lease_warning_seconds: float | None = None,
    ) -> Lease:
        """Lend the session to another module, which can then use it but not close it.

        The lease ends when it is given back, after `max_seconds`, or when you close the session.
        If it is held longer than `lease_warning_seconds`, a `lease.overdue` event is emitted.
        """
        from sojourn.session.lease import Lease

        if max_seconds is not None:
            arguments.seconds("max_seconds", max_seconds)
        if lease_warning_seconds is not None:
            arguments.seconds("lease_warning_seconds", lease_warning_seconds)
        self._stay.require_usable()
        return Lease(
            self._stay,
            caller(),
            max_seconds=max_seconds,
            lease_warning_seconds=lease_warning_seconds,
        )

    def aclose(self, *, timeout: float | None = None) -> Coroutine[Any, Any, Receipt]:
        """Like `close`, awaited: steps under way finish while the event loop runs."""
        return self._stay.aclose(arguments.timeout(timeout), caller())

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *raised: object) -> None:
        if not self._stay.is_foreign:  # else forked inside the block: the parent owns the session
            self._stay.close(None, caller())

    async def __aenter__(self) -> Session:
        return self

    async def __aexit__(self, *raised: object) -> None:
        if not self._stay.is_foreign:
            await self._stay.aclose(None, caller())

    def __repr__(self) -> str:
        stay = self._stay
        where = "inline" if stay.isolation == "inline" else f"pid {stay.pid}"
        text = f"<Session {stay.name!r} {self.state} | {where} on {stay.device}"
        text += f" | {stay.lifecycle.steps} runs"
        if stay.receipt is not None:
            return f"{text} | {format_bytes(stay.receipt.returned_bytes)} returned>"
        return f"{text} | opened at {stay.owner}>"

    def _repr_html_(self) -> str:
        stay = self._stay
        colour = {State.READY: html.GOOD, State.RUNNING: html.GOOD, State.BROKEN: html.BAD}
        receipt, held = stay.receipt, stay.footprint()
        rows = [
            ("where", "inline" if stay.isolation == "inline" else f"process {stay.pid}"),
            ("device", stay.device),
            ("holds", "" if receipt else format_bytes(held.held_bytes)),
            ("runs", str(stay.lifecycle.steps)),
            ("opened at", str(stay.owner)),
            ("closed at", str(stay.closed_at or "")),
            ("receipt", str(receipt or "")),
        ]
        parts = [html.facts(rows)]
        if stay.signature.inputs or stay.signature.outputs:
            parts += ['<div style="margin-top:.5em"></div>', stay.signature.html_table()]
        badge = (str(self.state), colour.get(self.state, html.CALM))
        return html.card("session", stay.name, badge, *parts)
