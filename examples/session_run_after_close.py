"""Running a closed session raises an error, in TensorFlow's own words."""

import tensorflow.compat.v1 as tf

from sojourn.compat.v1 import Session

tf.disable_eager_execution()

value = tf.constant(1)
session = Session()
session.run(value)
session.close()
session.close()  # closing twice is allowed and changes nothing

try:
    session.run(value)
except RuntimeError as error:
    print(error)
