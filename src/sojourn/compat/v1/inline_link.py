"""The link of an inline session: TensorFlow's own C session, in the caller's process."""

from __future__ import annotations

import os
from typing import Any

from tensorflow.python.client import pywrap_tf_session as c_api
from tensorflow.python.client.session import BaseSession

from sojourn.compat.v1.link import Link
from sojourn.engines.remote_session import CSession
from sojourn.kinds import Load
from sojourn.session.backend import InlineBackend
from sojourn.values import Place


class InlineLink(Link):
    """The link to a C session in the caller's process."""

    def __init__(self, name: str, place: Place, graph: Any, target: bytes, c_session: Any) -> None:
        # A session on a server can run steps, but cannot prepare them.
        super().__init__(graph, prepares_steps=not target)
        self._session = CSession(c_session)
        self._open(
            name,
            "inline",
            place,
            lambda deadline: InlineBackend(os.getpid(), "session"),
            Load(kind="session", live=self._session),
        )

    def grow(self) -> None:
        # On each run, because here TensorFlow also notices ops that were changed after they ran.
        with self.graph._session_run_lock():
            c_api.ExtendSession(self._session._session)

    def extend(self, session: Any) -> None:
        BaseSession._extend_graph(session)

    def run_with_options(
        self, session: Any, fetches: Any, feed_dict: Any, options: Any, metadata: Any
    ) -> Any:
        return BaseSession.run(session, fetches, feed_dict, options, metadata)

    def run_unprepared(
        self, session: Any, options: Any, feeds: Any, fetches: Any, targets: Any, metadata: Any
    ) -> Any:
        return BaseSession._call_tf_sessionrun(session, options, feeds, fetches, targets, metadata)

    def setup_partial(self, session: Any, setup: Any, arguments: Any) -> Any:
        return setup(*arguments)

    def run_partial(self, session: Any, handle: Any, feeds: Any, fetches: Any) -> Any:
        return BaseSession._call_tf_sessionprun(session, handle, feeds, fetches)

    def make_callable(
        self, session: Any, fetches: Any, feed_list: Any, accept_options: bool
    ) -> Any:
        return BaseSession.make_callable(session, fetches, feed_list, accept_options)

    def callable_from_options(self, session: Any, options: Any) -> Any:
        return BaseSession._make_callable_from_options(session, options)

    def list_devices(self, session: Any) -> Any:
        return BaseSession.list_devices(session)

    def cancel(self) -> None:
        self._session.close()
