"""A lease of a session on another node, used like a pool's lease. It never closes the session.

A step whose node or worker is lost has an unknown outcome. It is repeated, once and on another
copy, only if neither it nor an earlier step of this lease has effects besides its results.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from sojourn.cluster.links import Link, NodeLost
from sojourn.cluster.steps import RemoteStep
from sojourn.cluster.storage import as_url
from sojourn.cluster.wire import words
from sojourn.errors import LeaseExpired, SessionBroken, StepTimeout
from sojourn.process.aside import aside
from sojourn.session.feeding import as_array
from sojourn.session.plans import Fetches
from sojourn.session.session import Usable
from sojourn.session.states import State
from sojourn.values import Footprint, Place, Signature, arguments, plain_arrays
from sojourn.values.rows import Rows

if TYPE_CHECKING:
    from sojourn.cluster.handle import Cluster

# Seconds that the caller waits beyond a step's own timeout before it gives up on the node.
_GRACE_SECONDS = 0.25
At = tuple[Link, words.Leased]


class RemoteLease(Usable):
    """A session on some node, leased to you until you return it; best used with `with`."""

    def __init__(
        self,
        cluster: Cluster,
        model: str,
        link: Link,
        granted: words.Leased,
        holder: Place,
        repeats: bool = True,
    ) -> None:
        self._cluster = cluster
        self._model = model
        self._at: At = link, granted  # one tuple: steps read both at once while the lease moves
        self._repeats = repeats
        self._moving = threading.Lock()  # move to another copy only once, however many steps fail
        self._signature = Signature(granted.inputs, granted.outputs)
        self._holder = holder
        self._since = time.monotonic()
        self._has_effects = False
        self.ended: str | None = None
        self.runs = 0

    # -- properties ------------------------------------------------------------------------------

    @property
    def _granted(self) -> words.Leased:
        return self._at[1]

    @property
    def number(self) -> int:
        return self._granted.lease

    @property
    def mark(self) -> str:
        """The id of its model's registration."""
        return self._granted.mark

    @property
    def link(self) -> Link:
        return self._at[0]

    @property
    def node(self) -> str:
        """The node of the session."""
        return self._granted.node

    @property
    def name(self) -> str:
        return self._granted.session

    @property
    def pid(self) -> int:
        """The process on its node that runs the engine."""
        return self._granted.pid

    @property
    def engine(self) -> str:
        return self._granted.engine

    @property
    def signature(self) -> Signature:
        return self._signature

    @property
    def holder(self) -> Place:
        """The line of code that took the lease."""
        return self._holder

    owner = holder

    @property
    def held_seconds(self) -> float:
        """How long the lease has been held."""
        return time.monotonic() - self._since

    @property
    def is_active(self) -> bool:
        """Whether the lease can still be used, as far as this process knows."""
        return self.ended is None

    @property
    def state(self) -> State:
        return State.READY if self.ended is None else State.CLOSED

    # -- steps -----------------------------------------------------------------------------------

    def _run(self, fetches: Fetches, feeds: Mapping[str, Any] | None, timeout: float | None) -> Any:
        step = self._step(fetches, feeds, timeout)
        deadline = None if timeout is None else time.monotonic() + timeout + _GRACE_SECONDS
        with self._counted():
            try:
                return self._run_once(step, deadline)
            except (NodeLost, SessionBroken) as error:
                lost = self._after(error, step)
            self._replace(lost, deadline)
            try:
                return self._run_once(step, deadline)
            except (NodeLost, SessionBroken) as error:
                raise self._lost(error) from error

    def _run_once(self, step: RemoteStep, deadline: float | None) -> Any:
        step.at = link, granted = self._require_active()
        try:
            if not self._knows(step):
                facts, _ = link.ask(step.asked(granted.lease), (), deadline)
                self._learn(step, facts)
            step.has_begun = True
            self._has_effects |= not step.can_repeat
            return self._taken(*link.ask(step.question(granted.lease), step.arrays, deadline))
        except TimeoutError as error:
            if isinstance(error, StepTimeout) or step.timeout is None:
                raise  # without a timeout, the error is the model's own
            raise self._late(step) from None
        except LeaseExpired as error:
            raise self._expired(error) from None

    async def _arun(
        self, fetches: Fetches, feeds: Mapping[str, Any] | None, timeout: float | None
    ) -> Any:
        step = self._step(fetches, feeds, timeout)
        limit = None if timeout is None else timeout + _GRACE_SECONDS
        with self._counted():
            try:
                return await asyncio.wait_for(self._arun_twice(step, limit), limit)
            except (asyncio.TimeoutError, TimeoutError) as error:
                if isinstance(error, StepTimeout) or step.timeout is None:
                    raise
                raise self._late(step) from None

    async def _arun_twice(self, step: RemoteStep, limit: float | None) -> Any:
        try:
            return await self._arun_once(step)
        except LeaseExpired:
            if self._repeats or self.ended is not None:
                raise
            lost = step.at
        except (NodeLost, SessionBroken) as error:
            lost = self._after(error, step)
        deadline = None if limit is None else time.monotonic() + limit
        await aside(partial(self._replace, lost, deadline))
        try:
            return await self._arun_once(step)
        except LeaseExpired as error:
            raise self._expired(error) from None
        except (NodeLost, SessionBroken) as error:
            raise self._lost(error) from error

    async def _arun_once(self, step: RemoteStep) -> Any:
        step.at = link, granted = self._require_active()
        try:
            if not self._knows(step):
                facts, _ = await link.aask(step.asked(granted.lease))
                self._learn(step, facts)
            step.has_begun = True
            self._has_effects |= not step.can_repeat
            return self._taken(*await link.aask(step.question(granted.lease), step.arrays))
        except LeaseExpired as error:
            if not self._repeats:
                raise  # a server's lease: the step has not begun and continues with another lease
            raise self._expired(error) from None

    @contextmanager
    def _counted(self) -> Iterator[None]:
        """Count a step once: answered, failed, lost or late. Only for the last two is the outcome
        unknown."""
        how = "failed"
        try:
            yield
            how = "answered"
        except StepTimeout:
            how = "late"
            raise
        except SessionBroken:
            how = "lost"
            raise
        finally:
            self._cluster.count(how)

    def _step(
        self, fetches: Fetches, feeds: Mapping[str, Any] | None, timeout: float | None
    ) -> RemoteStep:
        timeout = arguments.timeout(timeout)
        feeds = feeds or {}
        inputs = self._signature.inputs
        arrays = []
        for name, value in feeds.items():
            spec = inputs.get(name)
            if type(value) is Rows:
                value = value.joined()
            if spec is None:
                arrays.append(plain_arrays.anything(value))
            elif type(value) is np.ndarray and value.dtype == spec.dtype:
                arrays.append(value)
            else:
                arrays.append(as_array(name, spec, value))
        wanted = fetches if fetches is None or isinstance(fetches, str) else list(fetches)
        return RemoteStep(wanted, list(feeds), arrays, timeout)

    def _knows(self, step: RemoteStep) -> bool:
        known = self._cluster.repeatable.get((step.at[1].mark, *step.kind))
        step.can_repeat = known is True
        return known is not None

    def _learn(self, step: RemoteStep, facts: words.StepFacts) -> None:
        step.can_repeat = facts.can_repeat
        self._cluster.repeatable[(step.at[1].mark, *step.kind)] = facts.can_repeat

    def _taken(self, reply: words.Results, arrays: list[np.ndarray]) -> Any:
        self.runs += 1
        found = iter(arrays)
        values: list[Any] = []
        for is_present in reply.present:
            array = next(found) if is_present else None
            values.append(array[()] if array is not None and not array.ndim else array)
        if reply.is_single:
            return values[0]
        return values if reply.names is None else dict(zip(reply.names, values, strict=True))

    def changes_nothing(self, fetches: Fetches, feeds: Iterable[str]) -> bool:
        """Whether a step with these names is known, from an earlier run, to change no state."""
        wanted = fetches if fetches is None or isinstance(fetches, str) else tuple(fetches)
        return self._cluster.repeatable.get((self.mark, wanted, tuple(feeds))) is True

    # -- other session operations ------------------------------------------------------------------

    def reset(self) -> None:
        self._operate("reset")

    def save(self, path: str | bytes | os.PathLike[Any]) -> None:
        """Save the variables to a URL that fsspec supports, or to a folder on its node."""
        self._operate("save", as_url(path))

    def restore(self, path: str | bytes | os.PathLike[Any]) -> None:
        """Restore the variables that a lease of the cluster has saved at this URL."""
        self._operate("restore", as_url(path))

    def footprint(self) -> Footprint:
        found: Footprint | None = self._operate("footprint").footprint
        assert found is not None
        return found

    def _operate(self, what: str, path: str = "") -> words.Done:
        self._require_active()
        self._has_effects |= what in ("reset", "restore")
        try:
            reply, _ = self.link.ask(words.Operate(self.number, what, path))
        except LeaseExpired as error:
            raise self._expired(error) from None
        except NodeLost as error:
            raise self._lost(error) from error
        assert isinstance(reply, words.Done)
        return reply

    # -- closing -----------------------------------------------------------------------------------

    def close(self) -> None:
        """Return the lease. May be called twice."""
        with self._moving:
            if self.ended is not None:
                return
            self.ended = "it was returned"
        self._cluster.give_back(self)

    def end(self, why: str) -> None:
        """End the lease: its node has ended it, or is lost."""
        if self.ended is None:
            self.ended = why
            self._cluster.forget(self)

    def __enter__(self) -> RemoteLease:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def __del__(self) -> None:
        if self.__dict__.get("ended", "") is None and not sys.is_finalizing():
            # The garbage collector must not block: without renewal, the node lets the lease expire.
            self.end("its handle was garbage-collected")
            warnings.warn(
                f"a lease of {self._model!r} in the cluster, taken at {self._holder}, was never "
                "returned; use `with` or call close()",
                ResourceWarning,
                stacklevel=2,
            )

    def __getattr__(self, name: str) -> Any:
        if name == "_stay":  # other methods of `Usable` read it
            raise AttributeError("a session on another node does not offer this")
        raise AttributeError(f"a lease has no attribute {name!r}")

    def __repr__(self) -> str:
        state = "active" if self.ended is None else "ended"
        return (
            f"<Lease of {self._model!r} on {self.node} {state} | {self.runs} runs | "
            f"held by {self._holder}>"
        )

    def _require_active(self) -> tuple[Link, words.Leased]:
        if self.ended is not None:
            raise LeaseExpired(
                f"the lease of {self._model!r}, taken at {self._holder}, has ended: {self.ended}"
            )
        return self._at

    def _after(self, error: Exception, step: RemoteStep) -> At:
        """Return the link and lease on which a step was lost, if it may be repeated. Raises if
        not."""
        is_free = not (self._repeats and self._has_effects)  # a server's steps belong to many users
        if step.has_begun:  # otherwise only its facts were requested
            is_free = is_free and self._repeats and step.can_repeat
        if not is_free:
            raise self._lost(error) from error
        if step.has_begun:
            self._cluster.count("repeated")
        return step.at

    def _replace(self, lost: At, deadline: float | None) -> None:
        """Move to another copy of the same model, unless another step has already done so."""
        with self._moving:
            if self._at is not lost or self.ended is not None:
                return
            mark = self.mark
            self._cluster.forget(self)
            left = None if deadline is None else max(0.001, deadline - time.monotonic())
            try:
                self._at = self._cluster.take(self._model, timeout=left, avoid=lost[0])
            except BaseException as error:
                self.ended = f"no other copy could be had: {error}"
                raise
            self._cluster.note(self)
            is_same = self.mark == mark
        if not is_same:
            self.close()
            raise SessionBroken(f"{self._model!r} was registered again meanwhile")

    def _lost(self, error: Exception) -> SessionBroken:
        why = f"node {self.node} is lost" if isinstance(error, NodeLost) else "its worker died"
        self.end(f"{why}: {error}")
        return SessionBroken(
            f"{self._model!r} on node {self.node}: {error}. A step was under way: its outcome is "
            "unknown"
        )

    def _late(self, step: RemoteStep) -> StepTimeout:
        return StepTimeout(
            f"{self._model!r} on node {self.node} did not answer within {step.timeout:g} s; the "
            "outcome of the step is unknown"
        )

    def _expired(self, error: LeaseExpired) -> LeaseExpired:
        self.end(str(error))
        return LeaseExpired(
            f"the lease of {self._model!r} on node {self.node}, taken at {self._holder}: {error}"
        )
