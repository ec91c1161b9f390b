"""`tensorflow.examples.tutorials.mnist`: the reader of local MNIST files."""

from __future__ import annotations

import types
from typing import Any

from sojourn.compat.legacy import mnist as _reader
from sojourn.compat.legacy import removed
from sojourn.compat.legacy.contrib import mnist_model


class _Package(types.ModuleType):
    def __init__(self, name: str, **names: Any) -> None:
        super().__init__(f"tensorflow.examples.{name}")
        self.__dict__.update(names)
        self.__dict__["__path__"] = []
        self.__dict__["__getattr__"] = removed.missing_name(f"tf.examples.{name}")


input_data = _Package(
    "tutorials.mnist.input_data",
    read_data_sets=_reader.read_data_sets,
    DataSet=_reader.DataSet,
    extract_images=_reader.extract_images,
    extract_labels=_reader.extract_labels,
)
mnist = _Package("tutorials.mnist", input_data=input_data, mnist=mnist_model)
tutorials = _Package("tutorials", mnist=mnist)


__getattr__ = removed.missing_name("tf.examples")
