"""Judge whether a machine has what sojourn needs.

Pure functions turn facts, which `machine.py` collects, into verdicts with cures.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from sojourn.probes.gpu import Gpu
from sojourn.values import format_bytes

OK, WARNING, PROBLEM = "ok", "warning", "problem"
# Distributions that all install a package called `tensorflow` and overwrite each other's files.
BUILDS = (
    "tensorflow", "tensorflow-cpu", "tensorflow-gpu", "tensorflow-intel", "tensorflow-rocm",
    "tensorflow-macos", "tensorflow-cpu-aws", "intel-tensorflow", "tf-nightly", "tf-nightly-cpu",
    "tf-nightly-gpu",
)  # fmt: skip
_WITHOUT_GPU = ("tensorflow-cpu", "tensorflow-intel", "tensorflow-cpu-aws", "tf-nightly-cpu")
_OLDEST_PYTHON, _NEWEST_PYTHON = (3, 10), (3, 13)
_OLDEST_TENSORFLOW = (2, 16)
_DESCRIPTORS_LOW, _DESCRIPTORS_TOO_LOW = 1024, 256  # a session takes one or two dozen
_THREADS_LOW = 512  # TensorFlow starts several per core, in every worker
_MEMORY_LOW = 2 * 2**30  # bytes; importing TensorFlow alone takes a third of it


@dataclass(frozen=True, slots=True)
class Facts:
    """What was found on the machine. None means unlimited or not known, depending on the field."""

    python: tuple[int, int, int] = (3, 11, 0)
    is_64_bit: bool = True
    platform: str = "linux"
    builds: Mapping[str, str] = field(default_factory=dict)  # distribution -> version
    tensorflow_is_whole: bool = True  # its package has the files that its import begins with
    has_driver: bool = False
    has_nvml: bool = False  # the binding is installed and the driver answers it
    gpus: tuple[Gpu, ...] = ()
    has_cudnn: bool = True
    visible_devices: str | None = None  # CUDA_VISIBLE_DEVICES, None if it is not set
    features: Mapping[str, str] = field(default_factory=dict)  # feature -> why it fails, or ""
    max_descriptors: int | None = None  # None: unlimited
    max_processes: int | None = None
    max_file_bytes: int | None = None
    memory_limit: int | None = None  # of the cgroup or of the machine
    is_limited_by_cgroup: bool = False
    memory_used: int = 0
    kills_for_memory: int = 0  # by the kernel in this cgroup, so far
    stale: tuple[tuple[int, str], ...] = ()  # pid and name of processes whose client has ended


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the report: what was checked, the verdict, and what to do about it."""

    name: str
    verdict: str
    text: str
    cure: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return asdict(self)


def examine(facts: Facts) -> list[Check]:
    """Return every check, in the order in which problems are best fixed."""
    return [
        _python(facts),
        *_tensorflow(facts),
        *_gpu(facts),
        *_features(facts),
        *_limits(facts),
        *_memory(facts),
        _stale(facts),
    ]


def _python(facts: Facts) -> Check:
    shown = ".".join(map(str, facts.python))
    if not _OLDEST_PYTHON <= facts.python[:2] <= _NEWEST_PYTHON:
        return Check("python", PROBLEM, f"Python {shown}", "Use Python 3.10 to 3.13.")
    if not facts.is_64_bit:
        return Check("python", PROBLEM, f"Python {shown}, 32 bits", "Use a 64-bit Python.")
    return Check("python", OK, f"Python {shown}")


def _tensorflow(facts: Facts) -> Iterator[Check]:
    listed = " and ".join(f"{name} {version}" for name, version in facts.builds.items())
    if not facts.builds:
        cure = "pip install 'sojourn[cpu]', or 'sojourn[gpu]' for NVIDIA's."
        yield Check("tensorflow", PROBLEM, "TensorFlow is not installed", cure)
    elif len(facts.builds) > 1:
        keep = next(iter(facts.builds))
        cure = (
            "They overwrite each other's files, and uninstalling one breaks the other: "
            f"pip uninstall {' '.join(facts.builds)}, then pip install {keep}."
        )
        yield Check("tensorflow", PROBLEM, f"{listed} are installed side by side", cure)
    elif not facts.tensorflow_is_whole:
        [name] = facts.builds
        cure = f"pip install --force-reinstall --no-deps {name}"
        yield Check("tensorflow", PROBLEM, f"{listed} is installed, but files are missing", cure)
    elif _numbers(next(iter(facts.builds.values()))) < _OLDEST_TENSORFLOW:
        cure = "sojourn is tested with TensorFlow 2.16 and later."
        yield Check("tensorflow", WARNING, f"{listed} is old", cure)
    else:
        yield Check("tensorflow", OK, listed)


