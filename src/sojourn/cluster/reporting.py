"""The status report of a cluster: nodes, budgets and copies, as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sojourn.cluster.orders import Member
from sojourn.cluster.planner.books import Books, Copy
from sojourn.cluster.terms import CopyReport


def nodes_of(members: Mapping[str, Member], books: Books) -> list[dict[str, Any]]:
    """Return every node with its copies: their placement as planned, their state as reported by
    agents."""
    nodes = []
    for node_id, member in members.items():
        facts, report = member.facts, member.report
        place = books.places.get(node_id)
        held = {copy.copy: copy for copy in report.copies}
        copies = [] if place is None else list(place.copies.values())
        nodes.append(
            {
                "node": facts.node,
                "id": node_id,
                "address": f"{facts.address[0]}:{facts.address[1]}",
                "devices": list(facts.devices),
                "budget_bytes": facts.budget_bytes,
                "held_bytes": report.charged_bytes,
                "calls": report.calls,
                "copies": [_copy(copy, held.get(copy.id)) for copy in copies],
            }
        )
    return nodes


def _copy(copy: Copy, report: CopyReport | None) -> dict[str, Any]:
    return {
        "model": copy.id.model,
        "state": "leaving" if copy.is_leaving else "open" if copy.is_open else "opening",
        "bytes": copy.bytes,
        "leases": 0 if report is None else report.holders,
        "runs": 0 if report is None else report.runs,
        "pinned": copy.model.pinned,
    }
