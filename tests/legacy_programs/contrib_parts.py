"""The parts of tf.contrib that are provided."""

import itertools

import numpy as np
import tensorflow as tf
import tensorflow.contrib.slim as slim
from tensorflow.contrib import crf, legacy_seq2seq, rnn
from tensorflow.contrib.estimator import *  # noqa: F403
from tensorflow.contrib.framework import *  # noqa: F403
from tensorflow.contrib.framework import arg_scope
from tensorflow.contrib.framework.python.ops import variables as contrib_variables
from tensorflow.contrib.layers import *  # noqa: F403
from tensorflow.contrib.layers import fully_connected, xavier_initializer
from tensorflow.contrib.tpu.python.tpu import tpu_config, tpu_estimator, tpu_optimizer
from tensorflow.python.util import nest

assert tf.contrib.layers.conv2d is conv2d  # noqa: F405
tf.set_random_seed(4)  # with some weights every unit is off from the start
assert contrib_variables.get_or_create_global_step is tf.train.get_or_create_global_step
assert tpu_config.RunConfig is tf.contrib.tpu.RunConfig
assert tpu_optimizer.CrossShardOptimizer is tf.contrib.tpu.CrossShardOptimizer
assert tpu_estimator.TPUEstimatorSpec is tf.contrib.tpu.TPUEstimatorSpec
assert nest.is_sequence([1])
assert not tf.contrib.framework.nest.is_sequence(1)
to_bytes = tf.contrib.learn.preprocessing.ByteProcessor(4)
assert [list(row) for row in to_bytes.fit_transform(["ab"])] == [[97, 98, 0, 0]]

hparams = tf.contrib.training.HParams(rate=0.1, sizes=[1, 2], deep=False)
hparams.parse("rate=0.5,sizes=[3,4],deep=true")
assert (hparams.rate, hparams.sizes, hparams.deep) == (0.5, [3, 4], True)

x = tf.placeholder(tf.float32, [None, 6, 6, 2])
penalty = tf.contrib.layers.l2_regularizer(0.5)
with arg_scope([slim.conv2d, fully_connected], weights_regularizer=penalty):
    net = slim.conv2d(x, 3, [3, 3], normalizer_fn=slim.batch_norm, scope="one")
    net = slim.repeat(net, 2, slim.conv2d, 3, [3, 3], scope="two")
    net = slim.max_pool2d(net, [2, 2])
    net = fully_connected(slim.flatten(net), 4, weights_initializer=xavier_initializer())
names = [v.op.name for v in slim.get_model_variables()]
assert names[:2] == ["one/weights", "one/BatchNorm/beta"], names
assert "two/two_2/biases" in names
assert len(tf.losses.get_regularization_losses()) == 4

now = tf.contrib.layers.batch_norm(
    fully_connected(net, 4), updates_collections=None, is_training=True, scope="now"
)
loss = slim.losses.softmax_cross_entropy(now, tf.one_hot([1, 2], 4))
train = slim.learning.create_train_op(loss, tf.train.AdamOptimizer(0.01))

inputs = [tf.placeholder(tf.int32, [None]) for _ in range(3)]
decoded, _ = legacy_seq2seq.embedding_attention_seq2seq(
    inputs, inputs, rnn.BasicLSTMCell(5), 7, 8, 4, feed_previous=False
)
ones = [tf.ones_like(step, dtype=tf.float32) for step in inputs]
sequence_loss = legacy_seq2seq.sequence_loss(decoded, inputs, ones)

with tf.variable_scope("buckets"):
    cell = rnn.MultiRNNCell([rnn.GRUCell(5)] * 2)
    before = len(tf.trainable_variables())
    _, by_bucket = legacy_seq2seq.model_with_buckets(
        inputs,
        inputs,
        inputs,
        ones,
        [(1, 2), (2, 3)],
        lambda x, y: legacy_seq2seq.embedding_rnn_seq2seq(x, y, cell, 7, 8, 4),
    )
    # Two embeddings, the projection, and two layers for each side; the second bucket adds none.
    assert len(tf.trainable_variables()) - before == 2 + 2 + 2 * 2 * 4

