"""The facts about a model and other engines, as plain values."""

from __future__ import annotations

import msgspec

TENSORFLOW, FASTEST = "tensorflow", "fastest"
# engine -> the kind of model that it runs, and its package
ENGINES = {"onnxruntime": ("onnx", "onnxruntime"), "litert": ("tflite", "ai-edge-litert")}
CHOICES = (TENSORFLOW, *ENGINES, FASTEST)  # for `engine=`


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """The facts about one engine for one model."""

    engine: str
    version: str
    refusal: str = ""  # why the engine is not used
    is_passing: bool = False  # the refusal is temporary: the next try may succeed
    most: float | None = None  # its answers differ for NaN and larger floats; None: they never do
    is_shown: bool = False  # wherever its answers differ, the outputs are not finite
    only_some: bool = False  # its answers may differ for inputs without elements
    threads: int | None = None  # the number with which it was fastest; None: one for each core
    file: str = ""  # name in the folder of the entry
    sha256: str = ""
    checks: int = 0  # the number of inputs on which it was compared with TensorFlow
    worst: float = 0.0  # the largest difference
    tolerance: float = 0.0
    ratios: dict[int, float] = {}  # batch size -> its time divided by TensorFlow's
    held_bytes: int = 0
    open_seconds: float = 0.0
    convert_seconds: float = 0.0

    @property
    def agrees(self) -> bool:
        """Whether it gives the same answers."""
        return not self.refusal

    @property
    def name(self) -> str:
        """The engine with its version."""
        return f"{self.engine} {self.version}".strip()

    @property
    def proof(self) -> str:
        """How well its answers agree, in words."""
        return f"(worst difference {self.worst:.0e}, tolerance {self.tolerance:.0e})"

    def gain(self, batch: int) -> str:
        """Its speed at a batch size, in words."""
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
    """The facts about all engines that were tried."""

    candidates: list[Candidate]
    inputs: list[str]  # the model's names, in the order of the names in the converted files
    outputs: list[str]
    held_bytes: int = 0  # by TensorFlow's session
    open_seconds: float = 0.0
    folder: str = ""  # the folder of the converted files

    @property
    def may_pass(self) -> bool:
        """Whether something was refused for a reason that has nothing to do with the model."""
        return any(one.is_passing for one in self.candidates)

    def of(self, engine: str) -> Candidate:
        """The facts about one engine."""
        return next(one for one in self.candidates if one.engine == engine)
