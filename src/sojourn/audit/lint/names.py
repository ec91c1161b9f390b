"""What a dotted name means: `tfv1.Session` is `tensorflow.Session`, whatever it is called here.

Meanings are written without `compat.v1`, so one table serves every way to spell a name.
"""

from __future__ import annotations

import ast

from sojourn.source import dotted, imported_names

# Where the classes really live, for programs that import them from there.
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
# `Session` alone decides nothing: requests and SQLAlchemy have one too.
_ROOTS = ("tensorflow", "sojourn")


def is_interactive(meaning: str) -> bool:
    """Whether this class installs itself as the default session when it is made."""
    return meaning.endswith(".InteractiveSession")


class Names:
    """The aliases of one file. An import anywhere in the file counts everywhere in it."""

    def __init__(self, tree: ast.Module) -> None:
        self._meanings = {n: m for n, m in imported_names(tree, _ROOTS) if n != "*"}
        self._own: set[str] = set()  # classes and functions of this file
        self.foreign: dict[str, str] = {}  # names imported from elsewhere: the package, or "."
        self._stars: list[str] = []
        # Every import, to be looked up among the files: the level, and the dotted name.
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
        # `tf = tf.compat.v1`, `v1 = tf.compat.v1`, `Session = v1.Session`: a few rounds settle it.
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
        """What a name or attribute stands for, if it belongs to TensorFlow or sojourn."""
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
        """What a plain name of this file stands for, if it was imported or assigned."""
        return self._meanings.get(name) if name not in self._own else None

    def adopt(self, name: str, meaning: str) -> None:
        """This name was imported from a file that means TensorFlow by it."""
        self._meanings[name] = meaning
        self.foreign.pop(name, None)

    def _root(self, root: str, rest: str) -> str | None:
        if root in self._own:
            return None
        if root in self._meanings:
            return self._meanings[root]
        if root in ("tf", "tensorflow") and rest and self._is_usual(root):
            # `tf = load_tensorflow()`, `from common import *`, `from package.env import tf`,
            # `import package.compat as tf`: nothing else is called tf.
            return "tensorflow"
        if not rest and self._stars and root.endswith("Session"):
            return f"{self._stars[0]}.{root}"
        return None

    def _is_usual(self, name: str) -> bool:
        """Whether nothing says that this name is not TensorFlow, as it is everywhere else."""
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
