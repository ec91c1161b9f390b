"""Resolves dotted names of TensorFlow: `tfv1.Session` means `tensorflow.Session`.

Meanings omit `compat.v1`, so that one table covers every spelling of a name.
"""

from __future__ import annotations

import ast

from sojourn.source import dotted, imported_names

# The modules that define the classes, for programs that import them from there.
_HOMES = {
    "tensorflow.python.client.session.": "tensorflow.",
    "tensorflow.python.training.monitored_session.": "tensorflow.train.",
    "tensorflow.python.debug.": "tensorflow.debug.",
    "tensorflow.python.framework.ops.": "tensorflow.",
    "tensorflow.python.ops.": "tensorflow.",
}

SESSION_CLASSES = frozenset(
    {
        "tensorflow.Session",
        "tensorflow.InteractiveSession",
        "tensorflow.train.MonitoredSession",
        "tensorflow.train.MonitoredTrainingSession",
        "tensorflow.train.SingularMonitoredSession",
        "sojourn.Session",
        "sojourn.InteractiveSession",
        "sojourn.open",
    }
)
# The name `Session` alone proves nothing: requests and SQLAlchemy have one too.
_ROOTS = ("tensorflow", "sojourn")


def is_interactive(meaning: str) -> bool:
    """Whether this class installs itself as the default session when it is created."""
    return meaning.endswith(".InteractiveSession")


class Names:
    """The aliases of one file. An import anywhere in the file holds for the whole file."""

    def __init__(self, tree: ast.Module) -> None:
        self._meanings = {n: m for n, m in imported_names(tree, _ROOTS) if n != "*"}
        self._own: set[str] = set()  # classes and functions of this file
        self.foreign: dict[str, str] = {}  # the package (or ".") of names imported from elsewhere
        self._stars: list[str] = []
        # The level and dotted name of every import, for lookup among the program's files.
        self.imports: dict[str, tuple[int, str]] = {}
        self.star_imports: list[tuple[int, str]] = []
        assignments: list[tuple[str, ast.expr]] = []
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                self._add_import(node)
            elif isinstance(node, ast.ImportFrom):
                self._add_from(node)
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                self._own.add(node.name)
            elif isinstance(node, ast.Assign):
                assignments += [(t.id, node.value) for t in node.targets if isinstance(t, ast.Name)]
        # `tf = tf.compat.v1`, `v1 = tf.compat.v1`, `Session = v1.Session`: three rounds suffice.
        for _ in range(3):
            for name, value in assignments:
                meaning = self.meaning(value)
                if meaning is not None and name not in self._meanings:
                    self._meanings[name] = meaning

    def _add_import(self, node: ast.Import) -> None:
        for alias in node.names:
            root = alias.name.split(".")[0]
            name = alias.asname or root
            self.imports[name] = (0, alias.name if alias.asname else root)
            if root not in _ROOTS:
                self.foreign[name] = root

    def _add_from(self, node: ast.ImportFrom) -> None:
        module = node.module or ""
        root = "." if node.level else module.split(".")[0]
        for alias in node.names:
            name = alias.asname or alias.name
            if alias.name == "*":
                self.star_imports.append((node.level, module))
                if root in _ROOTS:
                    self._stars.append(module)
                continue
            self.imports[name] = (node.level, f"{module}.{alias.name}".lstrip("."))
            if root not in _ROOTS:
                self.foreign[name] = root

    def meaning(self, node: ast.expr) -> str | None:
        """The full name of a name or attribute that belongs to TensorFlow or sojourn, or None."""
        text = dotted(node)
        if text is None:
            return None
        root, _, rest = text.partition(".")
        if rest.startswith("tf.") and self.imports.get(root) == (0, "keras.backend"):
            root, _, rest = rest.partition(".")  # `K.tf.Session`
        found = self._root(root, rest)
        if found is None:
            return None
        return _normal(f"{found}.{rest}" if rest else found)

    def meaning_of(self, name: str) -> str | None:
        """The full name of a plain name of this file, if it was imported or assigned."""
        return self._meanings.get(name) if name not in self._own else None

    def adopt(self, name: str, meaning: str) -> None:
        """Record the meaning of a name that was imported from a file where it means TensorFlow."""
        self._meanings[name] = meaning
        self.foreign.pop(name, None)

    def _root(self, root: str, rest: str) -> str | None:
        if root in self._own:
            return None
        if root in self._meanings:
            return self._meanings[root]
        if root in ("tf", "tensorflow") and rest and self._is_usual(root):
            # `tf = load_tensorflow()`, `from common import *`, `from package.env import tf`,
            # `import package.compat as tf`: nothing but TensorFlow is called tf.
            return "tensorflow"
        if not rest and self._stars and root.endswith("Session"):
            return f"{self._stars[0]}.{root}"
        return None

    def _is_usual(self, name: str) -> bool:
        """Whether this name probably means TensorFlow as usual: no import says otherwise."""
        level, imported = self.imports.get(name, (0, f".{name}"))
        return name not in self.foreign or (
            level == 0 and imported.endswith((f".{name}", ".compat"))
        )

    def session_class(self, call: ast.Call) -> str | None:
        """The session class that this call opens, or None."""
        meaning = self.meaning(call.func)
        return meaning if meaning in SESSION_CLASSES else None


def _normal(meaning: str) -> str:
    for home, public in _HOMES.items():
        if meaning.startswith(home):
            return public + meaning[len(home) :]
    meaning = meaning.replace("tensorflow.compat.v2.", "tensorflow.")
    for root in _ROOTS:
        while meaning.startswith(f"{root}.compat.v1.") or meaning == f"{root}.compat.v1":
            meaning = root + meaning[len(f"{root}.compat.v1") :]
    return meaning
