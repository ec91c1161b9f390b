"""The cached plans: a `run` with a known structure skips TensorFlow's fetch mapper.

The structure is the fetches and the keys of the feeds, by identity. A structure that might not give
exactly what TensorFlow's own path gives is not planned: it takes that path every time.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import numpy as np
from tensorflow.python.client import session as tf_session
from tensorflow.python.framework import dtypes, indexed_slices, ops, sparse_tensor
from tensorflow.python.framework import tensor as tensor_lib
from tensorflow.python.ops import ref_variable, resource_variable_ops, session_ops
from tensorflow.python.ops.ragged import ragged_tensor
from tensorflow.python.util import numpy_compat

from sojourn.compat.v1.link import Link, TunedStep

_PLANS_KEPT = 256  # structures in the cache of one session
_TENSORS = frozenset({ops._EagerTensorBase, tensor_lib.Tensor, ops.SymbolicTensor})
_LEAVES = _TENSORS | {
    ops.Operation,
    resource_variable_ops.ResourceVariable,
    resource_variable_ops._UnreadVariable,
    ref_variable.RefVariable,
    sparse_tensor.SparseTensor,
    indexed_slices.IndexedSlices,
    ragged_tensor.RaggedTensor,
}
_UNPLANNED = frozenset({dtypes.string, dtypes.resource, dtypes.variant})
_FEEDS = object()


class RunPlans:
    """The plans of one session. Several threads may use them at once."""

    def __init__(self, graph: Any, link: Link) -> None:
        self._graph = graph
        self._link = link
        self._plans: OrderedDict[Any, RunPlan | None] = OrderedDict()

    def find(self, fetches: Any, feed_dict: Any) -> RunPlan | None:
        """Return the plan for this structure if one exists and is still valid."""
        key = _key(fetches, feed_dict)
        plan = self._plans.get(key)
        if plan is None:
            return None
        if plan.version != self._graph.version and not plan.still_holds():
            self._plans.pop(key, None)  # another thread may have removed it
            return None
        return plan

    def learn(self, fetches: Any, feed_dict: Any) -> None:
        """Record that a step of this structure has run; the second time, make a plan for it."""
        key = _key(fetches, feed_dict)
        if key is None or not self._link.prepares_steps:
            return
        try:
            if self._plans[key] is None:
                self._plans[key] = RunPlan.make(self._graph, self._link, fetches, feed_dict)
        except KeyError:
            self._plans[key] = None
            if len(self._plans) > _PLANS_KEPT:
                self._plans.popitem(last=False)


class RunPlan:
    """How to run one structure: convert the feeds, run the step, and shape the results."""

    @staticmethod
    def make(graph: Any, link: Link, fetches: Any, feed_dict: Any) -> RunPlan | None:
        """Return a plan, or None if this structure has to take TensorFlow's own path."""
        handler = tf_session._FetchHandler(graph, _copied(fetches), {})
        feeds = [graph.as_graph_element(key, allow_operation=False) for key in feed_dict or ()]
        fetched, targets = handler.fetches(), handler.targets()
        names = [tensor.name for tensor in feeds]
        if (
            handler._fetch_handles
            or not (fetched or targets)
            or len(set(names)) < len(names)
            or any(tensor.name in names for tensor in fetched)
            or any(tensor.dtype.base_dtype in _UNPLANNED for tensor in feeds)
            or any(t.dtype.base_dtype in (dtypes.resource, dtypes.variant) for t in fetched)
            or link.branches.may_lack(tensor.op.name for tensor in fetched)
        ):
            return None
        step = link.prepare(
            tuple(names), tuple(t.name for t in fetched), tuple(op.name for op in targets)
        )
        keys = tuple(feed_dict or ())
        return RunPlan(graph, link, step, handler, feeds, (fetches, _copied(fetches), keys))

    def __init__(
        self, graph: Any, link: Link, step: TunedStep, handler: Any, feeds: list[Any], keeps: Any
    ) -> None:
        self._graph = graph
        self._link = link
        self._step = step
        self._feeds = feeds
        self._ops = [tensor.op for tensor in handler.fetches()] + list(handler.targets())
        self._keeps = keeps  # the key contains their ids, so they must stay alive
        self._results = _Results(handler)
        self.version = graph.version
        self._specs = [_Spec(tensor) for tensor in feeds]

    def still_holds(self) -> bool:
        """Whether the graph, which has grown, still allows these feeds and fetches."""
        graph = self._graph
        if all(map(graph.is_fetchable, self._ops)) and all(map(graph.is_feedable, self._feeds)):
            self._specs = [_Spec(tensor) for tensor in self._feeds]
            self.version = graph.version
            return True
        return False

    def arrays(self, feed_dict: Any) -> list[np.ndarray] | None:
        """Return the arrays to feed; None if TensorFlow's own path has to decide or to raise."""
        if not self._specs:
            return []
        arrays = []
        for spec, value in zip(self._specs, feed_dict.values()):  # noqa: B905 - hot path
            if type(value) is not np.ndarray or value.dtype != spec.dtype:
                value = spec.converted(value)
                if value is None:
                    return None
            if not spec.accepts(value.shape):
                return None
            arrays.append(value)
        return arrays

    def run(self, arrays: list[np.ndarray]) -> Any:
        """Run the step and shape its results."""
        self._link.grow()
        values: Sequence[Any] = self._link.run_step(self._step, arrays)
        if not self._link.gives_scalars:
            values = [value if value.ndim else value[()] for value in values]
        return self._results.shaped(values)


