"""Eager execution as TensorFlow 1 had it: switched on by the program, with helpers in contrib."""

import numpy as np
import tensorflow as tf
import tensorflow.contrib.eager as tfe

tf.enable_eager_execution()
x = np.arange(4, dtype=np.float32)
slope = tfe.Variable(0.0)


def loss():
    return tf.reduce_mean(tf.square(slope * x - 3 * x))


optimizer = tf.train.GradientDescentOptimizer(0.1)
for _ in range(50):
    value, gradients = tfe.implicit_value_and_gradients(loss)()
    optimizer.apply_gradients(gradients)
assert np.isclose(slope.numpy(), 3)
assert tfe.gradients_function(lambda v: v * v)(3.0)[0].numpy() == 6
assert [int(n) for n in tfe.Iterator(tf.data.Dataset.range(3))] == [0, 1, 2]
pairs = tfe.Iterator(tf.data.Dataset.from_tensor_slices((x, x * 3)).batch(2))
assert np.allclose(pairs.next()[1], [0, 3])


class Net(tfe.Network):
    def __init__(self):
        super().__init__()
        self.hidden = self.track_layer(tf.layers.Dense(8, activation=tf.nn.relu))
        self.out = self.track_layer(tf.layers.Dense(2))

    def call(self, inputs):
        return self.out(self.hidden(inputs))


def error(net, inputs, labels):
    logits = net(inputs)
    return tf.losses.sparse_softmax_cross_entropy(labels=labels, logits=logits)


net, adam = Net(), tf.train.AdamOptimizer(0.1)
points, labels = np.random.RandomState(0).randn(64, 3).astype("f"), np.arange(64) % 2
points[:, 0] = labels * 2 - 1
for _ in range(20):
    adam.apply_gradients(tfe.implicit_gradients(error)(net, points, labels))
assert len(net.variables) == 4
right, mean = tfe.metrics.Accuracy(), tfe.metrics.Mean()
right(labels, tf.argmax(net(points), 1))
mean(1.0), mean([2.0, 6.0])
assert right.result().numpy() == 1
assert mean.result().numpy() == 3
saver = tfe.Saver(net.variables)
path, before = saver.save("./net"), net.variables[0].numpy()
net.variables[0].assign(before * 0)
saver.restore(path)
assert np.array_equal(net.variables[0], before)
print("fine")