def _gpu(facts: Facts) -> Iterator[Check]:
    if not facts.has_driver and not facts.gpus:
        yield Check("gpu", OK, "no NVIDIA driver: sessions run on the CPU")
        return
    if not facts.gpus:
        cure = "See whether nvidia-smi works; driver and kernel module may differ."
        yield Check("gpu", WARNING, "there is an NVIDIA driver, but no device answers", cure)
        return
    names = ", ".join(gpu.name for gpu in facts.gpus)
    count = len(facts.gpus)
    yield Check("gpu", OK, f"{count} GPU{'s' * (count != 1)}: {names}")
    if not facts.has_nvml:
        cure = "pip install nvidia-ml-py (or 'sojourn[gpu]')."
        yield Check("gpu bytes", WARNING, "what sessions hold there is not measured", cure)
    build = next(iter(facts.builds), "")
    if build in _WITHOUT_GPU:
        cure = f"pip uninstall {build}, then pip install 'tensorflow[and-cuda]'."
        yield Check("gpu build", WARNING, f"{build} does not use GPUs", cure)
    elif build and not facts.has_cudnn:
        cure = "pip install 'tensorflow[and-cuda]'."
        yield Check("gpu build", WARNING, "cuDNN was not found: sessions run on the CPU", cure)
    visible = facts.visible_devices
    if visible is None:
        yield Check("cuda visibility", OK, "CUDA_VISIBLE_DEVICES is not set: all are visible")
    elif visible.strip() in ("", "-1", "none", "NoDevFiles"):
        text = f"CUDA_VISIBLE_DEVICES={visible!r} hides every GPU"
        yield Check("cuda visibility", WARNING, text, "unset CUDA_VISIBLE_DEVICES")
    else:
        yield Check("cuda visibility", OK, f"CUDA_VISIBLE_DEVICES={visible}")


def _features(facts: Facts) -> Iterator[Check]:
    if not facts.platform.startswith("linux"):
        cure = 'Use Linux, or open sessions with isolation="inline".'
        yield Check("system", PROBLEM, f"process isolation needs Linux, not {facts.platform}", cure)
        return
    for feature, failure in facts.features.items():
        if failure:
            cure = "Use Linux 5.4 or later; in a container, see what its seccomp profile forbids."
            yield Check(feature, PROBLEM, f"does not work: {failure}", cure)
        else:
            yield Check(feature, OK, "tried, works")


def _limits(facts: Facts) -> Iterator[Check]:
    most = facts.max_descriptors
    if most is not None and most < _DESCRIPTORS_LOW:
        verdict = PROBLEM if most < _DESCRIPTORS_TOO_LOW else WARNING
        cure = "A session takes a dozen or two: ulimit -n 4096."
        yield Check("descriptors", verdict, f"a process may have {most}", cure)
    else:
        yield Check("descriptors", OK, f"a process may have {_amount(most)}")
    most = facts.max_processes
    if most is not None and most < _THREADS_LOW:
        cure = "Every worker has threads for each core: ulimit -u 4096."
        yield Check("processes", WARNING, f"this user may have {most}, threads included", cure)
    else:
        yield Check("processes", OK, f"this user may have {_amount(most)}")
    if facts.max_file_bytes is not None:
        text = f"files may have {format_bytes(facts.max_file_bytes)}, and arrays cross in files"
        yield Check("file size", WARNING, text, "ulimit -f unlimited")


def _memory(facts: Facts) -> Iterator[Check]:
    limit = facts.memory_limit
    if limit is None:
        return
    whose = "the cgroup" if facts.is_limited_by_cgroup else "the machine"
    text = f"{whose} has {format_bytes(limit)}, {format_bytes(facts.memory_used)} in use"
    if limit < _MEMORY_LOW:
        cure = "TensorFlow alone takes about 0.7 GiB, and each session comes on top."
        yield Check("memory", WARNING, text, cure)
    else:
        yield Check("memory", OK, text)
    if facts.kills_for_memory:
        count = facts.kills_for_memory
        text = f"the kernel has killed {count} process{'es' * (count != 1)} here for lack of it"
        yield Check("memory kills", WARNING, text, "Raise the limit, or give sessions memory=.")


def _stale(facts: Facts) -> Check:
    if not facts.stale:
        return Check("stale processes", OK, "none")
    listed = ", ".join(f"{pid} ({name})" for pid, name in facts.stale)
    cure = "kill " + " ".join(str(pid) for pid, _ in facts.stale)
    return Check("stale processes", PROBLEM, f"without their client: {listed}", cure)


def _numbers(version: str) -> tuple[int, ...]:
    numbers = []
    for part in version.split(".")[:2]:
        digits = "".join(c for c in part if c.isdigit())
        numbers.append(int(digits or 0))
    return tuple(numbers)


def _amount(most: int | None) -> str:
    return "any number" if most is None else str(most)
