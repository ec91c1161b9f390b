"""A report from recorded events (`SOJOURN_EVENTS=file`): what happened, as a page and a picture.

`story.py` makes sessions of lines; `drawing.py` and `page.py` the HTML, `picture.py` the PNG.
"""

from sojourn.audit.event_report.story import SessionStory, Story, read, tell

__all__ = ["SessionStory", "Story", "read", "tell"]
