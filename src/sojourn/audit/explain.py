"""The page on the codes, as it is installed. `docs/codes.md` is the same page."""

from __future__ import annotations

import re
from importlib.resources import files


def page() -> str:
    """The whole page."""
    return files("sojourn.audit").joinpath("codes.md").read_text(encoding="utf-8")


def explain(code: str) -> str:
    """The section on one code, without its heading mark."""
    match = re.search(rf"^## {code}\n(.*?)(?=^## |\Z)", page(), re.MULTILINE | re.DOTALL)
    if match is None:
        raise KeyError(code)
    return f"{code}\n\n{match.group(1).strip()}"
