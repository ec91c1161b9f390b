"""What happened, told to whoever listens. Telling costs next to nothing when nobody does.

`bus.py` passes events on. There are three listeners: `logs.py`, the standard `logging`; `lines.py`,
a file of JSON lines (`SOJOURN_EVENTS=file`); and `spans.py`, OpenTelemetry for those who ask.
"""

import os

from sojourn.events import logs
from sojourn.events.bus import Event, emit, hears_steps, is_listening, subscribe, wants_bytes
from sojourn.events.lines import write_lines
from sojourn.events.spans import trace

__all__ = [
    "Event",
    "emit",
    "hears_steps",
    "is_listening",
    "subscribe",
    "trace",
    "wants_bytes",
    "write_lines",
]

subscribe(logs.write, wants_bytes=False)  # quiet unless the program has set up logging
if _path := os.environ.get("SOJOURN_EVENTS"):
    write_lines(_path)
