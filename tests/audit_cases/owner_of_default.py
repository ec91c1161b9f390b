"""Opens the session that `borrowed_default` takes. Not a case of its own."""

import tensorflow.compat.v1 as tf

tf.disable_eager_execution()
session = tf.InteractiveSession()
