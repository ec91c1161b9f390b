"""The plans of a session: made by its engine when a step is first requested, then reused."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from sojourn.process.calls import NoAnswer
from sojourn.process.deadlines import held, left_until
from sojourn.session.plans import (
    Fetches,
    NamedPlan,
    PlanFacts,
    fetch_names,
    plain_name,
    require_mapping,
)
from sojourn.values import Signature

if TYPE_CHECKING:
    from sojourn.session.backend import Backend
    from sojourn.session.stay import Stay


class Planning:
    """The plans of a session, by fetches and feeds."""

    def __init__(self, stay: Stay) -> None:
        self._stay = stay
        self.known: dict[Any, NamedPlan] = {}
        self._lock = threading.Lock()
        self._under_way: dict[Any, Any] = {}  # loop and step -> future of the plan being made

    def make(self, fetches: Fetches, feeds: Mapping[str, Any], deadline: float | None) -> NamedPlan:
        """Have the engine make the plan of a step, unless another thread has already done so."""
        names, inputs = _plannable(fetches, feeds, self._stay.signature)
        with held(self._lock, deadline):
            plan = self.known.get((fetches, tuple(feeds)))
            if plan is None:
                wanted = {"feeds": inputs, "fetches": names}
                backend = self._stay.backend
                facts, _ = self._stay.operate("plan", wanted, (), PlanFacts, deadline)
                plan = self._from(facts, fetches, names, inputs, backend)
            return plan

    async def amake(
        self, fetches: Fetches, feeds: Mapping[str, Any], deadline: float | None
    ) -> NamedPlan:
        """Like `make`, awaited."""
        import asyncio

        names, inputs = _plannable(fetches, feeds, self._stay.signature)
        loop = asyncio.get_running_loop()
        key = (loop, fetches, tuple(inputs))
        while (plan := self.known.get(key[1:])) is None:
            others = self._under_way.get(key)
            if others is not None:
                # Another task of this loop is having the plan made already.
                left = None if deadline is None else left_until(deadline)
                if not (await asyncio.wait([others], timeout=left))[0]:
                    raise NoAnswer(sent=False)
                continue
            made = self._under_way[key] = loop.create_future()
            try:
                backend = self._stay.backend
                assert backend is not None
                facts, _ = await backend.acall(
                    "plan",
                    {"feeds": inputs, "fetches": names},
                    result=PlanFacts,
                    deadline=deadline,
                    may_wait=False,
                )
                return self._from(facts, fetches, names, inputs, backend)
            finally:
                del self._under_way[key]
                made.set_result(None)
        return plan

    def _from(
        self,
        facts: PlanFacts,
        fetches: Fetches,
        names: list[str],
        inputs: list[str],
        backend: Backend | None,
    ) -> NamedPlan:
        if not facts.fits(len(inputs), len(names)):
            raise self._stay.broke_protocol("made a plan for something else")
        plan = NamedPlan(fetches, names, inputs, facts)
        if backend is not self._stay.backend:
            return plan  # its worker has been replaced: not kept for the new worker
        return self.known.setdefault((fetches, tuple(inputs)), plan)

    def changes_nothing(self, fetches: Fetches, feeds: Iterable[str]) -> bool:
        """Whether the plan of this step has been made and says so."""
        plan = self.known.get((as_key(fetches), tuple(feeds)))
        # Plans do not know about state inside plain functions and LiteRT models.
        is_known = plan is not None and plan.is_typed and not self._stay.engine.startswith("litert")
        return is_known and not plan.changes_state  # type: ignore[union-attr]

    def forget(self) -> None:
        """Discard all plans, because the worker that made them has ended."""
        self.known.clear()


def as_key(fetches: Fetches) -> Fetches:
    """Return the fetches in the form by which plans are looked up."""
    if fetches is not None and not isinstance(fetches, str | bytes | Mapping):
        try:
            return tuple(fetches)  # read only once, since it may be a generator
        except TypeError:
            pass  # refused when a plan is made
    return fetches


def _plannable(
    fetches: Fetches, feeds: Mapping[str, Any], signature: Signature
) -> tuple[list[str], list[str]]:
    """The names of outputs and inputs, in order."""
    names = fetch_names(fetches, signature)
    require_mapping(feeds)
    return names, [plain_name("inputs", name) for name in feeds]
