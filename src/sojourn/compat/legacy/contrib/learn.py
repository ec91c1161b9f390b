"""`tf.contrib.learn`: the data helpers, and access to its estimators and experiments."""

from __future__ import annotations

import collections
import csv
import functools
import importlib
import os
import re
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from sojourn.compat.legacy import mnist as _mnist
from sojourn.compat.legacy import removed
from sojourn.compat.legacy.contrib import (
    learn_estimators,
    learn_experiments,
    learn_models,
    learn_monitors,
)
from sojourn.compat.legacy.estimator import specs
from sojourn.compat.legacy.namespaces import adopt

_WORD = re.compile(r"[A-Z]{2,}(?![a-z])|[A-Z][a-z]+(?=[A-Z])|[\'\w\-]+", re.UNICODE)


class ModeKeys(specs.ModeKeys):
    """The modes in which a model function is called."""

    INFER = specs.ModeKeys.PREDICT


def tokenizer(texts: Iterable[str]) -> Iterator[list[str]]:
    """Yield the words of each text."""
    for text in texts:
        yield _WORD.findall(text)


class CategoricalVocabulary:
    """Maps words to numbers; unknown words map to 0."""

    def __init__(self, unknown_token: str = "<UNK>", support_reverse: bool = True) -> None:
        self._mapping: dict[str, int] = {unknown_token: 0}
        self._words = [unknown_token]
        self._counts: collections.Counter[str] = collections.Counter()
        self._frozen = False

    def __len__(self) -> int:
        return len(self._mapping)

    def freeze(self, freeze: bool = True) -> None:
        """Stop (or resume) adding new words."""
        self._frozen = freeze

    def get(self, category: str) -> int:
        """Return the number of a word, adding a new word unless frozen."""
        if category not in self._mapping:
            if self._frozen:
                return 0
            self._mapping[category] = len(self._mapping)
            self._words.append(category)
        return self._mapping[category]

    def add(self, category: str, count: int = 1) -> None:
        """Increase the count of a word."""
        if self.get(category) > 0:
            self._counts[category] += count

    def trim(self, min_frequency: int, max_frequency: int = -1) -> None:
        """Drop words with counts outside the limits, and number the rest by frequency."""
        kept = [
            word
            for word, count in sorted(self._counts.items(), key=lambda item: (-item[1], item[0]))
            if count > min_frequency and (max_frequency <= 0 or count < max_frequency)
        ]
        self._words = [self._words[0], *kept]
        self._mapping = {word: index for index, word in enumerate(self._words)}
        self._counts = collections.Counter({word: self._counts[word] for word in kept})

    def reverse(self, class_id: int) -> str:
        """Return the word with a number."""
        return self._words[class_id]


class VocabularyProcessor:
    """Converts texts to rows of word numbers, truncated or padded with 0 to a fixed length."""

    def __init__(
        self,
        max_document_length: int,
        min_frequency: int = 0,
        vocabulary: CategoricalVocabulary | None = None,
        tokenizer_fn: Callable[[Iterable[str]], Iterator[list[str]]] | None = None,
    ) -> None:
        self.max_document_length = max_document_length
        self.min_frequency = min_frequency
        self.vocabulary_ = vocabulary or CategoricalVocabulary()
        self._tokenizer = tokenizer_fn or tokenizer

    def fit(self, raw_documents: Iterable[str], unused_y: Any = None) -> VocabularyProcessor:
        """Build the vocabulary from texts and freeze it."""
        for words in self._tokenizer(raw_documents):
            for word in words:
                self.vocabulary_.add(word)
        if self.min_frequency > 0:
            self.vocabulary_.trim(self.min_frequency)
        self.vocabulary_.freeze()
        return self

    def transform(self, raw_documents: Iterable[str]) -> Iterator[Any]:
        """Yield one row of word numbers per text."""
        for words in self._tokenizer(raw_documents):
            row = np.zeros(self.max_document_length, np.int64)
            for index, word in enumerate(words[: self.max_document_length]):
                row[index] = self.vocabulary_.get(word)
            yield row

    def fit_transform(self, raw_documents: Iterable[str], unused_y: Any = None) -> Iterator[Any]:
        """Call `fit`, then `transform`."""
        texts = list(raw_documents)
        self.fit(texts)
        return self.transform(texts)

    def reverse(self, documents: Iterable[Any]) -> Iterator[str]:
        """Yield the text of each row."""
        for row in documents:
            yield " ".join(self.vocabulary_.reverse(int(index)) for index in row)

    def save(self, filename: str) -> None:
        """Pickle the processor to a file."""
        import pickle

        with open(filename, "wb") as file:
            pickle.dump(self, file)

    @classmethod
    def restore(cls, filename: str) -> VocabularyProcessor:
        """Read what `save` wrote. This unpickles: only read files that you trust."""
        import pickle

        with open(filename, "rb") as file:
            restored = pickle.load(file)
        if not isinstance(restored, cls):
            raise ValueError(f"{filename} holds no vocabulary")
        return restored


