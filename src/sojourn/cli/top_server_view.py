"""The live view of `sojourn top --server`. Needs textual, and is imported only for a terminal."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import click
from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widgets import Footer, Static

from sojourn.cli.top_server import VIEWS, State, heading


class ServerView(App[None]):  # type: ignore[misc]
    """Shows one view at a time, refreshed at the interval."""

    TITLE = "sojourn top"
    ENABLE_COMMAND_PALETTE = False
    CSS = "#heading { height: 1; padding: 0 1; text-style: bold; } #view { padding: 1; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(str(at), f"show('{name}')", name) for at, name in enumerate(VIEWS, 1)),
        Binding("q", "quit", "quit"),
    ]

    def __init__(self, look: Callable[[], State], url: str, interval: float) -> None:
        super().__init__()
        self._look = look
        self._url = url
        self._interval = interval
        self._view = next(iter(VIEWS))
        self._state: State | None = None

    def compose(self) -> ComposeResult:
        """Yield the heading, the view and the keys."""
        yield Static("looking ...", id="heading", markup=False)
        with VerticalScroll():
            yield Static("", id="view", markup=False)
        yield Footer()

    def on_mount(self) -> None:
        """Start polling the server."""
        self._ask()
        self.set_interval(self._interval, self._ask)

    def action_show(self, name: str) -> None:
        """Switch to another view."""
        self._view = name
        self._show()

    def _ask(self) -> None:
        self.run_worker(self._read, thread=True, exclusive=True)

    def _read(self) -> None:
        try:
            state = self._look()
        except click.ClickException as error:
            self.call_from_thread(self.query_one("#heading", Static).update, error.message)
            return
        self.call_from_thread(self._take, state)

    def _take(self, state: State) -> None:
        self._state = state
        self._show()

    def _show(self) -> None:
        if self._state is not None:
            self.query_one("#heading", Static).update(heading(self._state, self._url))
            lines = VIEWS[self._view](self._state, max(40, self.size.width - 4))
            self.query_one("#view", Static).update(Text("\n".join(lines), no_wrap=True))
