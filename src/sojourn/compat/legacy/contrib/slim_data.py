"""The data providers of `tf.contrib.slim`: records read by queues, decoded into named items."""

from __future__ import annotations

import abc
import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tensorflow.compat.v1 as tf

from sojourn.compat.legacy.namespaces import Namespace


class Dataset:
    """Where records are and how to read and decode them; extra arguments become attributes."""

    def __init__(
        self,
        data_sources: Any,
        reader: Any,
        decoder: Any,
        num_samples: Any,
        items_to_descriptions: Mapping[str, str],
        **facts: Any,
    ) -> None:
        self.data_sources, self.reader, self.decoder = data_sources, reader, decoder
        self.num_samples, self.items_to_descriptions = num_samples, items_to_descriptions
        self.__dict__.update(facts)


class ItemHandler(abc.ABC):
    """Makes one item from the features with the given keys."""

    def __init__(self, keys: Any) -> None:
        self._keys = [keys] if isinstance(keys, str) else list(keys)

    @property
    def keys(self) -> list[str]:
        return self._keys

    @abc.abstractmethod
    def tensors_to_item(self, keys_to_tensors: Mapping[str, Any]) -> Any:
        """Return the item."""


class ItemHandlerCallback(ItemHandler):
    """Makes an item with a function."""

    def __init__(self, keys: Any, func: Any) -> None:
        super().__init__(keys)
        self._func = func

    def tensors_to_item(self, keys_to_tensors: Mapping[str, Any]) -> Any:
        return self._func(keys_to_tensors)


class Tensor(ItemHandler):
    """A feature as a dense tensor, optionally with a given shape or one from other features."""

    def __init__(
        self,
        tensor_key: str,
        shape_keys: Any = None,
        shape: Any = None,
        default_value: Any = 0,
    ) -> None:
        if shape_keys and shape is not None:
            raise ValueError("Cannot specify both shape_keys and shape parameters.")
        shape_keys = [shape_keys] if isinstance(shape_keys, str) else list(shape_keys or ())
        super().__init__([tensor_key, *shape_keys])
        self._key, self._shape_keys, self._shape = tensor_key, shape_keys, shape
        self._default_value = default_value

    def tensors_to_item(self, keys_to_tensors: Mapping[str, Any]) -> Any:
        tensor, shape = keys_to_tensors[self._key], self._shape
        if self._shape_keys:
            sizes = [_dense(keys_to_tensors[key]) for key in self._shape_keys]
            shape = tf.concat([tf.reshape(size, [-1]) for size in sizes], 0)
        if shape is None:
            return _dense(tensor, self._default_value)
        if isinstance(tensor, tf.SparseTensor):
            return _dense(tf.sparse_reshape(tensor, shape), self._default_value)
        return tf.reshape(tensor, shape)


