"""The backend in a worker of its own. Imported only on platforms that can isolate processes."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sojourn import events
from sojourn.errors import SandboxError
from sojourn.probes import gpu
from sojourn.process import spares
from sojourn.process.calls import NoAnswer, WorkerDied
from sojourn.process.limits import descendants
from sojourn.process.worker import Worker
from sojourn.session.backend import Account
from sojourn.values import Footprint, Residue, caller

if TYPE_CHECKING:
    from sojourn.process.sandbox import Applied
    from sojourn.process.spares import TakeSpare


class WorkerBackend:
    """A worker process: a spare one if one is ready, else a new one. With `on_gpu`, its device
    memory is read from the driver."""

    def __init__(
        self,
        name: str,
        *,
        on_gpu: bool = False,
        take_spare: TakeSpare | None = None,
        **options: Any,
    ) -> None:
        spare = None if take_spare is None else spares.hand_over(take_spare, name, **options)
        self.worker = worker = spare or Worker(name, **options)
        self.step, self.astep = worker.step, worker.astep
        self.call, self.acall = worker.call, worker.acall
        self.answer_with, self.is_calling_us = worker.answer_with, worker.is_calling_us
        self.settle, self.drain_awaited = worker.settle, worker.drain_awaited
        self.death, self.kill, self.release = worker.death, worker.kill, worker.release
        self._on_gpu = on_gpu
        self.sandbox: Applied | None = None
        if options.get("readable_paths") is not None:
            try:
                self._learn_what_is_in_force(options.get("deadline"))
            except BaseException:  # a Ctrl-C, or a warning that was turned into an error
                worker.kill()
                worker.end()
                worker.release()
                raise

    def _learn_what_is_in_force(self, deadline: float | None) -> None:
        """Ask the worker which restrictions are in force, before it loads a model that could
        falsify the answer."""
        from sojourn.process.sandbox import Applied

        try:
            self.sandbox, _ = self.call("sandbox", {}, result=Applied, deadline=deadline)
        except (SandboxError, WorkerDied, NoAnswer):
            return  # loading the model, which is next, raises the same error
        if not self.sandbox.is_whole:
            name, missing = self.worker.name, self.sandbox.missing
            events.emit("sandbox.incomplete", name, worker_pid=self.pid, missing=list(missing))
            place = caller()
            warnings.warn_explicit(
                f"the untrusted model of {name!r} is not closed off: {self.sandbox}",
                *(RuntimeWarning, place.file, place.line),
            )

    @property
    def pid(self) -> int:
        return self.worker.pid

    @property
    def pidfd(self) -> int:
        return self.worker.pidfd

    def footprint(self) -> Footprint:
        """The memory that the worker holds now, on the host and on devices."""
        held = self.worker.footprint()
        if not self._on_gpu:
            return held
        return replace(held, device_bytes=gpu.held_by({self.pid, *descendants(self.pid)}))

    def end(self, held: Footprint) -> Account:
        ending = self.worker.end()
        if ending.left:
            return Account(
                0, Residue(ending.left, host_bytes=held.host_bytes, device_bytes=held.device_bytes)
            )
        # The worker has been reaped, so the kernel has taken its private memory back. Memory shared
        # with us is freed with our mappings: no other process has any. The driver may take longer.
        left = gpu.wait_until_back({self.pid}) if self._on_gpu else {}
        back = {uuid: max(0, n - left.get(uuid, 0)) for uuid, n in held.device_bytes.items()}
        return Account(held.host_bytes, Residue(device_bytes=left), returned_on_device=back)