scores = np.random.RandomState(1).randn(2, 4, 3).astype(np.float32)
moves = np.random.RandomState(2).randn(3, 3).astype(np.float32)
likelihood, _ = crf.crf_log_likelihood(
    tf.constant(scores), tf.constant([[0, 1, 2, 1], [2, 0, 0, 0]]), tf.constant([4, 1]), moves
)


def score(tags, row):
    total = sum(scores[row, i, tag] for i, tag in enumerate(tags))
    return total + sum(moves[a, b] for a, b in itertools.pairwise(tags))


every = [score(tags, 0) for tags in itertools.product(range(3), repeat=4)]
best = max(itertools.product(range(3), repeat=4), key=lambda tags: score(tags, 0))
assert tuple(crf.viterbi_decode(scores[0], moves)[0]) == best

pictures = np.random.RandomState(5).rand(2, 4, 5, 3).astype(np.float32)
last = tf.contrib.layers.instance_norm(pictures, scope="last")
first = tf.contrib.layers.instance_norm(
    pictures.transpose(0, 3, 1, 2), data_format="NCHW", scope="first"
)
doubled = tf.Variable([1.0, 1.0], name="doubled")
single = tf.Variable([1.0, 1.0], name="single")
steps = tf.contrib.layers.optimize_loss(
    tf.reduce_sum(doubled + single),
    None,
    0.1,
    "SGD",
    gradient_noise_scale=0.0,
    gradient_multipliers={doubled: 2.0},
    variables=[doubled, single],
    update_ops=[],
)

sequence = tf.constant(np.random.RandomState(6).randn(5, 2, 3).astype(np.float32))
lengths = tf.constant([5, 3])
fused = rnn.LSTMBlockFusedCell(4)
ahead, _ = fused(sequence, dtype=tf.float32, sequence_length=lengths)
behind, _ = rnn.TimeReversedFusedRNN(fused)(sequence, dtype=tf.float32, sequence_length=lengths)
mirrored, _ = fused(
    tf.reverse_sequence(sequence, lengths, seq_axis=0, batch_axis=1),
    dtype=tf.float32,
    sequence_length=lengths,
)
assert len([v for v in tf.trainable_variables() if "lstm_fused_cell" in v.name]) == 2

# Here predictions came before labels.
recall, move = tf.contrib.metrics.streaming_recall(tf.constant([1, 1, 1]), tf.constant([1, 0, 0]))

averaged = tf.contrib.opt.MovingAverageOptimizer(tf.train.GradientDescentOptimizer(1.0), 0.5)
slow = tf.Variable(0.0, name="slow")
fast = averaged.minimize(-slow, var_list=[slow])
saver = averaged.swapping_saver([slow])


class Downhill(tf.contrib.opt.ExternalOptimizerInterface):
    """An optimizer of the program's own, outside the graph."""

    def _minimize(self, initial_val, loss_grad_func, optimizer_kwargs, step_callback, **rest):
        here = initial_val
        for _ in range(optimizer_kwargs["steps"]):
            here = here - 0.1 * loss_grad_func(here)[1]
            step_callback(here)
        low, high = np.transpose(rest["packed_bounds"])
        return np.clip(here, low, high)


assert tf.contrib.opt.ScipyOptimizerInterface
pits = [tf.Variable(tf.ones([2, 1])), tf.Variable(3.0)]
goal = tf.placeholder(tf.float32)
depth = tf.reduce_sum(tf.square(pits[0] - goal)) + tf.square(pits[1])
downhill = Downhill(depth, pits, var_to_bounds={pits[1]: (0.5, np.inf)}, steps=60)
walked, lost = [], []

