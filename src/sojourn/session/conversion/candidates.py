"""What was found out about a model and other engines, as plain values."""

from __future__ import annotations

import msgspec

TENSORFLOW, FASTEST = "tensorflow", "fastest"
# engine -> the kind of model it runs, and the package that it comes in
ENGINES = {"onnxruntime": ("onnx", "onnxruntime"), "litert": ("tflite", "ai-edge-litert")}
CHOICES = (TENSORFLOW, *ENGINES, FASTEST)  # for `engine=`


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """One engine for one model."""

    engine: str
    version: str
    refusal: str = ""  # why it is not to be used
    is_passing: bool = False  # which may be otherwise the next time
    most: float | None = None  # for NaN and floats beyond it gives other answers
    is_shown: bool = False  # by outputs that are not finite, wherever it gives others for NaN
    only_some: bool = False  # so it does for no rows at all
    threads: int | None = None  # that it was fastest with; None for one on each core
    file: str = ""  # in the folder of the entry
    sha256: str = ""
    checks: int = 0  # inputs that it was compared with TensorFlow on
    worst: float = 0.0  # the largest difference
    tolerance: float = 0.0
    ratios: dict[int, float] = {}  # batch size -> its time by TensorFlow's
    held_bytes: int = 0
    open_seconds: float = 0.0
    convert_seconds: float = 0.0

    @property
    def agrees(self) -> bool:
        """Whether it gives the same answers."""
        return not self.refusal

    @property
    def name(self) -> str:
        """With its version."""
        return f"{self.engine} {self.version}".strip()

    @property
    def proof(self) -> str:
        """How well it agrees."""
        return f"(worst difference {self.worst:.0e}, tolerance {self.tolerance:.0e})"

    def gain(self, batch: int) -> str:
        """How it does at a batch size."""
        ratio = self.ratios[batch]
        if 0.95 < ratio < 1.05:
            speed = "as fast as"
        else:
            speed = f"{1 / ratio:.1f}x faster than" if ratio < 1 else f"{ratio:.1f}x slower than"
        alone = " on one thread" if self.threads == 1 else ""
        return f"{speed} tensorflow at batch {batch}{alone}"

    def __str__(self) -> str:
        if self.refusal:
            return f"{self.name}: refused: {self.refusal}"
        if not self.ratios:
            return f"{self.name} {self.proof}"
        batches = dict.fromkeys((min(self.ratios), min(self.ratios, key=self.ratios.__getitem__)))
        return f"{self.name}: {', '.join(map(self.gain, batches))} {self.proof}"


class Examined(msgspec.Struct, frozen=True):
    """Every engine that was looked at."""

    candidates: list[Candidate]
    inputs: list[str]  # the names that those of the files stand for, in order
    outputs: list[str]
    held_bytes: int = 0  # by TensorFlow's session
    open_seconds: float = 0.0
    folder: str = ""  # where the files are

    @property
    def may_pass(self) -> bool:
        """Whether something was refused for a reason that has nothing to do with the model."""
        return any(one.is_passing for one in self.candidates)

    def of(self, engine: str) -> Candidate:
        """What is known of one engine."""
        return next(one for one in self.candidates if one.engine == engine)
