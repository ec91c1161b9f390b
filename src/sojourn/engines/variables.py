"""Find the state of a graph and session, write it as a TensorFlow checkpoint, and restore it.

State is found in the graph itself, not in collections, so that this works for every kind of model:
resource and reference variables (including optimizer slots and the states of
`tf.random.Generator`), and mutable tables. Tables that are filled once by their initializer are
part of the model and are not saved.

`sojourn.session.checkpoints` makes saves durable and atomic.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from sojourn.engines import shortage
from sojourn.errors import CheckpointError

v1 = tf.compat.v1
ops = tf.raw_ops

_RESOURCE = "VarHandleOp"
_REFERENCES = ("VariableV2", "Variable")
_TABLES = ("MutableHashTableV2", "MutableHashTableOfTensorsV2", "MutableDenseHashTableV2")

# Ops with these parts in their names change a variable or a table.
CHANGING_PARTS = (
    "Assign", "Apply", "Scatter", "Rng", "StatefulUniform", "StatefulStandardNormal",
    "StatefulTruncatedNormal", "StatefulRandomBinomial", "TableInsert", "TableImport",
    "TableRemove", "CountUpTo",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Item:
    """A variable or table. `keys` are its names in the checkpoint: two for a table."""

    op: Any

    @property
    def keys(self) -> tuple[str, ...]:
        name = self.op.name
        return (f"{name}-keys", f"{name}-values") if self.is_table else (name,)

    @property
    def is_table(self) -> bool:
        return self.op.type in _TABLES

    @property
    def dtypes(self) -> list[Any]:
        if self.is_table:
            return [self.op.get_attr("key_dtype"), self.op.get_attr("value_dtype")]
        return [tf.as_dtype(self.op.get_attr("dtype"))]

    def read(self) -> list[Any]:
        handle = self.op.outputs[0]
        if self.is_table:
            keys, values = self.dtypes
            exported = ops.LookupTableExportV2(table_handle=handle, Tkeys=keys, Tvalues=values)
            return [exported.keys, exported.values]
        if self.op.type == _RESOURCE:
            return [ops.ReadVariableOp(resource=handle, dtype=self.dtypes[0])]
        return [tf.identity(handle)]

    def is_initialized(self) -> Any:
        handle = self.op.outputs[0]
        if self.is_table:
            return tf.constant(True)
        if self.op.type == _RESOURCE:
            return ops.VarIsInitializedOp(resource=handle)
        return ops.IsVariableInitialized(ref=handle)

    def write(self, values: Sequence[Any]) -> Any:
        handle = self.op.outputs[0]
        if self.is_table:
            return ops.LookupTableImportV2(table_handle=handle, keys=values[0], values=values[1])
        if self.op.type == _RESOURCE:
            return ops.AssignVariableOp(resource=handle, value=values[0])
        return ops.Assign(ref=handle, value=values[0], validate_shape=False)

    @property
    def shapes(self) -> list[Any]:
        """The shapes of a variable, or of a table's keys and values, as far as the graph knows."""
        if not self.is_table:
            return [tf.TensorShape(self.op.get_attr("shape"))]
        key = value = tf.TensorShape([])
        if self.op.type != "MutableHashTableV2":  # its values are scalars
            value = tf.TensorShape(self.op.get_attr("value_shape"))
        if self.op.type == "MutableDenseHashTableV2":
            key = self.op.inputs[0].shape  # the shape of the empty key
            # This table stores scalars as vectors of one element.
            key, value = (tf.TensorShape([1]) if s.rank == 0 else s for s in (key, value))
        count = tf.TensorShape([None])
        return [count.concatenate(key), count.concatenate(value)]


