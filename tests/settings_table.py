"""The tables of settings in docs/serving.md, made from the settings themselves.

Run as a program, it writes the tables into the page.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec

from sojourn.service.rules import ModelRules
from sojourn.service.settings import SETTINGS, Settings, _helps

PAGE = Path(__file__).parent.parent / "docs" / "serving.md"


def tables() -> dict[str, str]:
    """Return the tables by their names."""
    flags = {setting.name for setting in SETTINGS if setting.section}
    top = [(name, "", *rest) for name, *rest in _rows(Settings)]
    models = [(name, "yes" if name in flags else "", *rest) for name, *rest in _rows(ModelRules)]
    return {
        "settings": _table("| setting | default | what it is |", [(n, d, h) for n, _, d, h in top]),
        "model settings": _table("| setting | flag | default | what it is |", models),
    }


def inserted(text: str) -> str:
    """Return the page with the tables as they should be."""
    for name, table in tables().items():
        pattern = rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)"
        text = re.sub(pattern, lambda found, t=table: f"{found[1]}{t}{found[2]}", text, flags=re.S)
    return text


def _rows(struct: type[msgspec.Struct]) -> list[tuple[str, str, str]]:
    helps = _helps(struct)
    return [
        (field.name, _shown(field.default), helps.get(field.name, ""))
        for field in msgspec.structs.fields(struct)
    ]


def _shown(default: Any) -> str:
    return "" if default in (None, msgspec.NODEFAULT, "") else f"`{default}`"


def _table(head: str, rows: list[tuple[str, ...]]) -> str:
    rule = "|" + " --- |" * (head.count("|") - 1)
    lines = [f"| `{row[0]}` | " + " | ".join(row[1:]) + " |" for row in rows]
    return "\n".join([head, rule, *lines]) + "\n"


if __name__ == "__main__":
    PAGE.write_text(inserted(PAGE.read_text()))
