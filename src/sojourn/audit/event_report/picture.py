"""Draws the report as a picture with matplotlib: memory, sessions and latencies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sojourn.audit.canvas import byte_ticks
from sojourn.audit.event_report.drawing import lanes_of, stepped
from sojourn.audit.event_report.story import Story, in_words
from sojourn.probes.status_page import BUCKETS, bucket_seconds
from sojourn.values import format_bytes, format_seconds

_LINE, _OPEN, _LEAK, _DIED = "#2f6fde", "#6b9ceb", "#f0b6b2", "#c8322b"
_MOST_CURVES = 6


def draw(story: Story, path: Path, title: str = "") -> None:
    """Write the picture. Needs matplotlib; no window is opened."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    lanes = lanes_of(story.sessions)
    tall = max(1.2, 0.24 * len(lanes) + 0.5)
    figure = Figure(figsize=(11, 2.6 + tall + 2.6 + 1.0), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    memory, bars, latency = figure.subplots(3, 1, height_ratios=[2.6, tall, 2.6])
    bars.sharex(memory)
    figure.suptitle(f"sojourn report: {title}" if title else "sojourn report", x=0.01, ha="left")
    _memory(memory, story)
    _bars(bars, story, lanes)
    _latency(latency, story)
    for axes in (memory, bars, latency):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(True, axis="x", color="#dfe3ea", linewidth=0.8)
        axes.set_axisbelow(True)
    figure.savefig(path)


def _memory(axes: Any, story: Story) -> None:
    from matplotlib.ticker import FuncFormatter

    samples = stepped(story.held)
    times, sizes = [at for at, _ in samples], [size for _, size in samples]
    axes.fill_between(times, sizes, color=_LINE, alpha=0.14, linewidth=0)
    axes.plot(times, sizes, color=_LINE, linewidth=1.4)
    axes.set_title(f"held by all sessions, peak {format_bytes(story.peak_bytes)}", loc="left")
    axes.set_ylim(0, max(max(sizes) * 1.12, 2**20))
    axes.set_xlim(0, story.shown_seconds)
    axes.set_yticks(byte_ticks(axes.get_ylim()[1]))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda size, _: format_bytes(int(size))))


def _bars(axes: Any, story: Story, lanes: Any) -> None:
    for row, (_, sessions) in enumerate(lanes):
        for session in sessions:
            end = story.shown_seconds if session.closed_at is None else session.closed_at
            ready = end if session.ready_at is None else session.ready_at
            colour = _OPEN if session.closed_at is not None else _LEAK
            axes.barh(row, ready - session.opened_at, 0.25, session.opened_at, color="#98a3b5")
            axes.barh(row, end - ready, 0.6, ready, color=colour)
            axes.plot(session.broke_at, [row] * len(session.broke_at), "o", color=_DIED)
    axes.set_yticks(range(len(lanes)), [label[-40:] for label, _ in lanes], fontsize=8)
    axes.set_ylim(max(len(lanes), 1) - 0.4, -0.6)
    axes.set_title("sessions (grey: opening, red: not closed, dot: the worker died)", loc="left")
    axes.set_xlabel("seconds")


def _latency(axes: Any, story: Story) -> None:
    from matplotlib.ticker import FuncFormatter

    busiest = story.latencies()[:_MOST_CURVES]
    edges = [bucket_seconds(index - 1) if index else 5e-7 for index in range(BUCKETS + 1)]
    for name, counts in busiest:
        total = sum(counts)
        axes.stairs(
            [count / total for count in counts],
            edges,
            label=f"{name[-40:]}: {in_words(counts)}",
            linewidth=1.6,
        )
    axes.set_title("how long runs took", loc="left")
    used = [i for _, counts in busiest for i, count in enumerate(counts) if count]
    axes.set_xscale("log", base=2)
    if used:
        axes.set_xlim(edges[max(0, min(used) - 1)], edges[min(BUCKETS, max(used) + 2)])
        # Below the axes, where the legend hides no curve.
        axes.legend(
            fontsize=8, frameon=False, ncols=2, loc="upper left", bbox_to_anchor=(0.0, -0.1)
        )
    axes.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{share:.0%}"))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda at, _: format_seconds(at)))
