"""Names that show the era of a program: TensorFlow 1 had them and TensorFlow 2 does not.

This module has only tables. A name is listed if a program that uses it on the plain `tensorflow`
module cannot have been written for TensorFlow 2.
"""

from __future__ import annotations


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Directly on the module: tf.placeholder, tf.Session, ...
TF1_TOP = _names("""
    AUTO_REUSE ConfigProto Dimension FIFOQueue FixedLenFeature FixedLengthRecordReader GPUOptions
    GraphDef GraphKeys GraphOptions InteractiveSession NoGradient OptimizerOptions PaddingFIFOQueue
    Print PriorityQueue QueueBase RandomShuffleQueue RunMetadata RunOptions Session
    SparseTensorValue Summary TFRecordReader TextLineReader VERSION VarLenFeature VariableScope
    WholeFileReader accumulate_n add_check_numerics_ops add_to_collection all_variables app arg_max
    arg_min assign assign_add assign_sub ceil check_numerics cholesky confusion_matrix contrib
    count_nonzero cross cumprod decode_csv decode_raw depth_to_space diag diag_part digamma
    disable_eager_execution disable_v2_behavior distributions div enable_eager_execution
    enable_resource_variables erf estimator expm1 extract_image_patches fft flags floor_div
    floordiv get_collection get_default_graph get_default_session get_local_variable get_variable
    get_variable_scope gfile global_norm global_variables global_variables_initializer
    glorot_normal_initializer glorot_uniform_initializer ifft imag initialize_all_tables
    initialize_all_variables initialize_local_variables initialize_variables invert_permutation
    is_finite is_inf is_nan is_variable_initialized layers lgamma lin_space local_variables
    local_variables_initializer log log1p log_sigmoid logging logical_xor make_template
    matching_files matrix_band_part matrix_determinant matrix_diag matrix_diag_part matrix_inverse
    matrix_set_diag matrix_solve matrix_transpose matrix_triangular_solve mod model_variables
    moving_average_variables multinomial op_scope orthogonal_initializer parse_example
    parse_single_example parse_single_sequence_example placeholder placeholder_with_default py_func
    python_io qr random_crop random_gamma random_normal random_poisson random_shuffle
    random_uniform read_file real reciprocal report_uninitialized_variables reset_default_graph
    resource_loader rint rsqrt scatter_add scatter_sub scatter_update segment_max segment_mean
    segment_sum self_adjoint_eig set_random_seed setdiff1d space_to_depth sparse_add sparse_concat
    sparse_matmul sparse_placeholder sparse_reduce_sum sparse_reorder sparse_reshape sparse_softmax
    sparse_tensor_dense_matmul sparse_tensor_to_dense sparse_to_dense squared_difference
    string_join string_split string_to_hash_bucket string_to_number substr svd tables_initializer
    to_bfloat16 to_double to_float to_int32 to_int64 trace trainable_variables truncated_normal
    truncated_normal_initializer uniform_unit_scaling_initializer unsorted_segment_max
    unsorted_segment_sum user_ops variable_op_scope variable_scope variables_initializer
    variance_scaling_initializer verify_tensor_all_finite write_file
    batch_matmul complex_abs histogram_summary image_summary audio_summary scalar_summary
    merge_all_summaries merge_summary mul neg pack select sub unpack inv batch_cholesky
    batch_matrix_inverse batch_self_adjoint_eig listdiff sparse_mask create_partitioned_variables
    """)

# On a submodule: tf.train.Saver, tf.nn.dynamic_rnn, tf.summary.merge_all, ...
TF1_UNDER = {
    "train": _names("""
        AdadeltaOptimizer AdagradOptimizer AdamOptimizer FtrlOptimizer GradientDescentOptimizer
        MomentumOptimizer Optimizer ProximalAdagradOptimizer ProximalGradientDescentOptimizer
        RMSPropOptimizer MonitoredSession MonitoredTrainingSession NewCheckpointReader QueueRunner
        Saver Scaffold Server SessionManager SessionRunHook SingularMonitoredSession
        SummarySaverHook SummaryWriter Supervisor SyncReplicasOptimizer add_queue_runner batch
        batch_join checkpoint_exists cosine_decay create_global_step exponential_decay
        export_meta_graph get_global_step get_or_create_global_step global_step import_meta_graph
        init_from_checkpoint input_producer inverse_time_decay match_filenames_once
        natural_exp_decay piecewise_constant polynomial_decay range_input_producer
        replica_device_setter shuffle_batch shuffle_batch_join slice_input_producer
        start_queue_runners string_input_producer summary_iterator write_graph
        """),
    "nn": _names("""
        bidirectional_dynamic_rnn bidirectional_rnn conv2d_backprop_input
        depthwise_conv2d_native dynamic_rnn fused_batch_norm raw_rnn rnn rnn_cell seq2seq
        softmax_cross_entropy_with_logits_v2 state_saving_rnn static_bidirectional_rnn static_rnn
        xw_plus_b
        """),
    "summary": _names("FileWriter merge merge_all get_summary_description"),
    "losses": _names("""
        absolute_difference add_loss compute_weighted_loss cosine_distance get_losses
        get_regularization_loss get_regularization_losses get_total_loss hinge_loss huber_loss
        log_loss mean_pairwise_squared_error sigmoid_cross_entropy softmax_cross_entropy
        sparse_softmax_cross_entropy
        """),
    "metrics": _names("accuracy auc mean precision recall mean_iou"),
}

# Packages inside tensorflow that only TensorFlow 1 had.
TF1_PACKAGES = (
    "tensorflow.contrib",
    "tensorflow.examples",
    "tensorflow.models",
    "tensorflow.python.client.session",
    "tensorflow.python.estimator",
    "tensorflow.python.ops.rnn_cell",
    "tensorflow.python.ops.seq2seq",
    "tensorflow.python.framework.ops.reset_default_graph",
    "tensorflow_estimator",
)

# Methods of any object, in a file that imports the plain module: TensorFlow 1 test cases call them.
TF1_METHODS = frozenset({"test_session"})

# On tf or tf.compat.v1: the program fetches from a session or builds a graph itself.
SESSION_NAMES = _names("""
    Session InteractiveSession MonitoredSession MonitoredTrainingSession Supervisor
    SingularMonitoredSession placeholder disable_eager_execution disable_v2_behavior
    """)

# A program that uses one of these names runs its ops eagerly.
EAGER_NAMES = _names("""
    GradientTape function enable_eager_execution enable_v2_behavior executing_eagerly
    run_functions_eagerly py_function
    """)

GRAPH_SWITCHES = frozenset({"disable_eager_execution", "disable_v2_behavior"})
