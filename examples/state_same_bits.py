"""The same seed gives the same bits, whatever else is running."""

import numpy as np

import sojourn


def build():
    import tensorflow as tf

    v1 = tf.compat.v1
    x = v1.placeholder(tf.float32, [None, 8], name="x")
    w = v1.get_variable("w", [8, 4])  # random
    loss = tf.reduce_sum(tf.nn.dropout(x @ w, 0.5) ** 2)  # random again
    return {"x": x}, {"w": w, "train": v1.train.AdamOptimizer().minimize(loss)}


def trained(seed):
    with sojourn.open(build, seed=seed) as session:
        for _ in range(10):
            session.run("train", {"x": np.ones((16, 8))})
        return session.run("w").tobytes()


print("twice with one seed, the same bits:", trained(7) == trained(7))
print("with another seed, others:", trained(7) != trained(8))
