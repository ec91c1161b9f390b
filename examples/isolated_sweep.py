"""A sweep over learning rates: each training runs in a worker of its own and leaves nothing behind.

python examples/isolated_sweep.py
"""

import numpy as np

import sojourn


@sojourn.isolated(memory="2GiB", seed=7)
def train(rate: float) -> float:
    import tensorflow as tf

    x = np.random.rand(256, 8).astype(np.float32)
    y = x.sum(axis=1, keepdims=True)
    model = tf.keras.Sequential(
        [
            tf.keras.Input((8,)),
            tf.keras.layers.Dense(16, activation="relu"),
            tf.keras.layers.Dense(1),
        ]
    )
    model.compile(tf.keras.optimizers.SGD(rate), "mse")
    return float(model.fit(x, y, epochs=3, verbose=0).history["loss"][-1])


if __name__ == "__main__":
    rates = [0.001, 0.01, 0.1]
    # A progress bar is shown if this runs in a terminal.
    losses = train.map(rates, workers=2)
    for rate, loss in zip(rates, losses, strict=True):
        print(f"rate {rate:<6} loss {loss:.4f}")
    print("best:", rates[int(np.argmin(losses))])
    print("the last worker:", train.receipt)
