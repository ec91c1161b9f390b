"""Decides which module `import tensorflow` gives to each importing module.

While a program runs, imports of `tensorflow` (and, in graph mode, `keras`) are resolved here. The
program's own modules get the TensorFlow of the program's era. An installed library gets the real
module, unless its own file is TensorFlow 1 code. TensorFlow and Keras always get themselves.
"""

from __future__ import annotations

import builtins
import contextlib
import importlib
import os
import site
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from sojourn.compat.legacy import detect, removed
from sojourn.compat.legacy.namespaces import Namespace, limit_star

_SOJOURN = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep
_FRAMEWORKS = ("tensorflow", "keras", "tensorboard", "tf_keras", "sojourn")

# Modules of TensorFlow whose contents have moved: old module -> the modules that have them now.
MOVED = {
    "tensorflow.python.framework.ops": (
        "tensorflow.python.framework.tensor",
        "tensorflow.python.framework.tensor_conversion",
        "tensorflow.python.framework.indexed_slices",
    ),
    "tensorflow.python": ("tensorflow.python.ops", "tensorflow.python.framework"),
    "tensorflow.python.framework.tensor_shape": ("sojourn.compat.legacy.oldnames",),
    "tensorflow.python.framework.graph_util": ("tensorflow._api.v2.compat.v1.graph_util",),
    "tensorflow.python.ops.array_ops": ("tensorflow.python.ops.array_ops_stack",),
    "tensorflow.python.ops.control_flow_ops": (
        "tensorflow.python.ops.cond",
        "tensorflow.python.ops.while_loop",
        "tensorflow.python.ops.control_flow_case",
        "tensorflow.python.ops.control_flow_assert",
    ),
    "tensorflow.python.ops.nn": ("tensorflow._api.v2.compat.v1.nn",),
    "tensorflow.python.ops.variables": ("tensorflow.python.ops.variable_v1",),
    "tensorflow.python.util.nest": ("sojourn.compat.legacy.oldnames",),
    "tensorflow.python.framework.sparse_tensor": ("tensorflow.python.framework.tensor",),
    "tensorflow.python.platform.logging": ("tensorflow.python.platform.tf_logging",),
    "tensorflow.python.pywrap_tensorflow": ("tensorflow.python.training.py_checkpoint_reader",),
    "tensorflow.python.training.training_ops": ("tensorflow.python.ops.gen_training_ops",),
    "tensorflow.python.tpu.tpu_estimator": ("sojourn.compat.legacy.contrib.tpu",),
    "tensorflow.python.tpu.tpu_config": ("sojourn.compat.legacy.contrib.tpu",),
    "tensorflow.python.keras.engine": (
        "tensorflow.python.keras.engine.base_layer",
        "tensorflow.python.keras.engine.input_spec",
        "tensorflow.python.keras.engine.training",
    ),
    "tensorflow.python.layers.core": ("tensorflow.python.keras.legacy_tf_layers.core",),
    "tensorflow.python.layers.base": ("tensorflow.python.keras.legacy_tf_layers.base",),
    "tensorflow.python.layers.convolutional": (
        "tensorflow.python.keras.legacy_tf_layers.convolutional",
    ),
    "tensorflow.python.layers.pooling": ("tensorflow.python.keras.legacy_tf_layers.pooling",),
    "tensorflow.python.layers.normalization": ("sojourn.compat.legacy.layers",),
    "tensorflow.python.ops.rnn_cell": ("sojourn.compat.legacy.cells",),
    "tensorflow.python.ops.rnn_cell_impl": ("sojourn.compat.legacy.cells",),
    "tensorflow.python.ops.seq2seq": ("sojourn.compat.legacy.contrib.legacy_seq2seq",),
    "tensorflow.models.rnn.rnn_cell": ("sojourn.compat.legacy.cells",),
    "tensorflow.models.rnn.seq2seq": ("sojourn.compat.legacy.contrib.legacy_seq2seq",),
}
_CONTRIB = f"{__package__}.contrib."
_INSIDE = ".python.estimator"
# Packages that were renamed. The first entry that a module's name starts with applies, so a longer
# name stands before a shorter one that it starts with.
_RENAMED = {
    "tensorflow_estimator.python": "tensorflow.python",
    "tensorflow_estimator": "tensorflow",
    "tensorflow.python.keras._impl.keras": "tensorflow.python.keras",
    "tensorflow.contrib.keras.api.keras": "tensorflow.python.keras",
    "tensorflow.contrib.keras.python.keras": "tensorflow.python.keras",
    "tensorflow.tensorboard": "tensorflow.contrib.tensorboard",
}
# Modules that today's TensorFlow still has, but not as programs need them: ours are searched first.
_OURS_FIRST = ("tensorflow.python.ops.rnn_cell", "tensorflow.python.ops.rnn_cell_impl")
# Packages that are gone: they are needed only as parents of modules that moved.
_GONE_PACKAGES = ("tensorflow.models", "tensorflow.models.rnn")