class LookupTensor(Tensor):
    """A feature whose values are looked up in a table."""

    def __init__(self, tensor_key: str, table: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(tensor_key, *args, **kwargs)
        self._table = table

    def tensors_to_item(self, keys_to_tensors: Mapping[str, Any]) -> Any:
        return self._table.lookup(super().tensors_to_item(keys_to_tensors))


class SparseTensor(ItemHandler):
    """A sparse tensor made of two features: its indices and its values."""

    def __init__(
        self,
        indices_key: str | None = None,
        values_key: str | None = None,
        shape_key: str | None = None,
        shape: Any = None,
        densify: bool = False,
        default_value: Any = 0,
    ) -> None:
        self._parts = (indices_key or "indices", values_key or "values", shape_key)
        super().__init__([key for key in self._parts if key])
        self._shape, self._densify, self._default_value = shape, densify, default_value

    def tensors_to_item(self, keys_to_tensors: Mapping[str, Any]) -> Any:
        indices, values = (keys_to_tensors[key] for key in self._parts[:2] if key)
        shape = keys_to_tensors[self._parts[2]] if self._parts[2] else self._shape
        if shape is None:
            raise ValueError("a sparse item needs a shape or a shape_key")
        shape = tf.cast(_dense(shape), tf.int64)
        places = tf.reshape(indices.values, [-1, tf.size(shape)])
        sparse = tf.SparseTensor(places, values.values, shape)
        return _dense(sparse, self._default_value) if self._densify else sparse


class BoundingBox(ItemHandler):
    """Boxes made of four features, one row per box."""

    def __init__(self, keys: Any = None, prefix: str = "") -> None:
        keys = ["ymin", "xmin", "ymax", "xmax"] if keys is None else keys
        if len(keys) != 4:
            raise ValueError(f"BoundingBox expects 4 keys but got {len(keys)}")
        super().__init__([prefix + key for key in keys])

    def tensors_to_item(self, keys_to_tensors: Mapping[str, Any]) -> Any:
        sides = (keys_to_tensors[key] for key in self.keys)
        return tf.stack([getattr(side, "values", side) for side in sides], -1)


class Image(ItemHandler):
    """An image, decoded by its format feature."""

    def __init__(
        self,
        image_key: str | None = None,
        format_key: str | None = None,
        shape: Any = None,
        channels: int = 3,
        dtype: Any = tf.uint8,
        repeated: bool = False,
        dct_method: str = "",
    ) -> None:
        self._image_key = image_key or "image/encoded"
        self._format_key = format_key or "image/format"
        super().__init__([self._image_key, self._format_key])
        self._shape, self._channels, self._dtype = shape, channels, dtype
        self._repeated = repeated

    def tensors_to_item(self, keys_to_tensors: Mapping[str, Any]) -> Any:
        content, kind = keys_to_tensors[self._image_key], keys_to_tensors[self._format_key]
        if self._repeated:
            return tf.map_fn(lambda each: self._decoded(each, kind), content, dtype=self._dtype)
        return self._decoded(content, kind)

    def _decoded(self, content: Any, kind: Any) -> Any:
        is_raw = tf.logical_or(tf.equal(kind, "raw"), tf.equal(kind, "RAW"))
        image = tf.cond(
            is_raw,
            lambda: tf.decode_raw(content, self._dtype),
            lambda: tf.image.decode_image(
                content, self._channels, self._dtype, expand_animations=False
            ),
        )
        if self._shape is not None:
            return tf.reshape(image, self._shape)
        image.set_shape([None, None, self._channels])
        return image


class TFExampleDecoder:
    """Decodes a serialized `tf.train.Example` into items."""

    def __init__(self, keys_to_features: Any, items_to_handlers: Any) -> None:
        self._features, self._handlers = keys_to_features, items_to_handlers

    def list_items(self) -> list[str]:
        """Return the names of the items."""
        return list(self._handlers)

    def decode(self, serialized_example: Any, items: Sequence[str] | None = None) -> list[Any]:
        """Decode the given items, by default all."""
        parsed = tf.parse_single_example(serialized_example, self._features)
        for key, feature in self._features.items():
            if isinstance(feature, tf.FixedLenFeature):
                parsed[key] = tf.reshape(parsed[key], feature.shape)
        handlers = [self._handlers[item] for item in items or self.list_items()]
        return [each.tensors_to_item({key: parsed[key] for key in each.keys}) for each in handlers]


def _dense(tensor: Any, default: Any = 0) -> Any:
    if not isinstance(tensor, tf.SparseTensor):
        return tensor
    if tensor.dtype == tf.string and default == 0:
        default = ""
    return tf.sparse_tensor_to_dense(tensor, default)


def get_data_files(data_sources: Any) -> list[str]:
    """Return the files of a name, of a pattern, or of a list of these."""
    if isinstance(data_sources, (list, tuple)):
        found = [file for source in data_sources for file in get_data_files(source)]
    elif any(sign in data_sources for sign in "*?["):
        found = tf.gfile.Glob(data_sources)
    else:
        found = [data_sources]
    if not found:
        raise ValueError(f"No data files found in {data_sources}")
    return found


def parallel_read(
    data_sources: Any,
    reader_class: Any,
    num_epochs: Any = None,
    num_readers: int = 4,
    reader_kwargs: Any = None,
    shuffle: bool = True,
    dtypes: Any = None,
    capacity: int = 256,
    min_after_dequeue: int = 128,
    seed: Any = None,
    scope: Any = None,
) -> Any:
    """Return tensors for a key and a record, read by several readers through one queue."""
    with tf.name_scope(scope or "parallel_read"):
        dtypes = dtypes or [tf.string, tf.string]
        files = get_data_files(data_sources)
        names = tf.train.string_input_producer(files, num_epochs, shuffle, seed, name="filenames")
        if shuffle:
            queue = tf.RandomShuffleQueue(
                capacity, min_after_dequeue, dtypes, seed=seed, name="common_queue"
            )
        else:
            queue = tf.FIFOQueue(capacity, dtypes, name="common_queue")
        readers = [reader_class(**(reader_kwargs or {})) for _ in range(num_readers)]
        _fill(queue, [queue.enqueue(reader.read(names)) for reader in readers], capacity)
        return queue.dequeue()


def single_pass_read(
    data_sources: Any, reader_class: Any, reader_kwargs: Any = None, scope: Any = None
) -> Any:
    """Return tensors for a key and a record; reads all records once, in order."""
    with tf.name_scope(scope or "single_pass_read"):
        names = tf.train.string_input_producer(
            get_data_files(data_sources), 1, False, capacity=1, name="filenames"
        )
        return reader_class(**(reader_kwargs or {})).read(names)


class DataProvider:
    """Provides tensors by item name."""

    def __init__(self, items_to_tensors: Mapping[str, Any], num_samples: Any) -> None:
        self._tensors, self._num_samples = items_to_tensors, num_samples

    def get(self, items: Sequence[str]) -> list[Any]:
        """Return the tensors of the given items."""
        unknown = [item for item in items if item not in self._tensors]
        if unknown:
            raise ValueError(f"there are no items {unknown}, but {sorted(self._tensors)}")
        return [self._tensors[item] for item in items]

    def list_items(self) -> list[str]:
        """Return the names of the items."""
        return list(self._tensors)

    def num_samples(self) -> Any:
        """Return the number of samples in an epoch."""
        return self._num_samples


class DatasetDataProvider(DataProvider):
    """Provides the items of one example of a `Dataset`; each step reads another example."""

    def __init__(
        self,
        dataset: Any,
        num_readers: int = 1,
        reader_kwargs: Any = None,
        shuffle: bool = True,
        num_epochs: Any = None,
        common_queue_capacity: int = 256,
        common_queue_min: int = 128,
        record_key: str = "record_key",
        seed: Any = None,
        scope: Any = None,
    ) -> None:
        key, record = parallel_read(
            dataset.data_sources,
            dataset.reader,
            num_epochs,
            num_readers,
            reader_kwargs,
            shuffle,
            capacity=common_queue_capacity,
            min_after_dequeue=common_queue_min,
            seed=seed,
            scope=scope,
        )
        items = dataset.decoder.list_items()
        if record_key in items:
            raise ValueError(f"record_key is the name of an item too: {record_key}")
        decoded = zip(items, dataset.decoder.decode(record, items), strict=True)
        super().__init__({**dict(decoded), record_key: key}, dataset.num_samples)


def prefetch_queue(
    tensors: Any,
    capacity: int = 8,
    num_threads: int = 1,
    dynamic_pad: bool = False,
    shared_name: Any = None,
    name: Any = None,
) -> Any:
    """Return a queue that threads keep filled with these tensors, named if given as a dict."""
    names = sorted(tensors) if isinstance(tensors, dict) else None
    listed = [tensors[each] for each in names] if names else tensors
    with tf.name_scope(name or "prefetch_queue"):
        listed = [tf.convert_to_tensor(each) for each in listed]
        queue = (tf.PaddingFIFOQueue if dynamic_pad else tf.FIFOQueue)(
            capacity,
            [each.dtype for each in listed],
            [each.shape for each in listed],
            names=names,
            shared_name=shared_name,
        )
        enqueue = queue.enqueue(dict(zip(names, listed, strict=True)) if names else listed)
        _fill(queue, [enqueue] * num_threads, capacity)
        return queue


def _fill(queue: Any, enqueues: list[Any], capacity: int) -> None:
    tf.train.add_queue_runner(tf.train.QueueRunner(queue, enqueues))
    full = tf.cast(queue.size(), tf.float32) * (1.0 / capacity)
    tf.summary.scalar(f"fraction_of_{capacity}_full", full)


@contextlib.contextmanager
def QueueRunners(session: Any) -> Iterator[None]:
    """Run the queue runners of the graph inside the block."""
    coordinator = tf.train.Coordinator()
    threads = tf.train.start_queue_runners(session, coordinator)
    try:
        yield
    finally:
        coordinator.request_stop()
        coordinator.join(threads, stop_grace_period_secs=120)


def _part(name: str, *parts: Any) -> Namespace:
    return Namespace(
        f"tensorflow.contrib.slim.{name}",
        (),
        {part.__name__: part for part in parts},
        shown_as=f"tf.contrib.slim.{name}",
    )


dataset = _part("dataset", Dataset)
data_provider = _part("data_provider", DataProvider)
dataset_data_provider = _part("dataset_data_provider", DatasetDataProvider)
parallel_reader = _part("parallel_reader", get_data_files, parallel_read, single_pass_read)
queues = _part("queues", QueueRunners)
tfexample_decoder = _part(
    "tfexample_decoder",
    BoundingBox,
    Image,
    ItemHandler,
    ItemHandlerCallback,
    LookupTensor,
    SparseTensor,
    TFExampleDecoder,
    Tensor,
)
