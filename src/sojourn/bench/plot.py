"""The rows of a benchmark as a picture."""

from __future__ import annotations

from collections.abc import Sequence

from sojourn.bench.harness import Row


def draw(rows: Sequence[Row], path: str) -> None:
    """Draw a bar per ratio, with its limit as a line; 1.0 is raw. Needs the `plot` extra."""
    from matplotlib.figure import Figure

    compared = [row for row in rows if row.ratio is not None]
    if not compared:
        raise ValueError("none of the rows compares anything, so there is nothing to draw")
    figure = Figure(figsize=(9, 0.6 * len(compared) + 1.6), layout="constrained")
    axes = figure.subplots()
    names = [f"{row.work}\nagainst {row.against}" for row in compared]
    ratios = [row.ratio or 0.0 for row in compared]
    colours = ["#c0392b" if row.meets_bar is False else "#2d7d6f" for row in compared]
    bars = axes.barh(names, ratios, color=colours, height=0.6)
    axes.bar_label(bars, [f"{ratio:.3g}" for ratio in ratios], padding=4)
    for place, row in enumerate(compared):
        if row.bar is not None:
            axes.plot([row.bar, row.bar], [place - 0.4, place + 0.4], color="black", linewidth=2)
    axes.axvline(1.0, color="grey", linestyle=":", linewidth=1)
    axes.set_xscale("log")
    axes.set_xlabel("ratio to the baseline (lower is better; black: the bar; dotted: equal)")
    axes.invert_yaxis()
    axes.spines[["top", "right"]].set_visible(False)
    axes.margins(x=0.15)
    figure.savefig(path, dpi=130)
