"""A model fitted at module level, with the session open to the end."""

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()
tf.set_random_seed(7)
xs = np.linspace(0, 1, 20).astype(np.float32)
ys = 3 * xs + 1

x = tf.placeholder(tf.float32, [None])
y = tf.placeholder(tf.float32, [None])
w = tf.Variable(0.0)
b = tf.Variable(0.0)
loss = tf.reduce_mean(tf.square(w * x + b - y))
train = tf.train.GradientDescentOptimizer(0.5).minimize(loss)

# train it
sess = tf.Session()  # stays open

sess.run(tf.global_variables_initializer())
for step in range(200):
    sess.run(train, {x: xs, y: ys})
    if step % 50 == 0:
        print(step, round(float(sess.run(loss, {x: xs, y: ys})), 4))
weight, bias = sess.run([w, b])

table = """
  weight | bias
  ------ | ----
"""
print(table, round(float(weight), 3), round(float(bias), 3))
