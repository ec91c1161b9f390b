"""Habits of the time: NumPy as it was, arguments by their first names, summaries of everything."""

import pickle

import numpy as np
import tensorflow as tf
import tensorflow.contrib.distributions as ds
from tensorflow.python import pywrap_tensorflow
from tensorflow.python.platform import logging

assert "1.4" <= tf.__version__ < "2.0"
assert not tf.__version__ < "1.2"
assert tf.__version__.split(".")[:2] == ["1", "15"]
np.set_printoptions(threshold=np.nan)
assert np.array([[1, 2], [3]]).dtype == object
assert np.fromstring(np.ones(3, np.uint8).tostring(), np.uint8).tolist() == [1, 1, 1]
assert np.asscalar(np.array([2])) == 2
assert 0 <= int(np.random.rand(1) * 3) < 3
assert np.random.choice(["a"], 1)[0] == "a"
assert logging.info
assert pywrap_tensorflow.NewCheckpointReader

weight = tf.Variable([0.5], name="weight")
image = tf.ones([1, 8, 8, 3])
layer = tf.contrib.layers.conv2d(image, 4, 3, scope="layer")
tf.contrib.layers.summarize_activation(layer)
tf.contrib.layers.summarize_tensors([layer])
tf.image_summary("picture", image, max_images=1)
everything = tf.merge_all_summaries()
down = tf.contrib.layers.optimize_loss(
    loss=tf.reduce_sum(tf.square(weight)),
    global_step=tf.contrib.framework.get_global_step(),
    learning_rate=0.1,
    optimizer="SGD",
    summaries=tf.contrib.layers.optimizers.OPTIMIZER_SUMMARIES,
)
small = tf.image.resize_images(image, 4, 4)
white = tf.image.per_image_whitening(image[0])
joined = tf.concat_v2([[1], [2]], 0)
sparse = tf.SparseTensor(indices=[[0, 1]], values=[3.0], shape=[2, 2])
assert isinstance(sparse, tf.SparseTensor)
dense = tf.sparse_tensor_to_dense(sparse)
assert tf.pywrap_tensorflow.NewCheckpointReader
stacked = tf.TensorArray(tf.float32, 2).unpack(tf.constant([1.0, 2.0])).pack()
normal = ds.Normal(mu=0.0, sigma=2.0)
together = ds.MultivariateNormalDiag([0.0, 0.0], [2.0, 2.0])
pairs = [(mu, [sd] * 2) for mu, sd in (([0.0, 1.0], 2.0), ([1.0, 3.0], 0.5))]
apart = ds.kl_divergence(*[ds.MultivariateNormalDiag(*pair) for pair in pairs])
each = ds.kl_divergence(*[ds.Normal(*pair) for pair in pairs])
table = tf.contrib.lookup.index_table_from_tensor(mapping=tf.constant(["a", "b"]))
found = table.lookup(tf.constant(["b"]))
grouped = tf.contrib.layers.maxout(tf.constant([[1.0, 5.0, 2.0, 3.0]]), 2)

with tf.Session() as sess:
    sess.run([tf.global_variables_initializer(), tf.tables_initializer()])
    assert "%.1f" % sess.run(weight) == "0.5"  # noqa: UP031
    assert float(sess.run(weight)) == 0.5
    assert repr(sess.run(weight)) == "array([0.5], dtype=float32)"
    assert type(pickle.loads(pickle.dumps(sess.run(weight)))) is np.ndarray
    likely = sess.run(tf.constant([0.25, 0.75]))
    assert int(np.searchsorted(np.cumsum(likely), np.array([0.5]))) == 1
    assert float(np.concatenate([likely])[:1]) == 0.25
    assert isinstance(sess.run({"w": weight})["w"], np.ndarray)
    assert tf.Summary.FromString(sess.run(everything)).value
    sess.run(down)
    assert np.allclose(sess.run(weight), 0.4)
    assert sess.run(small).shape == (1, 4, 4, 3)
    assert np.allclose(sess.run(white), 0)
    assert sess.run(joined).tolist() == [1, 2]
    assert sess.run(dense).tolist() == [[0, 3], [0, 0]]
    assert sess.run(stacked).tolist() == [1, 2]
    one, pair = sess.run([normal.log_pdf(1.0), together.log_prob([1.0, 1.0])])
    assert np.isclose(2 * one, pair)
    assert sess.run(together.sample(3)).shape == (3, 2)
    assert np.isclose(sess.run(apart), sess.run(each).sum())
    assert sess.run(found).tolist() == [1]
    assert sess.run(grouped).tolist() == [[5, 3]]
print("fine")
