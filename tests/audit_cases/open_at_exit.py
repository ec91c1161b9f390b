"""A script that ends with its session open."""

import tensorflow.compat.v1 as tf

tf.disable_eager_execution()
session = tf.Session()  # expect: SOJ006
print(session.run(tf.constant(42)))
