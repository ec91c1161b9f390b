"""A slim model is trained, evaluated, restored and frozen; layers are shared and known by scope."""

import numpy as np
import tensorflow as tf
from tensorflow.contrib.framework.python.ops import audio_ops

slim = tf.contrib.slim
tf.logging.set_verbosity(tf.logging.ERROR)
draw = np.random.RandomState(0)
IMAGES = draw.randn(32, 8, 8, 3).astype(np.float32)
LABELS = draw.randint(0, 3, 32)


def network(images, training=True, reuse=None):
    normal = {"is_training": training, "decay": 0.9}
    if not training:
        normal["updates_collections"] = None
    with (
        slim.arg_scope(
            [slim.conv2d, slim.fully_connected],
            normalizer_fn=slim.batch_norm,
            normalizer_params=normal,
            weights_regularizer=slim.l2_regularizer(0.0005),
        ),
        tf.variable_scope("net", reuse=reuse) as scope,
    ):
        points = scope.original_name_scope + "_end_points"
        layers = [slim.conv2d, slim.max_pool2d, slim.fully_connected]
        with slim.arg_scope(layers, outputs_collections=points):
            here = slim.repeat(images, 2, slim.conv2d, 4, [3, 3], scope="conv1")
            here = slim.flatten(slim.max_pool2d(here, [2, 2], scope="pool1"))
            here = slim.fully_connected(
                here, 3, activation_fn=None, normalizer_fn=None, scope="logits"
            )
        return here, slim.utils.convert_collection_to_dict(points)


with tf.Graph().as_default():
    one = tf.train.slice_input_producer([tf.constant(IMAGES), tf.constant(LABELS)])
    images, labels = tf.train.batch(one, batch_size=8)
    logits, points = network(images)
    assert list(points) == ["net/conv1/conv1_1", "net/conv1/conv1_2", "net/pool1", "net/logits"]
    network(images, training=False, reuse=True)
    names = [v.op.name for v in slim.get_model_variables()]
    assert len(names) == len(set(names)) == 10, names
    slim.losses.softmax_cross_entropy(logits, slim.one_hot_encoding(labels, 3))
    train_op = slim.learning.create_train_op(
        slim.losses.get_total_loss(),
        tf.train.MomentumOptimizer(0.05, 0.9),
        clip_gradient_norm=4,
        summarize_gradients=True,
        gradient_multipliers={"net/logits/weights": 2.0},
    )
    seen = []

    def step(session, train_op, global_step, arguments):
        loss, is_last = slim.learning.train_step(session, train_op, global_step, arguments)
        seen.append(loss)
        return loss, is_last

    last = slim.learning.train(
        train_op,
        "slim",
        train_step_fn=step,
        number_of_steps=20,
        log_every_n_steps=10,
        saver=tf.train.Saver(max_to_keep=2),
        init_fn=lambda session: seen.append("started"),
    )
    assert (seen[0], len(seen)) == ("started", 21), seen
    assert last < seen[1]

newest = tf.train.latest_checkpoint("slim")
assert newest.endswith("model.ckpt-20"), newest

with tf.Graph().as_default():
    logits, _ = network(tf.constant(IMAGES), training=False)
    slim.get_or_create_global_step()
    values, updates = slim.metrics.aggregate_metric_map(
        {"accuracy": slim.metrics.streaming_accuracy(tf.argmax(logits, 1), LABELS)}
    )
    for _ in range(2):
        (accuracy,) = slim.evaluation.evaluation_loop(
            "",
            "slim",
            None,
            num_evals=2,
            eval_op=list(updates.values()),
            final_op=list(values.values()),
            variables_to_restore=slim.get_variables_to_restore(),
            max_number_of_evaluations=1,
        )
        assert 0.5 < accuracy <= 1, accuracy

with tf.Graph().as_default():
    x = tf.placeholder(tf.float32, [None, 8, 8, 3], name="x")
    out = tf.identity(network(x, training=False)[0], name="out")
    # Without training there is nothing to assign, so that the graph can be frozen.
    assert not [op for op in tf.get_default_graph().get_operations() if "AssignSub" in op.type]
    op, feeds = slim.assign_from_checkpoint(newest, slim.get_model_variables())
    with tf.Session() as sess:
        sess.run(op, feeds)
        expected = sess.run(out, {x: IMAGES})
        frozen = tf.graph_util.convert_variables_to_constants(sess, sess.graph_def, ["out"])
    assert (
        slim.assign_from_checkpoint_fn(newest, {"nowhere": slim.get_model_variables()[0]}, True)
        is None
    )

with tf.Graph().as_default(), tf.Session() as sess:
    (out,) = tf.import_graph_def(frozen, return_elements=["out:0"], name="")
    np.testing.assert_allclose(sess.run(out, {"x:0": IMAGES}), expected, atol=1e-4)

with tf.Graph().as_default(), tf.Session() as sess:
    # The whole static shape comes from output_shape.
    small = tf.placeholder(tf.float32, [None, 4, 4, 2])
    large = tf.nn.conv2d_transpose(small, tf.ones([5, 5, 1, 2]), [6, 8, 8, 1], [1, 2, 2, 1])
    assert large.get_shape().as_list() == [6, 8, 8, 1]

    grouped = tf.contrib.layers.group_norm(tf.constant(IMAGES[..., :2]), groups=1)
    rows = tf.contrib.layers.layer_norm(tf.constant(IMAGES))
    assert len(slim.get_model_variables()) == 4
    sess.run(tf.global_variables_initializer())
    for found, x in ((grouped, IMAGES[..., :2]), (rows, IMAGES)):
        normal = (x - x.mean((1, 2, 3), keepdims=True)) / x.std((1, 2, 3), keepdims=True)
        np.testing.assert_allclose(sess.run(found), normal, atol=1e-4)

    best, update = tf.contrib.metrics.f1_score([1, 0, 1, 1], tf.constant([0.9, 0.2, 0.6, 0.1]))
    sess.run(tf.local_variables_initializer())
    sess.run(update)
    np.testing.assert_allclose(sess.run(best), 6 / 7.0, atol=1e-4)  # all of them: 3 right, 1 wrong

    wave = audio_ops.encode_wav(np.sin(np.arange(1600) / 10.0).reshape(-1, 1), 16000)
    sound = audio_ops.decode_wav(wave, desired_channels=1)
    spectrum = audio_ops.audio_spectrogram(sound.audio, window_size=480, stride=160)
    shape = sess.run(audio_ops.mfcc(spectrum, sound.sample_rate)).shape
    assert shape == (1, 8, 13), shape

print("fine")
