"""A Keras model in a program that also has sessions: the same layer in both, the same numbers."""

import keras
import numpy as np
import tensorflow as tf

from sojourn.compat.v1 import Session

keras.utils.set_random_seed(3)
model = keras.Sequential([keras.Input([4]), keras.layers.Dense(2, activation="relu")])
given = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
by_keras = model(given).numpy()

kernel, bias = model.get_weights()
with tf.Graph().as_default():
    x = tf.compat.v1.placeholder(tf.float32, [None, 4])
    y = tf.nn.relu(tf.matmul(x, kernel) + bias)
    with Session() as session:
        by_session = session.run(y, {x: given})

print("shape:", by_session.shape)
print("equal:", np.allclose(by_keras, by_session, atol=1e-6))
print("Keras goes on:", model(given).shape == (3, 2))
