"""Inference: one session, opened once, and many feeds of many sizes."""

import numpy as np
import tensorflow as tf

from sojourn.compat.v1 import Session

with tf.Graph().as_default():
    image = tf.compat.v1.placeholder(tf.float32, [None, 8])
    weights = tf.constant(np.eye(8, 3, dtype=np.float32))
    best = tf.argmax(tf.matmul(image, weights), axis=1)
    with Session() as session:
        generator = np.random.default_rng(0)
        answered = 0
        for size in (1, 2, 32, 1, 7) * 20:
            answered += len(session.run(best, {image: generator.random((size, 8))}))

print("answered:", answered)
print("steps:", session.receipt.runs)
