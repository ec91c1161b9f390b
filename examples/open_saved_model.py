"""Open a SavedModel and run it. This process never loads TensorFlow."""

import sys
import tempfile

import numpy as np

import sojourn


@sojourn.isolated
def write_a_model(folder):
    import keras

    model = keras.Sequential(
        [
            keras.Input((4,), name="measurements"),
            keras.layers.Dense(8, "relu"),
            keras.layers.Dense(3, "softmax"),
        ]
    )
    model.export(folder, verbose=False)


with tempfile.TemporaryDirectory() as folder:
    write_a_model(folder)

    with sojourn.open(folder, name="flowers") as session:
        print(session.signature)
        scores = session(measurements=np.ones((2, 4)))
        print("scores of two flowers add up to", scores.sum(axis=1).round(3).tolist())
        try:
            session(petals=1)
        except sojourn.InputError as error:
            print(error)
    print(session.receipt)

print("TensorFlow loaded here:", "tensorflow" in sys.modules)