class Variables:
    """The variables and tables of one graph and session.

    The ops for saving are added to the graph when first needed.
    """

    def __init__(self, graph: Any, session: Any) -> None:
        self._graph = graph
        self._session = session
        self._lock = threading.RLock()
        self._checks: dict[int, Any] = {}
        self._savers: dict[tuple[str, ...], tuple[Any, Any]] = {}
        self._loaders: dict[tuple[str, ...], tuple[Any, Any]] = {}
        self._snapshot: dict[str, np.ndarray] | None = None

    # -- files ---------------------------------------------------------------------------------

    def save(self, prefix: str) -> dict[str, Any]:
        """Write a checkpoint; return the names in it, and the names without a value."""
        with self._lock:
            items, empty = self._split()
            report = {"variables": [], "uninitialized": [item.keys[0] for item in empty]}
            if not items:
                return report  # TensorFlow cannot write an empty checkpoint
            where, save = self._saver_for(items)
            try:
                self._session.run(save, {where: prefix})
            except tf.errors.OpError as error:
                raise CheckpointError(f"TensorFlow could not write it: {error.message}") from None
            report["variables"] = [key for item in items for key in item.keys]
            return report

    def restore(self, prefix: str, may_lack: Sequence[str]) -> None:
        """Restore all values from a checkpoint, or none if anything is wrong with it."""
        with self._lock:
            try:
                reader = tf.train.load_checkpoint(prefix)
                shapes = reader.get_variable_to_shape_map()
                dtypes = reader.get_variable_to_dtype_map()
            except (tf.errors.OpError, ValueError, RuntimeError) as error:
                raise CheckpointError(f"not a TensorFlow checkpoint: {error}") from None
            items = self._fitting(shapes, dtypes, frozenset(may_lack))
            if not items:
                return
            where, load = self._loader_for(items)
            try:
                self._session.run(load, {where: prefix})
            except tf.errors.OpError as error:
                raise CheckpointError(f"TensorFlow could not read it: {error.message}") from None

    def _fitting(
        self, shapes: Mapping[str, Any], dtypes: Mapping[str, Any], may_lack: frozenset[str]
    ) -> list[_Item]:
        items = [item for item in self._items() if item.keys[0] not in may_lack]
        known = {key for item in items for key in item.keys}
        # Names that start with "_" are added by training frameworks: an object graph, a counter.
        extra = {name for name in shapes if name not in known and not name.startswith("_")}
        lacking = sorted(known - shapes.keys())
        if lacking:
            raise CheckpointError(
                f"it has no value for {_listed(lacking)}; it has {_listed(sorted(shapes))}"
            )
        if extra:
            raise CheckpointError(
                f"it was made by another model: there is no {_listed(sorted(extra))} in this one"
            )
        for item in items:
            for key, dtype, shape in zip(item.keys, item.dtypes, item.shapes, strict=True):
                if dtype != dtypes[key] or not shape.is_compatible_with(shapes[key]):
                    raise CheckpointError(
                        f"{key} is {dtypes[key].name}{shapes[key]} in it, and "
                        f"{dtype.name}{shape} here"
                    )
            if item.is_table and len({tuple(shapes[key][:1]) for key in item.keys}) > 1:
                raise CheckpointError(f"{item.op.name} has not one value for each key in it")
        return items

    # -- the state at the start ----------------------------------------------------------------

    @property
    def has_snapshot(self) -> bool:
        """Whether a copy of the initial values is in memory."""
        return self._snapshot is not None

    def keep(self) -> None:
        """Keep a copy of the current values in memory. Called before the first change."""
        with self._lock:
            if self._snapshot is None:
                self._snapshot = self.read_all()

    def go_back(self) -> None:
        """Restore the kept values."""
        assert self._snapshot is not None
        # Feed copies: a variable may keep a fed buffer, and the next step would change it.
        self.assign({key: np.array(value) for key, value in self._snapshot.items()})

    def assign(self, values: Mapping[str, np.ndarray]) -> None:
        """Set variables and tables by name. They may keep the arrays: do not change them later."""
        with self._lock:
            items = [item for item in self._items() if item.keys[0] in values]
            with self._building():
                feeds = {k: v1.placeholder(d) for i in items for k, d in _typed(i).items()}
                writes = [item.write([feeds[key] for key in item.keys]) for item in items]
            fed = {feeds[key]: np.asarray(values[key]) for key in feeds}
            shortage.require(sum(value.nbytes for value in fed.values()))  # may be copied when fed
            self._session.run(writes, fed)

    def read_all(self) -> dict[str, np.ndarray]:
        """Return the values of all variables and tables that have one."""
        with self._lock:
            items, _ = self._split()
            with self._building():
                fetches = {key: value for i in items for key, value in _read(i).items()}
            values: dict[str, np.ndarray] = self._session.run(fetches)
            return values

    # -- the graph -----------------------------------------------------------------------------

    def _items(self) -> list[_Item]:
        """Return each variable and table once: several handles may share one variable."""
        found: dict[Any, _Item] = {}
        for op in self._graph.get_operations():
            if op.type == _RESOURCE or op.type in _TABLES or op.type in _REFERENCES:
                shared = op.get_attr("shared_name") or op.name.encode()
                found.setdefault((op.type, op.get_attr("container"), shared), _Item(op))
        return list(found.values())

    def _split(self) -> tuple[list[_Item], list[_Item]]:
        """Return the items that have a value, and those that do not."""
        items = self._items()
        if not items:
            return [], []
        if len(items) not in self._checks:
            with self._building():
                self._checks[len(items)] = [item.is_initialized() for item in items]
        flags = self._session.run(self._checks[len(items)])
        return (
            [item for item, flag in zip(items, flags, strict=True) if flag],
            [item for item, flag in zip(items, flags, strict=True) if not flag],
        )

    def _saver_for(self, items: Sequence[_Item]) -> tuple[Any, Any]:
        keys = tuple(key for item in items for key in item.keys)
        if keys not in self._savers:
            with self._building():
                where = v1.placeholder(tf.string, [])
                values = [value for item in items for value in item.read()]
                with tf.device("/CPU:0"):
                    save = ops.SaveV2(
                        prefix=where,
                        tensor_names=list(keys),
                        shape_and_slices=[""] * len(keys),
                        tensors=values,
                    )
            self._savers[keys] = (where, save)
        return self._savers[keys]

    def _loader_for(self, items: Sequence[_Item]) -> tuple[Any, Any]:
        keys = tuple(key for item in items for key in item.keys)
        if keys not in self._loaders:
            with self._building():
                where = v1.placeholder(tf.string, [])
                with tf.device("/CPU:0"):
                    loaded = ops.RestoreV2(
                        prefix=where,
                        tensor_names=list(keys),
                        shape_and_slices=[""] * len(keys),
                        dtypes=[dtype for item in items for dtype in item.dtypes],
                    )
                # All or nothing: variables change only after all values are in memory and the
                # tables, which check their values, have accepted them.
                value_of = dict(zip(keys, loaded, strict=True))
                load = tf.group(*loaded)
                for turn in (True, False):
                    with tf.control_dependencies([load]):
                        of_turn = [item for item in items if item.is_table is turn]
                        writes = [item.write([value_of[k] for k in item.keys]) for item in of_turn]
                        load = tf.group(load, *[getattr(w, "op", w) for w in writes])
            self._loaders[keys] = (where, load)
        return self._loaders[keys]

    @contextlib.contextmanager
    def _building(self) -> Iterator[None]:
        """In this block, add ops to the graph from any thread, outside the user's own scopes."""
        graph = self._graph
        with contextlib.ExitStack() as scopes:
            scopes.enter_context(graph.as_default())
            scopes.enter_context(graph.name_scope(None))
            scopes.enter_context(graph.control_dependencies(None))
            scopes.enter_context(graph.device(None))
            scopes.enter_context(graph.name_scope("sojourn_state"))
            yield


def _read(item: _Item) -> dict[str, Any]:
    return dict(zip(item.keys, item.read(), strict=True))


def _typed(item: _Item) -> dict[str, Any]:
    return dict(zip(item.keys, item.dtypes, strict=True))


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:8])
    return shown if len(names) <= 8 else f"{shown} and {len(names) - 8} more"
