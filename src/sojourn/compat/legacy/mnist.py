"""Read MNIST-like data from local idx files. Nothing is downloaded.

The four files of the data set, gzipped or not, are searched in the folder that the program names,
in `$SOJOURN_MNIST`, and in the folders where other tools keep them.
"""

from __future__ import annotations

import collections
import gzip
import os
import struct
from typing import Any

import numpy as np

TRAIN_IMAGES = "train-images-idx3-ubyte"
TRAIN_LABELS = "train-labels-idx1-ubyte"
TEST_IMAGES = "t10k-images-idx3-ubyte"
TEST_LABELS = "t10k-labels-idx1-ubyte"

Dataset = collections.namedtuple("Dataset", ["data", "target"])
Datasets = collections.namedtuple("Datasets", ["train", "validation", "test"])


def _folders(train_dir: str) -> list[str]:
    folders = [train_dir]
    if os.environ.get("SOJOURN_MNIST"):
        folders.append(os.environ["SOJOURN_MNIST"])
    folders += ["MNIST_data", os.path.join(os.path.expanduser("~"), "MNIST_data")]
    return list(dict.fromkeys(os.path.abspath(folder) for folder in folders))


def find(name: str, train_dir: str) -> str:
    """Return the path of one of the four files."""
    spelled = [name, name.replace("-idx", ".idx")]
    for folder in _folders(train_dir):
        for candidate in spelled:
            for path in (os.path.join(folder, candidate), os.path.join(folder, candidate + ".gz")):
                if os.path.isfile(path):
                    return path
    looked = "\n  ".join(_folders(train_dir))
    raise FileNotFoundError(
        f"there is no {name} or {name}.gz, and nothing is downloaded. Looked in:\n  {looked}\n"
        "Put the four MNIST files into one of these folders, or name theirs in SOJOURN_MNIST."
    )


def _read_idx(file: Any, magic: int, what: str) -> Any:
    """Return the array in an idx file, after checking the sizes in its header."""
    content = file if isinstance(file, bytes) else file.read()
    if content[:2] == b"\x1f\x8b":
        content = gzip.decompress(content)
    dims = magic & 0xFF
    header = 4 + 4 * dims
    if len(content) < header or struct.unpack(">I", content[:4])[0] != magic:
        raise ValueError(f"not an idx file of {what}")
    shape = struct.unpack(f">{dims}I", content[4:header])
    expected = int(np.prod(shape, dtype=np.int64))
    if len(content) - header != expected:
        raise ValueError(f"{what}: {len(content) - header} bytes where {shape} needs {expected}")
    return np.frombuffer(content, np.uint8, offset=header).reshape(shape).copy()


def extract_images(f: Any) -> Any:
    """Return images as ``[count, rows, columns, 1]``."""
    return _read_idx(f, 0x803, "images")[..., np.newaxis]


def extract_labels(f: Any, one_hot: bool = False, num_classes: int = 10) -> Any:
    """Return labels as numbers, or one-hot with a column per class."""
    labels = _read_idx(f, 0x801, "labels")
    return np.eye(num_classes)[labels] if one_hot else labels


class DataSet:
    """Images and labels, returned in batches and reshuffled for each epoch."""

    def __init__(
        self,
        images: Any,
        labels: Any,
        fake_data: bool = False,
        one_hot: bool = False,
        dtype: Any = np.float32,
        reshape: bool = True,
        seed: int | None = None,
    ) -> None:
        self._fake_data, self._one_hot = fake_data, one_hot
        self._random = np.random.RandomState(seed)
        self._num_examples = 10000 if fake_data else len(images)
        self._epochs_completed = self._index = 0
        if fake_data:
            return
        if len(images) != len(labels):
            raise ValueError(f"{len(images)} images but {len(labels)} labels")
        if reshape:
            images = images.reshape(len(images), -1)
        if np.dtype(getattr(dtype, "as_numpy_dtype", dtype)) == np.float32:
            images = images.astype(np.float32) / 255.0
        self._images, self._labels = images, labels

    @property
    def images(self) -> Any:
        return self._images

    @property
    def labels(self) -> Any:
        return self._labels

    @property
    def num_examples(self) -> int:
        return self._num_examples

    @property
    def epochs_completed(self) -> int:
        return self._epochs_completed

    def next_batch(self, batch_size: int, fake_data: bool = False, shuffle: bool = True) -> Any:
        """Return the next images and labels; the next epoch fills up an epoch's last batch."""
        if fake_data or self._fake_data:
            label: Any = [1.0] + [0.0] * 9 if self._one_hot else 0
            return [[1.0] * 784] * batch_size, [label] * batch_size
        if self._index == 0 and self._epochs_completed == 0 and shuffle:
            self._shuffle()
        start, end = self._index, self._index + batch_size
        if end <= self._num_examples:
            self._index = end
            return self._images[start:end], self._labels[start:end]
        images, labels = self._images[start:], self._labels[start:]
        self._epochs_completed += 1
        if shuffle:
            self._shuffle()
        self._index = batch_size - len(images)
        return (
            np.concatenate([images, self._images[: self._index]]),
            np.concatenate([labels, self._labels[: self._index]]),
        )

    def _shuffle(self) -> None:
        order = self._random.permutation(self._num_examples)
        self._images, self._labels = self._images[order], self._labels[order]


def read_data_sets(
    train_dir: str,
    fake_data: bool = False,
    one_hot: bool = False,
    dtype: Any = np.float32,
    reshape: bool = True,
    validation_size: int = 5000,
    seed: int | None = None,
    source_url: str = "",
    num_classes: int = 10,
) -> Any:
    """Return train, validation and test data from the four files."""
    if fake_data:
        empty = DataSet([], [], fake_data=True, one_hot=one_hot, dtype=dtype, seed=seed)
        return Datasets(empty, empty, empty)

    def images(name: str) -> Any:
        with open(find(name, train_dir), "rb") as file:
            return extract_images(file)

    def labels(name: str) -> Any:
        with open(find(name, train_dir), "rb") as file:
            return extract_labels(file, one_hot, num_classes)

    train_images, train_labels = images(TRAIN_IMAGES), labels(TRAIN_LABELS)
    if not 0 <= validation_size <= len(train_images):
        raise ValueError(
            f"validation_size must be between 0 and {len(train_images)}: {validation_size}"
        )

    def data_set(x: Any, y: Any) -> DataSet:
        return DataSet(x, y, dtype=dtype, reshape=reshape, seed=seed)

    return Datasets(
        train=data_set(train_images[validation_size:], train_labels[validation_size:]),
        validation=data_set(train_images[:validation_size], train_labels[:validation_size]),
        test=data_set(images(TEST_IMAGES), labels(TEST_LABELS)),
    )
