"""Choose the device of a session. Pure: takes the GPUs that were found, returns a choice.

A worker is confined to its device by `CUDA_VISIBLE_DEVICES` in its environment, set before CUDA
starts there: by UUID, because numbers mean different devices to different libraries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sojourn.errors import DeviceError
from sojourn.probes.gpu import Gpu
from sojourn.values import format_bytes

# A device with fewer free bytes counts as full: CUDA's own context would hardly fit.
_LEAST_BYTES = 512 * 2**20
_NO_GPU = {"CUDA_VISIBLE_DEVICES": "-1"}


@dataclass(frozen=True, slots=True)
class Choice:
    """The device of a session: its label, the worker's environment, and a warning for the user."""

    label: str
    gpu: Gpu | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    warning: str = ""

    @property
    def on_gpu(self) -> bool:
        """Whether the session may hold memory on a GPU."""
        return self.label.startswith("gpu")


def choose(
    wanted: str, gpus: Sequence[Gpu], visible: str | None = None, needed_bytes: int | None = None
) -> Choice:
    """Choose the device for `"auto"`, `"cpu"`, `"gpu"`, `"gpu:1"` or `"gpu:<uuid>"`.

    `visible` is the caller's own CUDA_VISIBLE_DEVICES: GPUs that it hides are never chosen, and
    numbers count only those that it shows.
    """
    kind, _, which = wanted.partition(":")
    kind = kind.lower()
    if kind not in ("auto", "cpu", "gpu") or (which and kind != "gpu"):
        raise ValueError(f"device must be auto, cpu, gpu, gpu:1 or gpu:<uuid>, not {wanted!r}")
    if kind == "cpu":
        return Choice("cpu", environment=_NO_GPU)
    shown = _shown(gpus, visible)
    if kind == "auto":
        return _automatic(shown, needed_bytes)
    if not shown:
        raise DeviceError(f"there is no {wanted!r} here: {_found(gpus, visible)}")
    if not which:
        return _on(shown, _roomiest(shown))
    if which.isdigit():
        if int(which) >= len(shown):
            raise DeviceError(f"there is no {wanted!r} here: {_found(shown, None)}")
        return _on(shown, shown[int(which)])
    matching = [gpu for gpu in shown if gpu.uuid.lower().startswith(_full(which))]
    if len(matching) != 1:
        trouble = "there is no" if not matching else "more than one matches"
        raise DeviceError(f"{trouble} {wanted!r} here: {_found(shown, None)}")
    return _on(shown, matching[0])


def without_gpu() -> dict[str, str]:
    """The environment of a worker that is made before its session: for the CPU, because a GPU must
    be chosen before TensorFlow starts."""
    return dict(_NO_GPU)


def everything(gpus: Sequence[Gpu], visible: str | None = None, only: str | None = None) -> Choice:
    """All GPUs that the caller sees, none hidden, for code that chooses among them by itself.

    `only` lists those that the code will use, in the syntax of `visible`.
    """
    shown = _shown(gpus, visible)
    used = [str(shown.index(gpu)) for gpu in _shown(shown, only)]
    return Choice(f"gpu:{','.join(used)}" if used else "cpu")


def _automatic(shown: Sequence[Gpu], needed_bytes: int | None) -> Choice:
    if not shown:
        return Choice("cpu", environment=_NO_GPU)
    best = _roomiest(shown)
    needed = max(_LEAST_BYTES, needed_bytes or 0)
    if best.free_bytes is not None and best.free_bytes < needed:
        return Choice(
            "cpu",
            environment=_NO_GPU,
            warning=f"no GPU has {format_bytes(needed)} free, so the session runs on the CPU: "
            + _found(shown, None),
        )
    return _on(shown, best)


def _on(shown: Sequence[Gpu], gpu: Gpu) -> Choice:
    environment = {"CUDA_VISIBLE_DEVICES": gpu.uuid, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    return Choice(f"gpu:{shown.index(gpu)}", gpu, environment)


def _roomiest(gpus: Sequence[Gpu]) -> Gpu:
    return max(gpus, key=lambda gpu: gpu.free_bytes or 0)


def _shown(gpus: Sequence[Gpu], visible: str | None) -> list[Gpu]:
    if visible is None:
        return list(gpus)
    shown: list[Gpu] = []
    for entry in visible.split(","):
        entry = entry.strip()
        if entry.isdigit() and int(entry) < len(gpus):
            shown.append(gpus[int(entry)])
            continue
        matching = [gpu for gpu in gpus if entry and gpu.uuid.lower().startswith(_full(entry))]
        if len(matching) != 1:
            break  # as in CUDA: everything after an unknown entry is hidden
        shown.append(matching[0])
    return shown


def _full(uuid: str) -> str:
    lower = uuid.lower()
    return lower if lower.startswith("gpu-") else f"gpu-{lower}"


def _found(gpus: Sequence[Gpu], visible: str | None) -> str:
    if not gpus:
        return "no GPU was found, only the CPU"
    listed = ", ".join(
        f"gpu:{i} {gpu.name} ({gpu.uuid}"
        + (f", {format_bytes(gpu.free_bytes)} free)" if gpu.free_bytes is not None else ")")
        for i, gpu in enumerate(gpus)
    )
    hidden = f", and CUDA_VISIBLE_DEVICES={visible!r} hides them" if visible is not None else ""
    return f"found {listed}{hidden}"
