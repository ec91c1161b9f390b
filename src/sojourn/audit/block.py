"""One audit, from start to finish, and its findings."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, overload

from sojourn.audit.facts import Facts
from sojourn.audit.finding import Finding
from sojourn.audit.judge import judge
from sojourn.audit.noqa import heard
from sojourn.audit.watch import Watch, join_watch, leave_watch


class Found(Sequence[Finding]):
    """The findings of one audit. Empty until the audit ends, and also afterwards if all is well."""

    def __init__(self) -> None:
        self.findings: tuple[Finding, ...] = ()
        self.facts = Facts(())

    def __len__(self) -> int:
        return len(self.findings)

    @overload
    def __getitem__(self, index: int) -> Finding: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Finding]: ...
    def __getitem__(self, index: int | slice) -> Finding | Sequence[Finding]:
        return self.findings[index]

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

    def __repr__(self) -> str:
        codes = ", ".join(sorted({f.code for f in self})) or "nothing"
        return f"<Found {codes} in {len(self.facts.sessions)} sessions>"

    def __str__(self) -> str:
        return self.text()

    @property
    def codes(self) -> tuple[str, ...]:
        """The code of each finding, in order."""
        return tuple(finding.code for finding in self)

    def text(self, colour: bool = False) -> str:
        """The report for a terminal."""
        from sojourn.audit.text import render

        return render(self.findings, self.facts, colour)

    def html(self, title: str = "") -> str:
        """The report as one self-contained page."""
        from sojourn.audit.html import render

        return render(self.findings, self.facts, title)

    def write_html(self, path: str | os.PathLike[str], title: str = "") -> None:
        """Write the page to a file."""
        Path(path).write_text(self.html(title), encoding="utf-8")

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        from sojourn.audit.text import session_to_dict

        return {
            "findings": [finding.to_dict() for finding in self],
            "sessions": [session_to_dict(session) for session in self.facts.sessions],
            "seconds": round(self.facts.seconds, 3),
            "peak_bytes": max((size for _, size in self.facts.samples), default=0),
        }


class Audit:
    """Watches every raw TensorFlow session that is opened between `start` and `finish`.

    A `with` block does both: `with sojourn.audit() as found:`. Ignores sessions opened before it.
    """

    def __init__(self, *, goes_on: bool = True) -> None:
        self.found = Found()
        self._goes_on = goes_on
        self._watch: Watch | None = None
        self._pid = 0
        self._first = 0
        self._first_growth = 0
        self._began_at = 0.0
        self._exit_at: float | None = None

    def start(self) -> Found:
        """Start watching."""
        watch = self._watch = join_watch()
        self._pid = os.getpid()
        self._first = len(watch.sessions)
        self._first_growth = len(watch.growths)
        self._began_at = watch.now()
        return self.found

    def mark_exit(self) -> None:
        """Note that the program has ended; what follows is its clean-up."""
        if self._watch is not None:
            self._exit_at = self._watch.now()

    def finish(self) -> Found:
        """Stop watching and judge. May be called twice."""
        watch, self._watch = self._watch, None
        if watch is None or os.getpid() != self._pid:
            return self.found
        # Collect now: a session in an uncollected reference cycle must not count as in use.
        gc.collect()
        size = watch.meter.read()
        leave_watch()
        # Sessions opened before this audit are left out.
        self.found.facts = Facts(
            sessions=[replace(record) for record in watch.sessions[self._first :]],
            growths=tuple(watch.growths[self._first_growth :]),
            samples=tuple(s for s in watch.sampler.samples if s[0] >= self._began_at),
            began_at=self._began_at,
            ended_at=watch.now(),
            bytes_at_end=size,
            exit_at=self._exit_at,
            goes_on=self._goes_on,
        )
        self.found.findings = tuple(heard(judge(self.found.facts)))
        return self.found

    def __enter__(self) -> Found:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.finish()
