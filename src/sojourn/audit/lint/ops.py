"""Which TensorFlow functions surely add an op to the graph each time they are called."""

from __future__ import annotations

import ast

from sojourn.audit.lint.names import Names
from sojourn.source import dotted

_OP_NAMES = """
    abs accumulate_n acos add add_n all angle any arg_max arg_min argmax argmin argsort asin
    assert_equal assign assign_add assign_sub atan atan2 batch_matmul batch_to_space bincount
    boolean_mask broadcast_to cast ceil check_numerics cholesky clip_by_global_norm clip_by_norm
    clip_by_value complex concat cond confusion_matrix conj constant convert_to_tensor cos
    count_nonzero cross cumprod cumsum decode_csv decode_raw depth_to_space diag diag_part
    digamma div divide dynamic_partition dynamic_stitch edit_distance einsum equal erf erfc exp
    expand_dims expm1 extract_image_patches eye fft fill floor floordiv floormod foldl foldr
    gather gather_nd global_norm global_variables_initializer gradients greater greater_equal
    group hessians histogram_fixed_width identity ifft imag initialize_all_variables
    initialize_local_variables initialize_variables inverse invert_permutation is_finite is_inf
    is_nan is_variable_initialized less less_equal lgamma lin_space linspace
    local_variables_initializer log log1p log_sigmoid logical_and logical_not logical_or
    logical_xor map_fn matching_files matmul matrix_band_part matrix_determinant matrix_diag
    matrix_inverse matrix_solve matrix_transpose maximum meshgrid minimum mod mul multinomial
    multiply neg negative no_op norm not_equal one_hot ones ones_like pack pad parse_example
    parse_single_example placeholder placeholder_with_default pow print py_func py_function
    random_crop random_gamma random_normal random_poisson random_shuffle random_uniform range
    rank read_file real reciprocal reduce_all reduce_any reduce_join reduce_logsumexp reduce_max
    reduce_mean reduce_min reduce_prod reduce_sum report_uninitialized_variables reshape reverse
    reverse_sequence reverse_v2 rint roll round rsqrt scalar_mul scan scatter_add scatter_nd
    scatter_sub scatter_update searchsorted segment_max segment_mean segment_min segment_sum
    self_adjoint_eig sequence_mask setdiff1d shape sigmoid sign sin sinh size slice softmax
    softplus space_to_depth sparse_placeholder sparse_reduce_sum sparse_reorder
    sparse_tensor_dense_matmul sparse_tensor_to_dense sparse_to_dense split sqrt square
    squared_difference squeeze stack stop_gradient strided_slice string_join string_split
    string_to_number sub subtract svd tables_initializer tan tanh tensordot tile to_double
    to_float to_int32 to_int64 trace transpose truediv truncated_normal tuple unique
    unique_with_counts unpack unsorted_segment_sum unstack Variable variables_initializer
    verify_tensor_all_finite where while_loop write_file zeros zeros_like
"""
_OPS = frozenset(_OP_NAMES.split())
_GROUPS = tuple(
    "nn. math. image. losses. layers. linalg. strings. metrics. random. sparse. signal. spectral. "
    "sets. bitwise. audio. manip.".split()
)
_MORE = frozenset(
    {"train.Saver", "train.batch", "train.shuffle_batch", "train.string_input_producer"}
    | {"train.import_meta_graph", "import_graph_def"}
    | {"train.exponential_decay", "train.slice_input_producer", "train.batch_join"}
    | {"summary.scalar", "summary.histogram", "summary.image", "summary.text", "summary.audio"}
    | {"summary.merge_all", "summary.merge"}
    | {"scalar_summary", "histogram_summary", "merge_all_summaries", "io.read_file"}
    | {"io.decode_raw", "io.decode_image", "io.decode_jpeg", "io.decode_png"}
)
# Inside those groups, what makes objects rather than ops.
_NOT_OPS = (
    "nn.rnn_cell.",
    "image.ResizeMethod",
    "losses.Reduction",
    "losses.get_",
    "layers.Input",
    "losses.add_loss",
    "random.set_",
    "random.get_",
)
_CONTRIB = ("contrib.layers.", "contrib.slim.")
_LAYERS = frozenset(
    {"conv2d", "conv2d_transpose", "fully_connected", "batch_norm", "layer_norm", "dropout"}
    | {"flatten", "max_pool2d", "avg_pool2d", "softmax", "embed_sequence", "one_hot_encoding"}
)
ASSIGNING = frozenset({"assign", "assign_add", "assign_sub"})
# Methods that add an op wherever their result can be fetched.
MAKING = ASSIGNING | frozenset(
    {"minimize", "apply_gradients", "get_next", "sample"}
    | {"enqueue", "enqueue_many", "dequeue", "dequeue_many", "initialized_value", "log_prob"}
    | {"scatter_update", "make_initializer", "read_value", "prob", "entropy", "cross_entropy"}
    | {"kl_divergence", "mean", "stddev", "variance", "zero_state", "size", "lookup"}
)
# The same of Keras, whose backend adds to the default graph too.
_KERAS_NAMES = """
    abs argmax argmin batch_dot batch_flatten binary_crossentropy cast categorical_crossentropy clip
    concatenate constant cos ctc_batch_cost ctc_decode cumsum dot equal exp expand_dims flatten
    function gather gradients greater greater_equal identity l2_normalize less less_equal log max
    maximum mean min minimum not_equal one_hot ones ones_like permute_dimensions placeholder pow
    prod random_normal random_uniform relu repeat reshape round sigmoid sign sin softmax
    sparse_categorical_crossentropy sqrt square squeeze stack std stop_gradient sum switch tanh tile
    transpose truncated_normal update update_add update_sub var variable zeros zeros_like
"""
_KERAS_OPS = frozenset(_KERAS_NAMES.split())
_KERAS_OBJECTS = frozenset({"function", "gradients", "ctc_decode"})
# What gives back several tensors: an index into it adds nothing.
_SEVERAL = frozenset(
    {"gradients", "hessians", "split", "unstack", "unpack", "clip_by_global_norm", "meshgrid"}
    | {"while_loop", "tuple", "unique", "dynamic_partition", "cond", "map_fn", "scan", "py_func"}
    | {"parse_example", "parse_single_example", "accumulate_n", "group", "foldl", "foldr"}
    | {
        "nn.top_k",
        "nn.moments",
        "nn.dynamic_rnn",
        "nn.static_rnn",
        "nn.rnn",
        "nn.bidirectional_rnn",
    }
    | {"nn.bidirectional_dynamic_rnn", "nn.raw_rnn", "nn.fused_batch_norm", "nn.ctc_greedy_decoder"}
    | {"nn.ctc_beam_search_decoder", "linalg.svd", "linalg.eigh", "linalg.qr", "norm_and_clip"}
    | {"train.batch", "train.shuffle_batch", "train.Saver", "train.string_input_producer"}
    | {"train.import_meta_graph", "import_graph_def"}
    | {"train.slice_input_producer", "train.batch_join", "self_adjoint_eig", "svd", "setdiff1d"}
    | {"unique_with_counts", "print", "sparse_reorder", "sparse_placeholder", "py_function"}
)


