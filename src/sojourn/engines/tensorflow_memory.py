"""How much of a worker's memory TensorFlow may fill with tensors. Loads no TensorFlow."""

from __future__ import annotations

import os

_MOST_BYTES = "TF_MKL_ALLOC_MAX_BYTES"


def bound_tensors(limit_bytes: int) -> None:
    """Have TensorFlow itself refuse tensors beyond the limit. To be called before it starts.

    Its allocator takes memory in ever larger regions and gives none back. Left to the kernel's
    limit it takes the last byte, and the next allocation that is not a tensor's ends the process.
    """
    try:
        already = int(os.environ.get(_MOST_BYTES, limit_bytes))
    except ValueError:
        already = limit_bytes  # TensorFlow would refuse to start
    os.environ[_MOST_BYTES] = str(min(already, limit_bytes))
