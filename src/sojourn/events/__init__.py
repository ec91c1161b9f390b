"""Events and their listeners. They cost next to nothing while there are no listeners.

`bus.py` delivers events. There are three listeners: `logs.py`, the standard `logging`; `lines.py`,
a file of JSON lines (`SOJOURN_EVENTS=file`); and `spans.py`, OpenTelemetry (after `trace()`).
"""

import os

from sojourn.events import bus, logs
from sojourn.events.bus import Event, emit, hears_steps, is_listening, subscribe, wants_bytes
from sojourn.events.lines import write_lines, write_lines_when_there_are_some
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

bus.log_with(logs.write, logs.is_heard)
if _path := os.environ.get("SOJOURN_EVENTS"):
    write_lines_when_there_are_some(_path)
