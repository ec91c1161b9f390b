"""How long a client wants its model to stay, as Ollama has it in a request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sojourn.service.failures import Refused, Status
from sojourn.service.rules import parse_duration


def keep_alive_of(parameters: Mapping[str, Any]) -> float | None:
    """The seconds in `keep_alive`: a number or a duration such as "5m"; negative is for ever."""
    value = parameters.get("keep_alive")
    if value is None:
        return None
    try:
        return parse_duration("keep_alive", value)
    except (ValueError, OverflowError) as error:
        raise Refused(Status.INVALID_ARGUMENT, str(error)) from None
