"""What happened, told to whoever listens. Telling costs next to nothing when nobody does.

`bus.py` passes events on; `logs.py` and `lines.py` are two listeners, the standard `logging` and a
file of JSON lines (`SOJOURN_EVENTS=file`).
"""

import os

from sojourn.events import logs
from sojourn.events.bus import Event, emit, hears_steps, is_listening, subscribe
from sojourn.events.lines import write_lines

__all__ = ["Event", "emit", "hears_steps", "is_listening", "subscribe", "write_lines"]

subscribe(logs.write)  # quiet unless the program has set up logging
if _path := os.environ.get("SOJOURN_EVENTS"):
    write_lines(_path)
