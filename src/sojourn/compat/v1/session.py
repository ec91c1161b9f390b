"""The two drop-in session classes: TensorFlow's own code or a cached plan above the C session.

`_Stays` stands between TensorFlow's class and its `BaseSession`, and overrides the few methods
that touch the C session. An isolated session has no C session in this process at all.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Callable
from typing import Any, NoReturn

from tensorflow.core.protobuf import config_pb2
from tensorflow.core.protobuf import rewriter_config_pb2 as rewriter
from tensorflow.python.client import session as tf_session
from tensorflow.python.framework import errors_impl as tf_errors
from tensorflow.python.framework import ops
from tensorflow.python.training.experimental.mixed_precision_global_state import (
    is_mixed_precision_graph_rewrite_enabled,
    set_non_mixed_precision_session_created,
)

from sojourn.compat.v1.configuration import default_config
from sojourn.compat.v1.inline_link import InlineLink
from sojourn.compat.v1.link import Link
from sojourn.compat.v1.names import operation_names, tensor_names
from sojourn.compat.v1.originals import (
    TFInteractiveSession,
    TFSession,
    close_interactive_session,
    open_interactive_session,
    open_session,
)
from sojourn.compat.v1.places import users_line
from sojourn.compat.v1.plans import RunPlans
from sojourn.compat.v1.words import closed
from sojourn.compat.v1.worker_link import WorkerLink
from sojourn.errors import RemoteTraceback
from sojourn.session.stay import Stay
from sojourn.values import Footprint, Receipt

_counter = itertools.count(1)
_isolated: weakref.WeakSet[_Stays]


class _Stays(tf_session.BaseSession):  # type: ignore[misc]
    """A session whose life is recorded, and whose C session may live in a worker."""

    _isolation = "process"
    _name: str | None = None
    _memory: int | str | None = None
    _link: Link | None = None
    _plans: RunPlans | None = None

    def _settle(self, isolation: str | None, name: str | None, memory: int | str | None) -> None:
        """Store the arguments that TensorFlow's constructor does not know."""
        if isolation is not None:
            self._isolation = isolation
        if self._isolation not in ("process", "inline"):
            raise ValueError(f'isolation must be "process" or "inline", not {self._isolation!r}')
        if name is not None and not isinstance(name, str):
            raise TypeError(f"name must be a string, not {name!r}")
        self._name = name
        self._memory = memory

    def __init__(self, target: Any = "", graph: Any = None, config: Any = None) -> None:
        self._session = None
        self._closed = False
        place = users_line()
        name = self._name or f"session-{next(_counter)}"
        if target not in ("", b"", None):
            # The steps run on the server that `target` names: a worker would isolate only the
            # connection, and would lose what servers and sessions in one process share.
            self._isolation = "inline"
        if self._isolation == "inline":
            if self._memory is not None:
                raise ValueError("memory= limits a worker, and this session has none")
            super().__init__(target, graph, config)
            self._link = InlineLink(name, place, self._graph, self._target or b"", self._session)
        else:
            self._initialise(target, graph, config)
            self._link = WorkerLink(name, place, self._graph, self._config, self._memory)
            # Other code only tests `_session` for truth.
            self._session = self._link
            _isolated.add(self)
        self._plans = RunPlans(self._graph, self._link)
        stay = self._link.stay
        stay.ending.watch(self, stay.ending.forgotten)

    def _initialise(self, target: Any, graph: Any, config: Any) -> None:
        """Do what `BaseSession.__init__` does, without creating a C session."""
        tf_session._python_session_create_counter.get_cell().increase_by(1)
        if graph is None:
            graph = ops.get_default_graph()
        elif not isinstance(graph, ops.Graph):
            raise TypeError(
                f'Argument `graph` must be a tf.Graph, but got "{type(graph).__name__}"'
            )
        self._graph = graph
        self._target = None if target is None else b""
        self._delete_lock = threading.Lock()
        self._dead_handles: list[Any] = []
        if config is None:
            config = default_config()
        if not isinstance(config, config_pb2.ConfigProto):
            raise TypeError(
                f'Argument `config` must be a tf.ConfigProto, but got "{type(config).__name__}"'
            )
        mixed = config.graph_options.rewrite_options.auto_mixed_precision
        if is_mixed_precision_graph_rewrite_enabled() and mixed != rewriter.RewriterConfig.OFF:
            given, config = config, config_pb2.ConfigProto()
            config.CopyFrom(given)
            config.graph_options.rewrite_options.auto_mixed_precision = rewriter.RewriterConfig.ON
        elif mixed != rewriter.RewriterConfig.ON:
            set_non_mixed_precision_session_created(True)
        self._config = config
        self._add_shapes = config.graph_options.infer_shapes

    # -- steps ---------------------------------------------------------------------------------

    def run(
        self, fetches: Any, feed_dict: Any = None, options: Any = None, run_metadata: Any = None
    ) -> Any:
        """Run a step, as `tf.compat.v1.Session.run` does. The results own their memory."""
        if self._closed:
            raise closed(self._stay)
        if options is not None or run_metadata is not None:
            return self._linked.run_with_options(self, fetches, feed_dict, options, run_metadata)
        plan = self._plans.find(fetches, feed_dict)  # type: ignore[union-attr]
        if plan is not None:
            try:
                arrays = plan.arrays(feed_dict)
                if arrays is not None:
                    return plan.run(arrays)
            except tf_errors.OpError as error:
                self._explain(error)
        result = self._run(None, fetches, feed_dict, None, None)
        if not self._closed:
            self._plans.learn(fetches, feed_dict)  # type: ignore[union-attr]
        return result

    def _run(self, *args: Any) -> Any:
        if self._closed:
            raise closed(self._stay)
        return super()._run(*args)

    def partial_run_setup(self, fetches: Any, feeds: Any = None) -> Any:
        """Begin a step in parts, as `tf.compat.v1.Session.partial_run_setup` does."""
        if self._closed:
            raise closed(self._stay)
        return super().partial_run_setup(fetches, feeds)

    def make_callable(
        self, fetches: Any, feed_list: Any = None, accept_options: bool = False
    ) -> Any:
        """Return a callable for one step, as `tf.compat.v1.Session.make_callable` does."""
        return self._linked.make_callable(self, fetches, feed_list, accept_options)

    def list_devices(self) -> Any:
        """Return the devices that the session can use, in a worker or in this process."""
        return self._linked.list_devices(self)

    def _explain(self, error: Any) -> None:
        """Raise `error` as TensorFlow's own `run` does: with the op and the line that made it."""

        def again() -> None:
            raise error

        self._do_call(again)

    def _do_call(self, fn: Any, *args: Any) -> Any:
        if getattr(fn, "__name__", "") == "_setup_fn":
            # Only here does TensorFlow use the C session outside a method that can be overridden.
            fn, args = self._linked.setup_partial, (self, fn, args)
        try:
            return super()._do_call(fn, *args)
        except tf_errors.OpError as error:
            if self._closed and "Session has been closed." in error.message:
                # The step reached the C session after the close: the way to a worker takes
                # longer than a call within one process.
                raise closed(self._stay) from None
            # No variable holds the context: an error that this frame refers to, and whose
            # traceback refers to this frame, is a cycle. Only the garbage collector frees it,
            # and with it the lane's memory.
            cause = getattr(error.__context__, "__cause__", None)
            if isinstance(cause, RemoteTraceback):
                error.__cause__ = cause
            raise

    def _extend_graph(self) -> None:
        self._linked.extend(self)

    def _call_tf_sessionrun(
        self, options: Any, feed_dict: Any, fetch_list: Any, target_list: Any, run_metadata: Any
    ) -> Any:
        link = self._linked
        if options is None and run_metadata is None and link.can_step(feed_dict, fetch_list):
            return link.step(
                tensor_names(feed_dict),
                tensor_names(fetch_list),
                operation_names(target_list),
                list(feed_dict.values()),
            )
        return link.run_unprepared(self, options, feed_dict, fetch_list, target_list, run_metadata)

    def _call_tf_sessionprun(self, handle: Any, feed_dict: Any, fetch_list: Any) -> Any:
        return self._linked.run_partial(self, handle, feed_dict, fetch_list)

    def _make_callable_from_options(self, callable_options: Any) -> Any:
        return self._linked.callable_from_options(self, callable_options)

    @property
    def _linked(self) -> Link:
        assert self._link is not None
        return self._link

    @property
    def _stay(self) -> Stay | None:
        return None if self._link is None else self._link.stay

    # -- what it holds ---------------------------------------------------------------------------

    @property
    def pid(self) -> int:
        """The id of the process in which the C session lives."""
        return self._linked.stay.pid

    # A property, like `__reduce__`: TensorFlow's tools require that they know every method.
    @property
    def footprint(self) -> Callable[[], Footprint]:
        """A function that returns what the session holds now, by kernel and driver counts."""
        return self._linked.stay.footprint

    # -- the end -------------------------------------------------------------------------------

    @property
    def receipt(self) -> Receipt | None:
        """The account of the close; None while the session is open."""
        return None if self._stay is None else self._stay.receipt

    def close(self) -> None:
        """Cancel the running steps, end the worker, and store the account in `receipt`."""
        if self._link is None or self.receipt is not None:
            return  # not a test of `_closed`: the next close finishes one that was interrupted
        self._closed = True
        self._link.close(users_line())
        _isolated.discard(self)

    @property
    def __reduce__(self) -> Callable[[], NoReturn]:
        return _refuse_to_be_pickled

    # Overrides TensorFlow's `__del__`. Nothing written in Python, because a Ctrl-C that arrives
    # in a finalizer is lost. The stay itself notices that its session was garbage-collected.
    __del__ = object


