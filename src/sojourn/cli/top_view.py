"""The live view of `sojourn top`. Needs textual, and is imported only for a terminal."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import DataTable, Footer, Static

from sojourn.cli.top_table import COLUMNS, KEYS, ordered, summary
from sojourn.session.listing import Listed, Lister

_STATE_STYLES = {
    "ready": "green",
    "running": "bold green",
    "broken": "bold red",
    "draining": "yellow",
    "opening": "yellow",
    "parking": "yellow",
}


class TopView(App[None]):  # type: ignore[misc]
    """Shows a table of sessions, refreshed at the interval."""

    TITLE = "sojourn top"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #summary { height: 1; padding: 0 1; text-style: bold; }
    DataTable { height: 1fr; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("s", "sort_by(1)", "sort by next"),
        Binding("S", "sort_by(-1)", "previous", show=False),
        Binding("r", "reverse", "reverse"),
        Binding("space", "pause", "pause"),
        Binding("q", "quit", "quit"),
    ]

    def __init__(self, sort: str, reverse: bool, interval: float) -> None:
        super().__init__()
        self._sort = sort
        self._reverse = reverse
        self._interval = interval
        self._lister = Lister()
        self._sessions: list[Listed] = []
        self._is_paused = False

    def compose(self) -> ComposeResult:
        """Yield the line of totals, the table and the keys."""
        yield Static("looking ...", id="summary", markup=False)
        yield DataTable(cursor_type="row", zebra_stripes=True)
        yield Footer()

    def on_mount(self) -> None:
        """Start listing the sessions at the interval."""
        self._show_columns()
        self._look()
        self.set_interval(self._interval, self._look)

    def on_data_table_header_selected(self, event: DataTable.HeaderSelected) -> None:
        """Sort by the clicked column; reverse the order if the table is sorted by it already."""
        key = str(event.column_key.value)
        self._sort, self._reverse = key, not self._reverse if key == self._sort else False
        self._show_columns()
        self._show()

    def action_sort_by(self, step: int) -> None:
        """Sort by the next or previous column."""
        self._sort = KEYS[(KEYS.index(self._sort) + step) % len(KEYS)]
        self._show_columns()
        self._show()

    def action_reverse(self) -> None:
        """Reverse the sort order."""
        self._reverse = not self._reverse
        self._show_columns()
        self._show()

    def action_pause(self) -> None:
        """Pause or resume refreshing."""
        self._is_paused = not self._is_paused
        self._show()

    def _look(self) -> None:
        # Reading the memory of many workers takes a while, so it runs outside the UI's thread.
        if not self._is_paused:
            self.run_worker(self._read, thread=True, exclusive=True)

    def _read(self) -> None:
        sessions = self._lister.list()
        self.call_from_thread(self._take, sessions)

    def _take(self, sessions: list[Listed]) -> None:
        self._sessions = sessions
        self._show()

    def _show_columns(self) -> None:
        table = self.query_one(DataTable)
        table.clear(columns=True)
        for column in COLUMNS:
            arrow = ""
            if column.key == self._sort:
                arrow = " ▼" if column.largest_first != self._reverse else " ▲"
            title = Text(column.title + arrow, justify="right" if column.is_number else "left")
            table.add_column(title, key=column.key)

    def _show(self) -> None:
        table = self.query_one(DataTable)
        row, scrolled = table.cursor_row, table.scroll_offset
        table.clear()
        for session in ordered(self._sessions, self._sort, self._reverse):
            table.add_row(*(self._cell(column.key, session) for column in COLUMNS))
        table.move_cursor(row=row)
        table.scroll_to(scrolled.x, scrolled.y, animate=False)
        text = summary(self._sessions) if self._sessions else "no sessions"
        self.query_one("#summary", Static).update(text + " (paused)" * self._is_paused)

    def _cell(self, key: str, session: Listed) -> Text:
        column = COLUMNS[KEYS.index(key)]
        style = _STATE_STYLES.get(session.state, "") if key == "state" else ""
        return Text(column.shown(session), style, justify="right" if column.is_number else "left")
