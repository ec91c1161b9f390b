"""Two InteractiveSessions: the second replaces the first, and is left installed."""

import tensorflow.compat.v1 as tf

tf.disable_eager_execution()
session = tf.InteractiveSession()  # expect: SOJ008
print(tf.constant(1).eval())
session = tf.InteractiveSession()  # expect: SOJ009
print(tf.constant(2).eval())
