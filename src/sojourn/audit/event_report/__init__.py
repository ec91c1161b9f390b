"""Makes a report of recorded events (`SOJOURN_EVENTS=file`), as a page and as a picture.

`story.py` turns lines into sessions; `drawing.py` and `page.py` make the HTML, `picture.py` the
PNG.
"""

from sojourn.audit.event_report.story import SessionStory, Story, read, tell

__all__ = ["SessionStory", "Story", "read", "tell"]