class Importer:
    """Replaces `builtins.__import__` inside an `active` block."""

    def __init__(
        self,
        verdict: detect.Verdict,
        spaces: Mapping[str, Namespace],
        overrides: Mapping[str, Any],
        keras: Namespace | None,
    ) -> None:
        self._verdict = verdict
        self._spaces = spaces  # era -> the tensorflow of that era
        self._overrides = dict(overrides)
        self._keras = keras
        self._eras: dict[str, str | None] = {}
        self._folders = {os.path.dirname(file) + os.sep for file in verdict.files}
        self._installed = _installed_folders()
        self._original: Callable[..., Any] = builtins.__import__

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        """Resolve imports inside the block."""
        self._original = builtins.__import__
        builtins.__import__ = self
        try:
            yield
        finally:
            builtins.__import__ = self._original

    def __call__(
        self,
        name: str,
        globals: Mapping[str, Any] | None = None,
        locals: Mapping[str, Any] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> Any:
        todays = "" if level else _todays(name)
        if todays.split(".", 1)[0] in ("tensorflow", "keras"):
            root = self._root(todays, globals)
            if root is not None:
                return self._answer(root, todays, fromlist or ())
        return self._original(name, globals, locals, fromlist, level)

    def _root(self, name: str, importer: Mapping[str, Any] | None) -> Namespace | None:
        era = self._era(importer)
        if era is None or era not in self._spaces:
            return None
        return self._keras if name.split(".", 1)[0] == "keras" else self._spaces[era]

    def _era(self, importer: Mapping[str, Any] | None) -> str | None:
        """Return the era of the importing module, or None if it needs the original."""
        file = (importer or {}).get("__file__")
        if not file:
            # Code without a file (`exec`, a notebook cell) belongs to the program.
            name = str((importer or {}).get("__name__", "__main__"))
            return None if name.split(".")[0] in _FRAMEWORKS else self._verdict.era
        file = os.path.abspath(str(file))
        if file not in self._eras:
            self._eras[file] = self._judge(file, str((importer or {}).get("__name__", "")))
        return self._eras[file]

    def is_own(self, importer: Mapping[str, Any]) -> bool:
        """Whether these globals belong to the program, not to a library that it uses."""
        file, name = importer.get("__file__"), str(importer.get("__name__", ""))
        return not file or self._is_own(os.path.abspath(str(file)), name)

    def _is_own(self, file: str, name: str) -> bool:
        if file in self._verdict.files:
            return True
        if file.startswith(_SOJOURN) or name.split(".")[0] in _FRAMEWORKS:
            return False
        return not file.startswith(self._installed) and file.startswith(tuple(self._folders))

    def _judge(self, file: str, name: str) -> str | None:
        if self._is_own(file, name):
            return self._verdict.era
        if file.startswith(_SOJOURN) or name.split(".")[0] in _FRAMEWORKS:
            return None
        try:
            verdict = detect.examine(file, [os.path.join(os.path.dirname(file), "<itself>")])
        except detect.ProgramSyntaxError:
            return None
        return None if verdict.era == "tf2" else verdict.era

    def _answer(self, root: Namespace, name: str, fromlist: Sequence[str]) -> Any:
        module = self._walk(root, name)
        if not fromlist:
            return root
        if "*" in fromlist and getattr(module, "__name__", "").startswith(_CONTRIB):
            limit_star(module)
        for item in fromlist:
            path = f"{name}.{item}"
            replaced = self._replacement(path)
            is_missing = replaced is None and item != "*" and not _has(module, item)
            if is_missing and f"{name}.".startswith(f"tensorflow{_INSIDE}."):
                # A module of the estimators: one namespace has the names of all these modules.
                replaced = module
            elif is_missing and _is_inner_folder(name):
                replaced = _Inner(path, (module,), shown_as=_shown(path))
            if replaced is not None:
                if not isinstance(module, Namespace):
                    module = Namespace(name, (module,))
                setattr(module, item, replaced)
            elif item != "*" and not _has(module, item):
                with contextlib.suppress(ModuleNotFoundError):
                    importlib.import_module(path)
                if not _has(module, item) and removed.advice(_shown(path)):
                    raise removed.RemovedModule(removed.describe(_shown(path)), name=path)
        return module

    def _walk(self, root: Namespace, name: str) -> Any:
        here: Any = root
        parts = name.split(".")
        for end in range(2, len(parts) + 1):
            path = ".".join(parts[:end])
            found = self._replacement(path)
            if found is None:
                found = getattr(here, parts[end - 1], None)
            if found is None and _is_inner_folder(path):
                # An inner folder of a part of contrib or of the estimators: it has the public
                # names of that part.
                found = here
            if found is None:
                try:
                    found = importlib.import_module(path)
                except ModuleNotFoundError:
                    shown = _shown(path)
                    if removed.advice(shown) is None:
                        raise
                    raise removed.RemovedModule(removed.describe(shown), name=path) from None
            here = found
        return here

    def _replacement(self, path: str) -> Any:
        if path not in self._overrides:
            if path in MOVED:
                self._overrides[path] = _gathered(path)
            elif path in _GONE_PACKAGES:
                self._overrides[path] = Namespace(path, ())
        return self._overrides.get(path)


class _Inner(Namespace):
    """A file inside a part of `tf.contrib`: it has only the public names of that part."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        path = self.__dict__["_shown_as"]
        raise removed.RemovedName(removed.describe(path), name=path)


def _todays(name: str) -> str:
    """Return the module's name with a renamed package replaced by its current name."""
    for old, new in _RENAMED.items():
        if f"{name}.".startswith(f"{old}."):
            return new + name[len(old) :]
    return name


def _is_inner_folder(path: str) -> bool:
    return (".contrib." in path and ".python" in path) or path.startswith(f"tensorflow{_INSIDE}.")


def _gathered(path: str) -> Namespace:
    """Return the module at `path` as it was: what is left of it, and what was moved out."""
    parts = [importlib.import_module(name) for name in MOVED[path]]
    with contextlib.suppress(ModuleNotFoundError):
        left = importlib.import_module(path)
        parts = [*parts, left] if path in _OURS_FIRST else [left, *parts]
    return Namespace(path, parts)


def _has(module: Any, name: str) -> bool:
    try:
        getattr(module, name)
    except AttributeError:
        return False
    return True


def _shown(path: str) -> str:
    return "tf" + path.removeprefix("tensorflow")


def _installed_folders() -> tuple[str, ...]:
    folders = {sysconfig.get_path(kind) for kind in ("stdlib", "purelib", "platlib")}
    with contextlib.suppress(AttributeError):
        folders.update(site.getsitepackages())
        folders.add(site.getusersitepackages())
    folders.update(path for path in sys.path if path.endswith(("site-packages", "dist-packages")))
    return tuple(os.path.abspath(folder) + os.sep for folder in folders if folder)
