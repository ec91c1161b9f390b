"""Find out whether a feed reaches an op that might keep its memory beyond the step.

TensorFlow uses an aligned feed in place, and some ops pass their input on without a copy. A
variable that is assigned such a value then lives in the caller's memory. This module follows the
feeds through such ops. Every op that is not known to be harmless counts as one that keeps its
input.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

# Ops whose results always have their own memory. (They reuse an input's memory only if TensorFlow
# owns it, and it does not own a feed's.)
_COMPUTING = frozenset(
    "Abs Add AddV2 ArgMax ArgMin BatchMatMul BatchMatMulV2 BatchMatMulV3 BiasAdd BiasAddGrad "
    "Conv2D Conv2DBackpropFilter Conv2DBackpropInput Conv3D DepthwiseConv2dNative Div Elu Equal "
    "Exp FusedBatchNorm FusedBatchNormV3 GatherV2 Greater GreaterEqual InTopK InTopKV2 Less "
    "LessEqual Log Log1p LogSoftmax LogicalAnd LogicalNot LogicalOr MatMul MaxPool Maximum Minimum "
    "Mul Neg NotEqual OneHot Pow Rank RealDiv Relu Relu6 Rsqrt Shape Sigmoid Size Softmax "
    "SoftmaxCrossEntropyWithLogits Softplus SparseSoftmaxCrossEntropyWithLogits Sqrt Square "
    "SquaredDifference Sub Tanh".split()
)
# Ops that may return their input's memory as their result, and keep nothing.
_HANDING_ON = frozenset(
    "Cast CheckNumerics ConcatV2 ExpandDims Identity Max Mean Min Pack PreventGradient Prod "
    "Reshape Slice Snapshot Split SplitV Squeeze StopGradient StridedSlice Sum Tile Transpose "
    "Unpack".split()
)


def may_outlive_the_step(feeds: Iterable[Any], fetches: Iterable[Any]) -> bool:
    """Whether an op could keep the memory of a feed, or a result could be that memory."""
    fetched = {id(tensor) for tensor in fetches}
    todo = list(feeds)
    seen: set[int] = set()
    while todo:
        tensor = todo.pop()
        if id(tensor) in fetched:
            return True
        for op in tensor.consumers():
            if id(op) in seen or op.type in _COMPUTING:
                continue
            if op.type not in _HANDING_ON:
                return True
            seen.add(id(op))
            todo.extend(op.outputs)
    return False