class ByteProcessor:
    """Converts texts to rows of byte values, truncated or padded to a fixed length."""

    def __init__(self, max_document_length: int) -> None:
        self.max_document_length = max_document_length

    def fit(self, x: Any) -> ByteProcessor:
        """Do nothing: bytes need no vocabulary."""
        return self

    def fit_transform(self, x: Any) -> Iterator[Any]:
        """Call `transform`."""
        return self.transform(x)

    def transform(self, x: Any) -> Iterator[Any]:
        """Yield one array of bytes per text."""
        for text in x:
            data = text.encode() if isinstance(text, str) else bytes(text)
            row = np.zeros(self.max_document_length, np.uint8)
            kept = np.frombuffer(data[: self.max_document_length], np.uint8)
            row[: len(kept)] = kept
            yield row


preprocessing = types.SimpleNamespace(
    ByteProcessor=ByteProcessor,
    VocabularyProcessor=VocabularyProcessor,
    CategoricalVocabulary=CategoricalVocabulary,
    tokenizer=tokenizer,
)


def _load_dataset(name: str, size: str = "small", test_with_fake_data: bool = False) -> Any:
    if name == "mnist":
        return _mnist.read_data_sets("MNIST-data")
    if name == "dbpedia":
        return _made_up_texts() if test_with_fake_data else _load_dbpedia()
    try:
        load = getattr(importlib.import_module("sklearn.datasets"), f"load_{name}")
    except (ImportError, AttributeError):
        raise removed.RemovedName(
            f"tf.contrib.learn.datasets.load_dataset({name!r}): the data was part of TensorFlow 1; "
            "use instead: sklearn.datasets (which is used here where it is installed and has it)"
        ) from None
    loaded = load()
    return _mnist.Dataset(data=loaded.data, target=loaded.target)


def _load_csv(has_header: bool) -> Callable[..., Any]:
    def load(filename: str, target_dtype: Any, features_dtype: Any, target_column: int = -1) -> Any:
        with open(filename, newline="") as file:
            rows = list(csv.reader(file))
        rows = [row for row in (rows[1:] if has_header else rows) if row]
        target = np.array([row.pop(target_column) for row in rows], dtype=target_dtype)
        return _mnist.Dataset(data=np.array(rows, dtype=features_dtype), target=target)

    return load


def _load_dbpedia() -> Any:
    """Load the DBpedia texts from where TensorFlow 1 stored them. Nothing is downloaded."""
    read = _load_csv(False)
    folder = os.path.join("dbpedia_data", "dbpedia_csv")
    parts = [os.path.join(folder, f"{part}.csv") for part in ("train", "test")]
    missing = [path for path in parts if not os.path.exists(path)]
    if missing:
        raise FileNotFoundError(f"there is no {missing[0]}; nothing is downloaded")
    train, test = (read(path, np.int32, np.str_, target_column=0) for path in parts)
    return _mnist.Datasets(train=train, validation=None, test=test)


def _made_up_texts() -> Any:
    """Return fake data of TensorFlow 1's size: a title and a text for each of 14 classes."""
    classes = np.arange(1, 15, dtype=np.int32)
    rows = [(f"Title {each}", " ".join([f"word{each}"] * 5 + ["is", "here"])) for each in classes]
    part = _mnist.Dataset(data=np.array(rows), target=classes)
    return _mnist.Datasets(train=part, validation=None, test=part)


datasets = types.SimpleNamespace(
    mnist=types.SimpleNamespace(
        read_data_sets=_mnist.read_data_sets,
        load_mnist=lambda train_dir="MNIST-data": _mnist.read_data_sets(train_dir),
        DataSet=_mnist.DataSet,
    ),
    base=types.SimpleNamespace(
        Dataset=_mnist.Dataset,
        Datasets=_mnist.Datasets,
        load_csv_with_header=_load_csv(True),
        load_csv_without_header=_load_csv(False),
    ),
    load_dataset=_load_dataset,
    load_iris=functools.partial(_load_dataset, "iris"),
    load_boston=functools.partial(_load_dataset, "boston"),
)
models = ops = learn_models
monitors = learn_monitors
learn_runner = types.SimpleNamespace(run=learn_experiments.run, tune=learn_experiments.tune)
run_config = learn_experiments
experiment = types.SimpleNamespace(Experiment=learn_experiments.Experiment)
metric_spec = types.SimpleNamespace(MetricSpec=learn_estimators.MetricSpec)
prediction_key = types.SimpleNamespace(PredictionKey=learn_estimators.PredictionKey)
model_fn = types.SimpleNamespace(ModelFnOps=learn_estimators.ModelFnOps, ModeKeys=ModeKeys)
estimators = types.SimpleNamespace(
    estimator=learn_estimators,
    model_fn=model_fn,
    run_config=run_config,
    Estimator=learn_estimators.Estimator,
)
saved_model_export_utils = types.SimpleNamespace(
    make_export_strategy=learn_experiments.make_export_strategy
)
input_fn_utils = types.SimpleNamespace(
    InputFnOps=learn_experiments.InputFnOps,
    build_parsing_serving_input_fn=learn_experiments.build_parsing_serving_input_fn,
)
utils = types.SimpleNamespace(
    saved_model_export_utils=saved_model_export_utils,
    input_fn_utils=input_fn_utils,
    make_export_strategy=learn_experiments.make_export_strategy,
)

adopt(globals(), learn_estimators, learn_experiments)
__getattr__ = removed.missing_name("tf.contrib.learn")
