"""Plain values: frozen, comparable, printable. They know nothing of processes or TensorFlow."""

from sojourn.values.amounts import format_bytes, format_seconds, parse_bytes
from sojourn.values.places import Place, caller
from sojourn.values.receipts import Footprint, Receipt, Residue
from sojourn.values.signatures import Signature, TensorSpec

__all__ = [
    "Footprint",
    "Place",
    "Receipt",
    "Residue",
    "Signature",
    "TensorSpec",
    "caller",
    "format_bytes",
    "format_seconds",
    "parse_bytes",
]
