"""Names and argument orders from before TensorFlow 1.0."""

import numpy as np
import tensorflow as tf
from tensorflow.models.rnn import rnn, rnn_cell

x = tf.placeholder("float", [None, 4])
y = tf.placeholder("float", [None, 2])
w = tf.Variable(tf.truncated_normal([4, 2], seed=1))
logits = tf.add(tf.matmul(x, w), tf.neg(tf.sub(tf.zeros([2]), tf.mul(2.0, tf.ones([2])))))
loss = tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits(logits, y))
tf.scalar_summary("a loss", loss)
tf.histogram_summary("weights", w)
merged = tf.merge_all_summaries()
step = tf.train.GradientDescentOptimizer(0.1).minimize(loss)

halves = tf.split(1, 2, x)
joined = tf.concat(1, [halves[1], halves[0]])
packed = tf.pack([x, x])
unpacked = tf.unpack(packed)
summed = tf.reduce_sum(x, reduction_indices=[1], keep_dims=True)
chosen = tf.select([True, False], [1, 2], [3, 4])
product = tf.batch_matmul(tf.ones([2, 3, 4]), tf.ones([2, 5, 4]), adj_y=True)
flipped = tf.reverse(tf.constant([[1, 2], [3, 4]]), [False, True])

turned = tf.transpose(tf.placeholder(tf.float32, [None, 2]))  # fed itself, below
twice = tf.transpose(turned)

cell = rnn_cell.BasicLSTMCell(3, forget_bias=1.0)
outputs, _ = rnn.rnn(cell, [x, x], dtype=tf.float32)

data = np.arange(8, dtype=np.float).reshape(2, 4)
feed = {x: data, y: np.eye(2, dtype=np.int)}
sess = tf.Session()
sess.run(tf.initialize_all_variables())
writer = tf.train.SummaryWriter("logs", sess.graph)
first = sess.run(loss, feed)
for i in range(20):
    _, text = sess.run([step, merged], feed)
    writer.add_summary(text, i)
writer.close()
assert sess.run(loss, feed) < first
assert sess.run(joined, feed).tolist() == [[2, 3, 0, 1], [6, 7, 4, 5]]
assert sess.run(unpacked[1], feed).tolist() == data.tolist()
assert sess.run(summed, feed).tolist() == [[6], [22]]
assert sess.run(chosen).tolist() == [1, 4]
assert sess.run(product).shape == (2, 3, 5)
assert sess.run(flipped).tolist() == [[2, 1], [4, 3]]
assert sess.run(twice, {turned: [[1, 2, 3], [4, 5, 6]]}).shape == (3, 2)
assert sess.run(outputs[-1], feed).shape == (2, 3)
print("fine")
