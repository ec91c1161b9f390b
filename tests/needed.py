"""Skips tests whose packages are not installed."""

from __future__ import annotations

import importlib.util

import pytest


def needs(*modules: str) -> pytest.MarkDecorator:
    """Return a mark that skips a test where one of these packages is missing."""
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")


needs_engines = needs("onnxruntime", "ai_edge_litert", "tf2onnx")