def is_tensor_call(names: Names, call: ast.Call) -> bool:
    """Whether this call gives back exactly one tensor or variable."""
    if names.meaning(call.func) == "tensorflow.get_variable":
        return True
    if not adds_op(names, call):
        return False
    if backend_name(names, call.func) in _KERAS_OBJECTS:
        return False
    name = (names.meaning(call.func) or "").removeprefix("tensorflow.")
    return name not in _SEVERAL and not name.startswith("metrics.")


def adds_op(names: Names, call: ast.Call) -> bool:
    """Whether this call is a TensorFlow function that adds to the default graph."""
    if backend_name(names, call.func) in _KERAS_OPS:
        return True
    meaning = names.meaning(call.func)
    if meaning is None or not meaning.startswith("tensorflow."):
        return False
    name = meaning.removeprefix("tensorflow.")
    if name in _OPS or name in _MORE:
        return True
    if name.startswith(_CONTRIB):
        return name.rpartition(".")[2] in _LAYERS
    last = name.rpartition(".")[2]
    return (
        name.startswith(_GROUPS)
        and not name.startswith(_NOT_OPS)
        and name.count(".") == 1
        and last[:1].islower()
    )


def backend_name(names: Names, node: ast.expr) -> str | None:
    """`placeholder` of `K.placeholder`, `ctc_decode` that was imported: its name in the backend."""
    root, _, rest = (dotted(node) or "").partition(".")
    level, imported = names.imports.get(root, (1, ""))
    full = names.meaning(node) or (f"{imported}.{rest}".rstrip(".") if not level else "")
    home, _, name = full.rpartition(".")
    return name if home in ("keras.backend", "tensorflow.keras.backend") else None
