"""Lists the TensorFlow functions that surely add an op to the graph on each call."""

from __future__ import annotations

import ast

from sojourn.audit.lint.names import Names
from sojourn.source import dotted

_OPS = frozenset(
    """
    abs accumulate_n acos acosh add add_check_numerics_ops add_n all angle any arg_max arg_min
    argmax argmin argsort as_string asin asinh assert_equal assert_variables_initialized assign
    assign_add assign_sub atan atan2 atanh batch_gather batch_matmul batch_scatter_update
    batch_to_space batch_to_space_nd betainc bincount bitcast boolean_mask broadcast_dynamic_shape
    broadcast_to case cast ceil check_numerics cholesky cholesky_solve clip_by_average_norm
    clip_by_global_norm clip_by_norm clip_by_value complex concat cond confusion_matrix conj
    constant convert_to_tensor cos cosh count_nonzero count_up_to cross cumprod cumsum decode_base64
    decode_compressed decode_csv decode_json_example decode_raw depth_to_space dequantize diag
    diag_part digamma div div_no_nan divide dynamic_partition dynamic_stitch edit_distance einsum
    encode_base64 ensure_shape equal erf erfc exp expand_dims expm1 extract_image_patches
    extract_volume_patches eye fft fft2d fft3d fill floor floor_div floordiv floormod foldl foldr
    gather gather_nd global_norm global_variables_initializer gradients greater greater_equal group
    guarantee_const hessians histogram_fixed_width histogram_fixed_width_bins identity identity_n
    ifft ifft2d ifft3d igamma igammac imag initialize_all_tables initialize_all_variables
    initialize_local_variables initialize_variables inverse invert_permutation is_finite is_inf
    is_nan is_variable_initialized lbeta less less_equal lgamma lin_space linspace
    local_variables_initializer log log1p log_sigmoid logical_and logical_not logical_or logical_xor
    map_fn matching_files matmul matrix_band_part matrix_determinant matrix_diag matrix_diag_part
    matrix_inverse matrix_set_diag matrix_solve matrix_solve_ls matrix_square_root matrix_transpose
    matrix_triangular_solve maximum meshgrid minimum mod mul multinomial multiply neg negative no_op
    norm not_equal numpy_function one_hot ones ones_like pack pad parallel_stack parse_example
    parse_single_example parse_single_sequence_example parse_tensor placeholder
    placeholder_with_default polygamma pow print py_func py_function qr quantize quantize_v2
    random_crop random_gamma random_normal random_poisson random_shuffle random_uniform range rank
    read_file real realdiv reciprocal reduce_all reduce_any reduce_join reduce_logsumexp reduce_max
    reduce_mean reduce_min reduce_prod reduce_sum regex_replace repeat
    report_uninitialized_variables reshape reverse reverse_sequence reverse_v2 rint roll round rsqrt
    saturate_cast scalar_mul scan scatter_add scatter_div scatter_max scatter_min scatter_mul
    scatter_nd scatter_nd_add scatter_nd_sub scatter_nd_update scatter_sub scatter_update
    searchsorted segment_max segment_mean segment_min segment_prod segment_sum self_adjoint_eig
    self_adjoint_eigvals sequence_mask serialize_many_sparse serialize_sparse serialize_tensor
    setdiff1d shape shape_n sigmoid sign sin sinh size slice softmax softplus sort space_to_batch
    space_to_batch_nd space_to_depth sparse_add sparse_concat sparse_fill_empty_rows sparse_mask
    sparse_matmul sparse_maximum sparse_merge sparse_minimum sparse_placeholder sparse_reduce_max
    sparse_reduce_max_sparse sparse_reduce_sum sparse_reduce_sum_sparse sparse_reorder
    sparse_reset_shape sparse_reshape sparse_retain sparse_segment_mean sparse_segment_sqrt_n
    sparse_segment_sum sparse_slice sparse_softmax sparse_split sparse_tensor_dense_matmul
    sparse_tensor_to_dense sparse_to_dense sparse_to_indicator sparse_transpose split sqrt square
    squared_difference squeeze stack stop_gradient strided_slice string_join string_split
    string_strip string_to_hash_bucket string_to_hash_bucket_fast string_to_hash_bucket_strong
    string_to_number sub substr subtract svd switch_case tables_initializer tan tanh
    tensor_scatter_add tensor_scatter_nd_add tensor_scatter_nd_sub tensor_scatter_nd_update
    tensor_scatter_sub tensor_scatter_update tensordot tile to_bfloat16 to_complex128 to_complex64
    to_double to_float to_int32 to_int64 trace transpose truediv truncated_normal truncatediv
    truncatemod tuple unique unique_with_counts unpack unravel_index unsorted_segment_max
    unsorted_segment_mean unsorted_segment_min unsorted_segment_prod unsorted_segment_sqrt_n
    unsorted_segment_sum unstack Variable variables_initializer vectorized_map
    verify_tensor_all_finite where where_v2 while_loop write_file zeros zeros_like zeta
    """.split()
)
_GROUPS = tuple(
    "nn. math. image. losses. layers. linalg. strings. metrics. random. sparse. signal. spectral. "
    "sets. bitwise. audio. manip.".split()
)
_MORE = frozenset(
    """
    debugging.check_numerics debugging.is_finite debugging.is_inf debugging.is_nan dtypes.as_string
    dtypes.cast dtypes.complex dtypes.saturate_cast histogram_summary import_graph_def
    io.decode_base64 io.decode_bmp io.decode_csv io.decode_gif io.decode_image io.decode_jpeg
    io.decode_png io.decode_raw io.encode_base64 io.encode_jpeg io.encode_png io.matching_files
    io.parse_example io.parse_single_example io.parse_tensor io.read_file io.serialize_tensor
    io.write_file merge_all_summaries scalar_summary summary.audio summary.histogram summary.image
    summary.merge summary.merge_all summary.scalar summary.text train.batch train.batch_join
    train.cosine_decay train.exponential_decay train.import_meta_graph train.inverse_time_decay
    train.natural_exp_decay train.piecewise_constant train.polynomial_decay train.Saver
    train.shuffle_batch train.shuffle_batch_join train.slice_input_producer
    train.string_input_producer
    """.split()
)
# Functions of those groups that return objects and add no ops.
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
    """
    avg_pool2d batch_norm conv2d conv2d_transpose dropout embed_sequence flatten fully_connected
    layer_norm max_pool2d one_hot_encoding softmax
    """.split()
)
ASSIGNING = frozenset({"assign", "assign_add", "assign_sub"})
# Methods that add an op if their result can be fetched.
MAKING = ASSIGNING | frozenset(
    """
    apply_gradients cross_entropy dequeue dequeue_many enqueue enqueue_many entropy get_next
    initialized_value kl_divergence log_prob lookup make_initializer mean minimize prob read_value
    sample scatter_update size stddev variance zero_state
    """.split()
)
# Functions of the Keras backend, which adds ops to the default graph too.
_KERAS_OPS = frozenset(
    """
    abs argmax argmin batch_dot batch_flatten binary_crossentropy cast categorical_crossentropy clip
    concatenate constant cos ctc_batch_cost ctc_decode cumsum dot equal exp expand_dims flatten
    function gather gradients greater greater_equal identity l2_normalize less less_equal log max
    maximum mean min minimum not_equal one_hot ones ones_like permute_dimensions placeholder pow
    prod random_normal random_uniform relu repeat reshape round sigmoid sign sin softmax
    sparse_categorical_crossentropy sqrt square squeeze stack std stop_gradient sum switch tanh tile
    transpose truncated_normal update update_add update_sub var variable zeros zeros_like
    """.split()
)
_KERAS_OBJECTS = frozenset({"function", "gradients", "ctc_decode"})
# Functions that return several tensors, or one in parts: an index into the result adds no op.
_SEVERAL = frozenset(
    """
    accumulate_n add_check_numerics_ops assert_variables_initialized case clip_by_global_norm cond
    decode_csv dynamic_partition foldl foldr gradients group hessians identity_n
    image.combined_non_max_suppression image.image_gradients image.non_max_suppression_padded
    image.non_max_suppression_with_scores image.sample_distorted_bounding_box import_graph_def
    io.decode_csv io.parse_example io.parse_single_example linalg.eig linalg.eigh linalg.lu
    linalg.qr linalg.slogdet linalg.svd map_fn math.top_k meshgrid nn.bidirectional_dynamic_rnn
    nn.bidirectional_rnn nn.ctc_beam_search_decoder nn.ctc_greedy_decoder nn.dynamic_rnn
    nn.fixed_unigram_candidate_sampler nn.fused_batch_norm nn.learned_unigram_candidate_sampler
    nn.log_uniform_candidate_sampler nn.max_pool_with_argmax nn.moments nn.normalize_moments
    nn.raw_rnn nn.rnn nn.static_bidirectional_rnn nn.static_rnn nn.static_state_saving_rnn
    nn.sufficient_statistics nn.top_k nn.uniform_candidate_sampler nn.weighted_moments norm_and_clip
    numpy_function parse_example parse_single_example parse_single_sequence_example print py_func
    py_function qr quantize quantize_v2 scan self_adjoint_eig setdiff1d shape_n sparse_add
    sparse_concat sparse_fill_empty_rows sparse_mask sparse_maximum sparse_merge sparse_minimum
    sparse_placeholder sparse_reduce_max_sparse sparse_reduce_sum_sparse sparse_reorder
    sparse_reset_shape sparse_reshape sparse_retain sparse_slice sparse_softmax sparse_split
    sparse_transpose split strings.split svd switch_case train.batch train.batch_join
    train.import_meta_graph train.Saver train.shuffle_batch train.shuffle_batch_join
    train.slice_input_producer train.string_input_producer tuple unique unique_with_counts unpack
    unstack vectorized_map where_v2 while_loop
    """.split()
)


def is_tensor_call(names: Names, call: ast.Call) -> bool:
    """Whether this call returns exactly one tensor or variable."""
    if names.meaning(call.func) == "tensorflow.get_variable":
        return True
    if not adds_op(names, call):
        return False
    if backend_name(names, call.func) in _KERAS_OBJECTS:
        return False
    name = (names.meaning(call.func) or "").removeprefix("tensorflow.")
    return name not in _SEVERAL and not name.startswith("metrics.")


def adds_op(names: Names, call: ast.Call) -> bool:
    """Whether this calls a TensorFlow function that adds an op to the default graph."""
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
    """The name in the Keras backend of `K.placeholder` or of an imported `ctc_decode`, or None."""
    root, _, rest = (dotted(node) or "").partition(".")
    level, imported = names.imports.get(root, (1, ""))
    full = names.meaning(node) or (f"{imported}.{rest}".rstrip(".") if not level else "")
    home, _, name = full.rpartition(".")
    return name if home in ("keras.backend", "tensorflow.keras.backend") else None
