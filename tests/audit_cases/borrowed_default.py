"""Another module's InteractiveSession is used without having been handed over."""

import owner_of_default
import tensorflow.compat.v1 as tf

answer = tf.constant(42)
print(answer.eval())  # expect: SOJ005
owner_of_default.session.close()
