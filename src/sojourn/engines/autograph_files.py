"""AutoGraph without files.

For each `tf.function` that it rewrites, AutoGraph puts a file into the temporary folder and has it
removed when the interpreter exits. A worker ends without that, so the file would stay for ever.
"""

from __future__ import annotations

import itertools
import linecache
import sys
from types import ModuleType

_counter = itertools.count(1)


def keep_in_memory() -> None:
    """Let AutoGraph of this process and its forks load what it writes from memory."""
    from tensorflow.python.autograph.pyct import loader

    if hasattr(loader, "load_source"):
        loader.load_source = _load_source


def _load_source(source: str, delete_on_exit: bool) -> tuple[ModuleType, str]:
    name = f"__autograph_generated_file_{next(_counter)}"
    file_name = f"<autograph>/{name}.py"
    # Without a time of modification linecache keeps it, for tracebacks and `inspect`.
    linecache.cache[file_name] = (len(source), None, source.splitlines(True), file_name)
    module = ModuleType(name)
    module.__file__ = file_name
    sys.modules[name] = module
    exec(compile(source, file_name, "exec"), module.__dict__)
    return module, file_name
