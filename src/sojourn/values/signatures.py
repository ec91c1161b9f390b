"""The inputs and outputs of a model: names, dtypes and shapes, readable without TensorFlow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sojourn.errors import InputError
from sojourn.values import html


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One input or output. `None` in a shape means any size; a shape of `None` means any rank."""

    dtype: str
    shape: tuple[int | None, ...] | None

    def __str__(self) -> str:
        if self.shape is None:
            return f"{self.dtype}[...]"
        return f"{self.dtype}[{', '.join('?' if d is None else str(d) for d in self.shape)}]"

    def accepts(self, shape: tuple[int, ...]) -> bool:
        """Whether an array of this shape fits."""
        if self.shape is None:
            return True
        return len(shape) == len(self.shape) and all(
            want is None or want == got for want, got in zip(self.shape, shape, strict=True)
        )

    def filled(self, name: str, dimensions: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of an array for this input, its unknown dimensions filled in order."""
        if self.shape is None:
            return dimensions
        unknown = self.shape.count(None)
        if len(dimensions) != unknown:
            raise InputError(
                f"input {name!r} takes {self}: {unknown} unknown dimension(s), and "
                f"{len(dimensions)} given"
            )
        given = iter(dimensions)
        return tuple(next(given) if dim is None else dim for dim in self.shape)


@dataclass(frozen=True, slots=True)
class Signature:
    """The inputs and outputs of a model, in order."""

    inputs: Mapping[str, TensorSpec] = field(default_factory=dict)
    outputs: Mapping[str, TensorSpec] = field(default_factory=dict)

    def __str__(self) -> str:
        def listed(specs: Mapping[str, TensorSpec]) -> str:
            return ", ".join(f"{name}: {spec}" for name, spec in specs.items())

        return f"({listed(self.inputs)}) -> ({listed(self.outputs)})"

    def _repr_html_(self) -> str:
        count = f"{len(self.inputs)} in, {len(self.outputs)} out"
        return html.card("signature", "", (count, html.CALM), self.html_table())

    def html_table(self) -> str:
        """Return the inputs and outputs as a table, for a notebook."""
        rows = [
            [role, name, spec.dtype, str(spec).removeprefix(spec.dtype)]
            for role, specs in (("input", self.inputs), ("output", self.outputs))
            for name, spec in specs.items()
        ]
        return html.table(["", "name", "dtype", "shape"], rows)
