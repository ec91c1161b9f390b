"""What the package calls TensorFlow."""

import tensorflow

tfv1 = tensorflow.compat.v1