class _Spec:
    """The dtype and shape that a fed tensor accepts."""

    __slots__ = ("_dims", "_rank", "dtype")

    def __init__(self, tensor: Any) -> None:
        self.dtype = np.dtype(tensor.dtype.as_numpy_dtype)
        shape = tensor.shape
        self._rank = shape.rank
        self._dims = [(i, d) for i, d in enumerate(shape.as_list()) if d is not None] \
            if shape.rank is not None else []  # fmt: skip

    def accepts(self, shape: tuple[int, ...]) -> bool:
        if self._rank is None:
            return True
        if len(shape) != self._rank:
            return False
        return all(shape[i] == dim for i, dim in self._dims)

    def converted(self, value: Any) -> np.ndarray | None:
        """Return the value as an array, converted exactly as by TensorFlow's own path."""
        if isinstance(value, int):
            try:
                if np.array(value).astype(self.dtype)[()] != value:
                    return None
            except (OverflowError, TypeError, ValueError):
                return None
        elif isinstance(value, tensor_lib.Tensor | session_ops.TensorHandle):
            return None
        try:
            return numpy_compat.np_asarray(value, self.dtype)  # type: ignore[no-any-return]
        except Exception:
            return None


class _Results:
    """Puts the values of the fetched tensors into the structure that the caller requested."""

    def __init__(self, handler: Any) -> None:
        self._mapper = mapper = handler._fetch_mapper
        place, self._places = 0, []
        for is_op in handler._ops:
            self._places.append(-1 if is_op else place)
            place += not is_op
        self._single = type(mapper) is tf_session._ElementFetchMapper and len(self._places) == 1
        self._list: list[int] | None = None
        if type(mapper) is tf_session._ListFetchMapper and mapper._fetch_type in (list, tuple):
            parts = mapper._mappers
            if all(
                type(part) is tf_session._ElementFetchMapper and len(part.unique_fetches()) == 1
                for part in parts
            ):
                self._list = [self._places[places[0]] for places in mapper._value_indices]
                self._type = mapper._fetch_type

    def shaped(self, values: Sequence[Any]) -> Any:
        if self._single:
            return values[0] if self._places[0] >= 0 else None
        if self._list is not None:
            shaped = [values[place] if place >= 0 else None for place in self._list]
            return shaped if self._type is list else tuple(shaped)
        return self._mapper.build_results(
            [values[place] if place >= 0 else None for place in self._places]
        )


def _key(fetches: Any, feed_dict: Any) -> Any:
    """Return the structure by identity, or None if something in it cannot be compared."""
    parts: list[Any] = []
    if not _take_down(fetches, parts):
        return None
    if feed_dict:
        if type(feed_dict) is not dict:
            return None
        parts.append(_FEEDS)
        for key in feed_dict:
            kind = type(key)
            if kind in _TENSORS:
                parts.append(id(key))
            elif kind is str:
                parts.append(key)
            else:
                return None
    return tuple(parts)


def _take_down(fetch: Any, parts: list[Any]) -> bool:
    kind = type(fetch)
    if kind in _LEAVES:
        parts.append(id(fetch))
    elif kind is str:
        parts.append(fetch)
    elif kind is list or kind is tuple or (isinstance(fetch, tuple) and hasattr(kind, "_fields")):
        parts.append(kind)
        parts.append(len(fetch))
        for each in fetch:
            if not _take_down(each, parts):
                return False
    elif kind is dict:
        parts.append(kind)
        parts.append(len(fetch))
        for key, each in fetch.items():
            parts.append(type(key))
            parts.append(key)
            if not _take_down(each, parts):
                return False
    else:
        return False
    return True


def _copied(fetch: Any) -> Any:
    """Return the same structure in new containers, which the caller cannot change."""
    kind = type(fetch)
    if kind is list or kind is tuple:
        return kind(_copied(each) for each in fetch)
    if kind is dict:
        return {key: _copied(each) for key, each in fetch.items()}
    if isinstance(fetch, tuple) and hasattr(kind, "_fields"):
        return kind(*(_copied(each) for each in fetch))
    return fetch
