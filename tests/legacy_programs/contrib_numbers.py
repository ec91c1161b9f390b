"""What was only in tf.contrib among losses, optimizers and distributions is as defined."""

import itertools

import numpy as np
import tensorflow as tf
from tensorflow.contrib.losses.metric_learning import triplet_semihard_loss
from tensorflow.contrib.opt import NadamOptimizer

ds = tf.contrib.distributions
draw = np.random.RandomState(0)
POINTS = draw.randn(9, 3).astype(np.float32)
LABELS = np.array([0, 0, 0, 1, 1, 2, 2, 2, 1])
LOGITS = np.array([1, 2, 0.5])
SHARES = np.exp(LOGITS) / np.exp(LOGITS).sum()
SLOPES = np.array([1.0, 2.0, 3.0])

loss = triplet_semihard_loss(LABELS, tf.constant(POINTS), margin=0.7)
apart = ((POINTS[:, None] - POINTS[None]) ** 2).sum(-1)
each = []
for anchor, partner in itertools.permutations(range(9), 2):
    if LABELS[anchor] == LABELS[partner]:
        strangers = apart[anchor][LABELS[anchor] != LABELS]
        farther = strangers[strangers > apart[anchor, partner]]
        chosen = farther.min() if len(farther) else strangers.max()
        each.append(max(0, 0.7 + apart[anchor, partner] - chosen))

old = tf.get_variable("old", initializer=np.ones(3, np.float32))
new = tf.get_variable("new", initializer=np.ones(3, np.float32), use_resource=True)
rows = tf.get_variable("rows", initializer=np.ones((4, 3), np.float32))
total = tf.reduce_sum((old + new) * SLOPES.astype(np.float32))
train = NadamOptimizer(0.1).minimize(total + tf.reduce_sum(tf.gather(rows, [0, 1])))

logits = tf.constant(LOGITS[None], tf.float32)
relaxed = ds.RelaxedOneHotCategorical(0.5, logits=logits)
soft = relaxed.sample(1000)
hard = ds.OneHotCategorical(logits=logits)
drawn = hard.sample(2000)
slope = tf.gradients(soft, logits)[0]
at = np.array([[0.2, 0.7, 0.1]], np.float32)
density = 2 * 0.5**2 * np.prod(SHARES * at[0] ** -1.5) / np.sum(SHARES * at[0] ** -0.5) ** 3

analyzer = tf.contrib.tfprof.model_analyzer
options = dict(analyzer.TRAINABLE_VARS_PARAMS_STAT_OPTIONS, output="none")
report = analyzer.print_model_analysis(tf.get_default_graph(), tfprof_options=options)
assert report.total_parameters == 18, report.total_parameters

with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    assert np.isclose(sess.run(loss), np.mean(each), atol=1e-5)
    m = v = 0
    expected = np.ones(3)
    for step in (1, 2, 3):
        sess.run(train)
        m = 0.9 * m + 0.1 * SLOPES
        v = 0.999 * v + 0.001 * SLOPES**2
        rate = 0.1 * np.sqrt(1 - 0.999**step) / (1 - 0.9**step)
        expected -= rate * (0.9 * m + 0.1 * SLOPES) / (np.sqrt(v) + 1e-8)
    np.testing.assert_allclose(sess.run([old, new]), [expected, expected], atol=1e-5)
    moved = sess.run(rows)
    assert (moved[2:] == 1).all()
    assert (moved[:2] < 1).all()

    vectors = sess.run(soft)
    assert vectors.shape == (1000, 1, 3)
    np.testing.assert_allclose(vectors.sum(-1), 1, atol=1e-4)
    winners = np.bincount(vectors.argmax(-1)[:, 0], minlength=3) / 1000.0
    np.testing.assert_allclose(winners, SHARES, atol=0.08)
    np.testing.assert_allclose(sess.run(drawn).mean((0, 1)), SHARES, atol=0.08)
    assert np.isfinite(sess.run(slope)).all()
    np.testing.assert_allclose(sess.run(relaxed.log_prob(at)), [np.log(density)], atol=1e-4)
    likely = sess.run(hard.log_prob([[0, 1, 0]]))
    np.testing.assert_allclose(likely, [np.log(SHARES[1])], atol=1e-5)

# A moving mean without bias is the mean of the batches so far, the later ones counting for more.
tf.reset_default_graph()
slim = tf.contrib.slim
seen, is_training = tf.placeholder(tf.float32, [None, 2]), tf.placeholder(tf.bool)
normed = slim.batch_norm(
    seen, 0.9, is_training=is_training, updates_collections=None, zero_debias_moving_mean=True
)
(mean,) = tf.contrib.framework.get_variables("BatchNorm/moving_mean")
names = {variable.op.name for variable in tf.global_variables()}
assert "BatchNorm/BatchNorm/moving_mean/biased" in names
deep = slim.conv3d_transpose(tf.ones([1, 2, 2, 2, 3]), 4, 2, 2)
assert slim.avg_pool3d(slim.max_pool3d(deep, 2), [2, 2, 2]).shape.as_list() == [1, 1, 1, 1, 4]
with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    one = np.array([[1.0, 2.0], [3.0, 4.0]])
    sess.run(normed, {seen: one, is_training: False})
    assert not sess.run(mean).any()
    sess.run(normed, {seen: one, is_training: True})
    assert np.allclose(sess.run(mean), [2, 3], atol=1e-4)
    sess.run(normed, {seen: one * 2, is_training: True})
    weighed = (0.09 * one + 0.1 * one * 2).mean(0) / (1 - 0.81)
    assert np.allclose(sess.run(mean), weighed, atol=1e-3)

# One label an example, of either width, or several of them.
with tf.Graph().as_default(), tf.Session() as sess:
    chances = tf.constant([[0.1, 0.7, 0.2], [0.6, 0.3, 0.1]])
    pairs = [
        slim.metrics.streaming_recall_at_k(chances, tf.constant([2, 2], kind), 2)
        for kind in (tf.int32, tf.int64)
    ]
    labels = tf.constant([[2, 1], [2, 1]], tf.int64)
    pairs.append(tf.contrib.metrics.streaming_sparse_recall_at_k(chances, labels, 2))
    sess.run(tf.local_variables_initializer())
    sess.run([update for _, update in pairs])
    assert sess.run([value for value, _ in pairs]) == [0.5, 0.5, 0.75]
print("fine")
