"""AutoGraph without files.

For each `tf.function` that it rewrites, AutoGraph creates a file in the temporary folder and
removes it in an exit handler. A worker ends without exit handlers, so the file would stay forever.
"""

from __future__ import annotations

import itertools
import linecache
import sys
from types import ModuleType

_counter = itertools.count(1)


def keep_in_memory() -> None:
    """Make AutoGraph load its generated code from memory, in this process and its forks."""
    from tensorflow.python.autograph.pyct import loader

    if hasattr(loader, "load_source"):
        loader.load_source = _load_source


def _load_source(source: str, delete_on_exit: bool) -> tuple[ModuleType, str]:
    name = f"__autograph_generated_file_{next(_counter)}"
    file_name = f"<autograph>/{name}.py"
    # linecache keeps an entry without a modification time, for tracebacks and `inspect`.
    linecache.cache[file_name] = (len(source), None, source.splitlines(True), file_name)
    module = ModuleType(name)
    module.__file__ = file_name
    sys.modules[name] = module
    exec(compile(source, file_name, "exec"), module.__dict__)
    return module, file_name
