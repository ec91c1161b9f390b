"""Build a Keras model inside the worker; only arrays cross."""

import numpy as np

import sojourn


def build():
    import keras

    return keras.Sequential(
        [
            keras.Input((2,), name="point"),
            keras.layers.Dense(16, "tanh"),
            keras.layers.Dense(1, name="height"),
        ]
    )


with sojourn.open(build, seed=1) as session:
    print(session.signature)
    print("height at the origin:", session(point=[[0, 0]]).item())
    print("heights of a grid:", session(point=np.ones((1000, 2))).shape)
