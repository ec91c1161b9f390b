"""Calls of isolated functions on any node, for `function.map(items, on=everywhere)`.

A call is sent to the agent with the fewest calls per processor, whose zygote forks a worker for it.
If the node is lost, the outcome of the call is unknown: it is repeated on another node only if the
function was declared repeatable.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from sojourn.cluster.links import Link, NodeLost
from sojourn.cluster.wire import words
from sojourn.errors import SessionBroken
from sojourn.functions.calling import Call, Outcome
from sojourn.functions.options import Options
from sojourn.process import crossing
from sojourn.values import Place, Receipt

if TYPE_CHECKING:
    from sojourn.cluster.handle import Cluster


class RemoteCall(Call):
    """One call on some node. Its worker ends with the call, or when the caller disconnects."""

    def __init__(
        self,
        cluster: Cluster,
        options: Options,
        name: str,
        place: Place,
        keep_receipt: Callable[[Receipt], None],
        label: str,
        repeatable: bool,
    ) -> None:
        super().__init__(options, name, place, keep_receipt, label)
        self._cluster = cluster
        self._is_repeatable = repeatable
        self._link: Link | None = None
        self._number = 0

    def start(self) -> None:
        """Do nothing: the agent forks the worker once it has received the whole call."""

    def ask(
        self, operation: str, arguments: dict[str, Any], arrays: Sequence[np.ndarray]
    ) -> tuple[str, Any]:
        lost: set[Link] = set()
        while True:
            with self._cluster.calling(lost, self._options.device) as link:
                try:
                    reply, results = self._call(link, arrays)
                except NodeLost as error:
                    if self._is_cut_off or not self._is_repeatable:
                        raise self._unknown(link, error) from error
                    lost.add(link)
                    continue
            if isinstance(reply, words.Failed):
                self._keep(reply.receipt, link)
                raise crossing.revive(reply.error)
            assert isinstance(reply, words.Returned)
            self._keep(reply.receipt, link)
            outcome = Outcome(reply.kind, reply.message, reply.traceback)
            return self.unpacked(outcome, results)

    def _call(self, link: Link, arrays: Sequence[np.ndarray]) -> tuple[Any, list[np.ndarray]]:
        options = self._options
        self._number = secrets.randbits(63)
        self._link = link
        question = words.CallFunction(
            self._number,
            self.name,
            self._label,
            options.timeout,
            options.memory_bytes,
            options.device,
            options.seed,
            options.deterministic,
        )
        if self._is_cut_off:
            raise NodeLost("the call was given up before it began")
        return link.ask_raw(question, arrays)

    def _keep(self, receipt: Receipt | None, link: Link) -> None:
        if receipt is not None:
            self._keep_receipt(replace(receipt, node=link.node))

    def _unknown(self, link: Link, error: NodeLost) -> SessionBroken:
        if self._is_cut_off:
            return SessionBroken(f"{self.name!r} was given up on node {link.node}")
        return SessionBroken(
            f"{self.name!r}: {error}. Its outcome is unknown; with repeatable=True such calls are "
            "made again on another node"
        )

    def end(self, *, abruptly: bool = False) -> None:
        """Do nothing: the worker has ended, or is cut off with its connection."""

    def cut_off(self) -> None:
        self._is_cut_off = True
        link = self._link
        if link is not None:
            link.cut_off(self._number)
