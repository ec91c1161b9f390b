"""Drives the pool's decisions by hand: a script of events, without real workers."""

from __future__ import annotations

from sojourn.pool.decisions.effects import (
    Close,
    Effect,
    Effects,
    EndSpare,
    Expire,
    Grant,
    MakeSpare,
    Open,
    Park,
    Refuse,
    SetTimer,
    Warmed,
)
from sojourn.pool.decisions.scheduler import Scheduler
from sojourn.pool.decisions.terms import CopyId, Holder, Model, Policy, Request
from sojourn.values import Place

GiB = 2**30


class Script:
    """A scheduler and the effects that it has asked for so far. Nothing happens by itself."""

    def __init__(self, limit: float | None = 4, **policy: object) -> None:
        limit_bytes = None if limit is None else int(limit * GiB)
        self.scheduler = Scheduler(Policy(limit_bytes=limit_bytes, **policy))  # type: ignore[arg-type]
        self.now = 100.0
        self.sizes: dict[str, int] = {}
        self.opening: list[CopyId] = []
        self.parking: list[CopyId] = []
        self.closing: list[CopyId] = []
        self.making: list[int] = []  # spare workers
        self.ending: list[int] = []
        self.granted: dict[int, CopyId] = {}
        self.refused: dict[int, Exception] = {}
        self.warmed: dict[int, CopyId] = {}
        self.expired: list[int] = []
        self.timer_at: float | None = None
        self.log: list[Effect] = []
        self._tickets = 0

    def register(self, name: str, size: float = 1, **rules: object) -> None:
        self.sizes[name] = int(size * GiB)
        rules.setdefault("memory_bytes", self.sizes[name])
        self.scheduler.register(Model(name, **rules))  # type: ignore[arg-type]

    def do(self, effects: Effects) -> Effects:
        for effect in effects:
            self.log.append(effect)
            match effect:
                case Open(copy):
                    self.opening.append(copy)
                case MakeSpare(number):
                    self.making.append(number)
                case EndSpare(number):
                    self.ending.append(number)
                case Grant(ticket, copy):
                    self.granted[ticket] = copy
                case Warmed(ticket, copy):
                    self.warmed[ticket] = copy
                case Refuse(ticket, error):
                    assert ticket not in self.refused
                    self.refused[ticket] = error
                case Park(copy):
                    self.parking.append(copy)
                case Close(copy):
                    self.closing.append(copy)
                case Expire(ticket):
                    self.expired.append(ticket)
                case SetTimer(at):
                    self.timer_at = at
        return effects

    # -- what users do ------------------------------------------------------------------------

    def ask(
        self, model: str, who: object = None, line: int = 0, warm_slot: int | None = None
    ) -> int:
        self._tickets += 1
        ticket = self._tickets
        key = ticket if who is None else who
        holder = Holder(key, Place("app.py", line or ticket), "" if who is None else str(who))
        request = Request(ticket, model, holder, self.now, warm_slot)
        self.do(self.scheduler.on_request(request))
        return ticket

    def warm(self, model: str, version: int, slot: int = 0) -> int:
        """Preload a copy of a version."""
        self._tickets += 1
        holder = Holder("preloader", Place("app.py", self._tickets))
        request = Request(self._tickets, model, holder, self.now, slot, version)
        self.do(self.scheduler.on_request(request))
        return request.ticket

    def take(self, model: str, who: object = None, line: int = 0) -> int:
        """Ask, open what must be opened, and accept."""
        ticket = self.ask(model, who, line)
        self.settle()
        assert ticket in self.granted, self.refused.get(ticket, "still waiting")
        assert self.scheduler.on_accepted(ticket)
        return ticket

    def give_back(self, ticket: int, runs: int = 1, **facts: object) -> None:
        self.do(self.scheduler.on_returned(ticket, self.now, runs=runs, **facts))  # type: ignore[arg-type]

    def use(self, model: str, **facts: object) -> None:
        self.give_back(self.take(model), **facts)

    def time_out(self, ticket: int) -> None:
        self.do(self.scheduler.on_timeout(ticket, self.now))

    # -- what workers do ----------------------------------------------------------------------

    def opened(self, copy: CopyId | None = None, size: float | None = None) -> CopyId:
        copy = self.opening[0] if copy is None else copy
        self.opening.remove(copy)
        held = self.sizes[copy.model] if size is None else int(size * GiB)
        self.do(self.scheduler.on_opened(copy, held, 0.1, self.now))
        return copy

    def open_failed(self, error: Exception) -> None:
        self.do(self.scheduler.on_open_failed(self.opening.pop(0), error, self.now))

    def parked(self, state: object = "state") -> None:
        self.do(self.scheduler.on_parked(self.parking.pop(0), state, 0.1, self.now))

    def closed(self, residue_bytes: int = 0) -> CopyId:
        copy = self.closing.pop(0)
        self.do(self.scheduler.on_closed(copy, self.now, residue_bytes=residue_bytes))
        return copy

    def died(self, copy: CopyId, words: str = "Segmentation fault") -> None:
        self.do(self.scheduler.on_died(copy, words, self.now))

    def measured(self, copy: CopyId, held_bytes: int) -> None:
        self.do(self.scheduler.on_measured(copy, held_bytes, self.now))

    def spare_made(self, size: float = 0.5) -> int:
        number = self.making.pop(0)
        self.do(self.scheduler.on_spare_ready(number, int(size * GiB), self.now))
        return number

    def spare_gone(self, number: int | None = None) -> None:
        number = self.ending.pop(0) if number is None else number
        self.do(self.scheduler.on_spare_gone(number, self.now))

    def settle(self) -> None:
        """Let the workers finish everything that the scheduler asked for."""
        while self.opening or self.parking or self.closing:
            while self.parking:
                self.parked(f"state of {self.parking[0]}")
            while self.closing:
                self.closed()
            while self.opening:
                self.opened()

    def wait(self, seconds: float) -> None:
        """Let time pass; the timer fires when it is due."""
        until = self.now + seconds
        for _ in range(1000):
            if self.timer_at is None or self.timer_at > until:
                break
            self.now = max(self.now, self.timer_at)
            self.timer_at = None
            self.do(self.scheduler.on_timer(self.now))
        else:
            raise AssertionError("the timer goes off for ever")
        self.now = until

    # -- what tests can see -------------------------------------------------------------------

    @property
    def residents(self) -> list[str]:
        return sorted(copy.name for copy in self.scheduler.status().copies)

    def count(self, kind: type[Effect]) -> int:
        return sum(isinstance(effect, kind) for effect in self.log)

    def __repr__(self) -> str:
        return repr(self.scheduler)
