"""What a model file contains, found by reading it: nothing is loaded, no framework is needed.

`inspect_model` is the one way in. A file that cannot be read is a `ModelError` that says why.
"""

from __future__ import annotations

import os

from sojourn.errors import ModelError
from sojourn.kinds.paths import recognise
from sojourn.probes.model_files.ops import known_ops
from sojourn.probes.model_files.summary import Finding, ModelSummary, Weight


def inspect_model(path: str | os.PathLike[str], check_ops: bool = True) -> ModelSummary:
    """What the model at `path` contains.

    `check_ops` names the ops that TensorFlow is not known to have. The summary keeps no file open.
    """
    path = os.fspath(path)
    try:
        found = recognise(path)
        known = known_ops() if check_ops and found.kind.framework == "tensorflow" else None
        summary: ModelSummary = found.kind.import_reader()(found.path, known)
        return summary
    except OSError as error:
        raise ModelError(f"{path}: {error.strerror or error}") from error


__all__ = ["Finding", "ModelSummary", "Weight", "inspect_model"]
