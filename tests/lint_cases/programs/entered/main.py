"""Enters a session for the rest of the program."""

import tensorflow as tf
from actor import act

sess = tf.Session()  # expect: SOJ001
sess.__enter__()
print(act(1.0))
