"""The worker of a call: asked to end after the call, killed if the call was given up."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, TextIO

from sojourn.process.output import Output
from sojourn.session.backend import Account
from sojourn.session.isolation import WorkerBackend
from sojourn.values import Footprint


class CallBackend(WorkerBackend):
    """A worker process that shows its last output when it has ended."""

    ends_abruptly = False

    def __init__(self, name: str, label: str, **options: Any) -> None:
        super().__init__(name, **options)
        if label:
            self.worker.output = _LabelledOutput(self.worker.output, label)

    def end(self, held: Footprint) -> Account:
        if self.ends_abruptly:
            self.kill()  # without grace: the user has pressed Ctrl-C and waits
        account = super().end(held)
        self.worker.output.show()
        if isinstance(self.worker.output, _LabelledOutput):
            self.worker.output.show_rest()
        return account


class _LabelledOutput(Output):
    """Writes whole lines with a label before each, because several workers print at a time."""

    def __init__(self, plain: Output, label: str) -> None:
        self.out, self.err = plain.out, plain.err
        self._label = label
        self._begun: dict[TextIO, str] = {}  # lines that have not ended yet

    def write(self, text: str, target: TextIO) -> None:
        *lines, rest = (self._begun.pop(target, "") + text).split("\n")
        if rest:
            self._begun[target] = rest[max(0, rest.rfind("\r", 0, -1)) :]
        if lines:
            super().write("".join(f"{self._label}{_left(line)}\n" for line in lines), target)

    def show_rest(self) -> None:
        """Write the last lines that have no newline yet."""
        for target in list(self._begun):
            with suppress(Exception):  # a stream that cannot be written to, as in `show`
                self.write("\n", target)


def _left(line: str) -> str:
    """Return what stays visible of a line that was redrawn with carriage returns, as by progress
    bars."""
    return line.rstrip("\r").rpartition("\r")[2]