def _refuse_to_be_pickled() -> NoReturn:
    raise TypeError(
        "a session cannot be pickled: it belongs to this process. Send the graph as a GraphDef "
        "or the function that builds it, and open a session there"
    )


class Session(TFSession, _Stays):  # type: ignore[misc]
    """A `tf.compat.v1.Session` that leaves nothing behind. Use it in a `with` block.

    It takes the arguments of TensorFlow's class, and these keywords: `isolation` (`"process"` for
    its own worker, or `"inline"` for this process), `name` (shown in events and in the process
    list) and `memory` (the most that the worker may allocate, such as `"2GiB"`). After `close()`
    the account is in `receipt`.
    """

    def __init__(
        self,
        target: Any = "",
        graph: Any = None,
        config: Any = None,
        *,
        isolation: str | None = None,
        name: str | None = None,
        memory: int | str | None = None,
    ) -> None:
        self._settle(isolation, name, memory)
        open_session(self, target, graph, config)

    @staticmethod
    def reset(target: Any, containers: Any = None, config: Any = None) -> None:
        """Close every session of this process, as TensorFlow's own does without a cluster."""
        TFSession.reset(target, containers, config)
        if not target:
            for session in list(_isolated):
                if not session._closed:
                    session._linked.cancel()


class _OneCount(type):
    """Counts all interactive sessions together: TensorFlow's own and those of every subclass."""

    @property
    def _active_session_count(cls) -> int:
        return int(TFInteractiveSession._active_session_count)

    @_active_session_count.setter
    def _active_session_count(cls, count: int) -> None:
        TFInteractiveSession._active_session_count = count


class InteractiveSession(TFInteractiveSession, _Stays, metaclass=_OneCount):  # type: ignore[misc]
    """A `tf.compat.v1.InteractiveSession` that leaves nothing behind.

    It is the default session from its construction until its close. It takes the same additional
    keywords as `Session`.
    """

    def __init__(
        self,
        target: Any = "",
        graph: Any = None,
        config: Any = None,
        *,
        isolation: str | None = None,
        name: str | None = None,
        memory: int | str | None = None,
    ) -> None:
        self._settle(isolation, name, memory)
        open_interactive_session(self, target, graph, config)

    def close(self) -> None:
        """Close the session, and restore the previous default session."""
        close_interactive_session(self)


_isolated = weakref.WeakSet()
