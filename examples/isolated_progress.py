"""A training that reports after every epoch and is stopped when it is good enough.

python examples/isolated_progress.py
"""

from collections.abc import Iterator

import numpy as np

import sojourn


@sojourn.isolated(seed=1)
def train(epochs: int) -> Iterator[tuple[float, list[np.ndarray]]]:
    import tensorflow as tf

    x = np.random.rand(512, 4).astype(np.float32)
    y = x @ np.array([[1.0], [2.0], [3.0], [4.0]], np.float32)
    model = tf.keras.Sequential([tf.keras.Input((4,)), tf.keras.layers.Dense(1)])
    model.compile(tf.keras.optimizers.SGD(0.1), "mse")
    for _ in range(epochs):
        history = model.fit(x, y, verbose=0)
        yield history.history["loss"][0], model.get_weights()


if __name__ == "__main__":
    learned: list[np.ndarray] = []
    with train(100) as epochs:  # leaving the block ends the worker, even before the last epoch
        for epoch, (loss, weights) in enumerate(epochs, 1):
            print(f"epoch {epoch}: loss {loss:.3f}")
            learned = weights
            if loss < 0.5:
                break
    print("learned", np.round(learned[0].ravel(), 1))
    print(train.receipt)
