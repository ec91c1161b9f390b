"""Keep engines from running code that comes with an untrusted model.

The sandbox contains such code; this module keeps it from starting at all.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import zipfile
from typing import Any, NoReturn

from sojourn.errors import ModelError

# Keras stores Python code in a file as one of these: a layer, or a function argument.
_CODE = ("Lambda", "__lambda__")
_LOADERS = ("TF_LoadLibrary", "TF_LoadPluggableDeviceLibrary", "TF_RegisterFilesystemPlugin")


def refuse_custom_ops() -> None:
    """Make TensorFlow refuse to load libraries of ops, devices or file systems from now on.

    A graph cannot load one, but a model that can look up Python functions by name could.
    """
    if "tensorflow" not in sys.modules:
        return
    from tensorflow.python.client import pywrap_tf_session

    for name in _LOADERS:
        if hasattr(pywrap_tf_session, name):
            setattr(pywrap_tf_session, name, _refuse)


def _refuse(*_: Any) -> NoReturn:
    raise ModelError("an untrusted model cannot load a library of ops")


def refuse_code_in_hdf5(path: str) -> None:
    """Refuse an HDF5 Keras file that holds Python code, which some versions of Keras would run."""
    # HDF5 data may follow any other content. Skip only files that Keras reads as an archive.
    if path.endswith(".keras") and zipfile.is_zipfile(path):
        return
    h5py = importlib.import_module("h5py")
    try:
        with h5py.File(path, "r") as stored:
            config = stored.attrs.get("model_config")
        todo = [json.loads(config)] if config is not None else []
    except Exception as error:  # damage raises OSError, RuntimeError, KeyError, ValueError and more
        raise ModelError(f"{path} cannot be read: {error}") from None
    while todo:
        value = todo.pop()
        if isinstance(value, dict):
            if value.get("class_name") in _CODE or value.get("function_type") == "lambda":
                raise ModelError(
                    f"{os.path.basename(path)} holds Python code (a Lambda layer), which an "
                    "untrusted model may not"
                )
            todo.extend(value.values())
        elif isinstance(value, list):
            todo.extend(value)