with tf.Session() as sess:
    sess.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
    sess.run(move)
    assert sess.run(recall) == 1.0
    sess.run([fast])
    stored = tf.train.load_variable(saver.save(sess, "./swapped"), "slow")
    assert (sess.run(slow), stored) == (1.0, 0.5)
    forth, back, mirror = sess.run([ahead, behind, mirrored])
    assert forth.shape == (5, 2, 4)
    assert not forth[3:, 1].any()
    assert np.allclose(back[:5, 0], mirror[4::-1, 0], atol=1e-6)
    assert np.allclose(back[:3, 1], mirror[2::-1, 1], atol=1e-6)
    normal = sess.run(last)
    assert np.allclose(normal.mean((1, 2)), 0, atol=1e-5)
    assert np.allclose(sess.run(first).transpose(0, 2, 3, 1), normal, atol=1e-5)
    downhill.minimize(
        sess,
        feed_dict={goal: 5.0},
        fetches=[depth],
        step_callback=walked.append,
        loss_callback=lost.append,
    )
    assert np.allclose(sess.run(pits[0]), 5, atol=1e-3)
    assert sess.run(pits[1]) == 0.5
    assert len(walked) == len(lost) == 60
    assert walked[0].shape == (3,)
    assert lost[-1] < 1e-3 < lost[0]
    picture = np.arange(9, dtype=np.float32).reshape(3, 3)
    turned = tf.contrib.image.rotate(picture, np.pi / 2)
    assert np.array_equal(sess.run(turned), np.rot90(picture))
    both = tf.contrib.image.rotate(np.stack([picture] * 2)[..., None], [0.0, np.pi])
    assert np.array_equal(sess.run(both)[..., 0], [picture, np.rot90(picture, 2)])
    moved = tf.contrib.image.translate(picture[..., None], [1, 0])
    assert sess.run(moved)[0, :, 0].tolist() == [0, 0, 1]
    sess.run(steps)
    assert np.allclose(sess.run([doubled, single]), [[0.8, 0.8], [0.9, 0.9]])
    feed = {x: np.random.RandomState(3).rand(2, 6, 6, 2)}
    average = tf.contrib.framework.get_unique_variable("now/moving_mean")
    assert not sess.run(average).any()
    losses = [sess.run(train, feed) for _ in range(20)]
    assert losses[-1] < losses[0]
    assert sess.run(average).any()
    words = {step: [1, 2] for step in inputs}
    assert np.isfinite(sess.run([sequence_loss, *by_bucket], words)).all()
    exact = [score([0, 1, 2, 1], 0) - np.log(np.exp(every).sum())]
    exact.append(scores[1, 0, 2] - np.log(np.exp(scores[1, 0]).sum()))
    assert np.allclose(sess.run(likelihood), exact, atol=1e-4)
    counts = tf.contrib.data.Counter(3).apply(tf.contrib.data.batch_and_drop_remainder(2))
    assert list(sess.run(counts.make_one_shot_iterator().get_next())) == [3, 4]
    guesses, labels = np.random.RandomState(0).rand(2, 3, 8).astype(np.float32)
    pair = tf.placeholder(tf.float32, [2, 8])
    together, update = tf.contrib.metrics.streaming_pearson_correlation(pair[0], pair[1])
    sess.run(tf.local_variables_initializer())
    for each in zip(guesses, labels, strict=True):
        sess.run(update, {pair: each})
    assert np.isclose(
        sess.run(together), np.corrcoef(guesses.ravel(), labels.ravel())[0, 1], atol=1e-3
    )
from tensorflow.contrib.tensorboard.plugins import projector  # noqa: E402

config = projector.ProjectorConfig()
shown = config.embeddings.add()
shown.tensor_name, shown.metadata_path = "words:0", "words.tsv"
shown.sprite.image_path = "sprite.png"
shown.sprite.single_image_dim.extend([28, 28])
with tf.summary.FileWriter("shown") as writer:
    projector.visualize_embeddings(writer, config)
lines = open("shown/projector_config.pbtxt").read().split()
assert lines[:5] == ["embeddings", "{", "tensor_name:", '"words:0"', "metadata_path:"]
assert lines.count("single_image_dim:") == 2
print("fine")
