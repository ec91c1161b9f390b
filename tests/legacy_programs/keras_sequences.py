"""Recurrent layers both ways, layers on every step, and normalized ones, in `tf.keras`."""

import numpy as np
import tensorflow as tf

layers = tf.keras.layers
tf.set_random_seed(1)
words = np.random.RandomState(0).randint(1, 20, (64, 6))
words[:, 4:] = 0  # padding
wanted = (words[:, 0] > 9).astype(np.float32)

model = tf.keras.Sequential(
    [
        layers.Embedding(20, 8, mask_zero=True),
        layers.Bidirectional(layers.LSTM(8, return_sequences=True)),
        layers.Bidirectional(layers.GRU(4), merge_mode="sum"),
        layers.LayerNormalization(),
        layers.GaussianNoise(0.01),
        layers.Dense(1, activation="sigmoid"),
    ]
)
model.compile("adam", "binary_crossentropy", ["accuracy"])
losses = model.fit(words, wanted, epochs=8, batch_size=16, verbose=0).history["loss"]
assert losses[-1] < losses[0], losses
assert model.predict(words).shape == (64, 1)

rows = tf.keras.Input((5, 3))
steps = layers.TimeDistributed(layers.Dense(2, use_bias=False))
both = layers.Bidirectional(layers.LSTM(4, return_sequences=True, return_state=True))
sequences, *states = both(steps(rows))
assert sequences.shape.as_list() == [None, 5, 8]
assert len(states) == 4
outer = tf.keras.Model(rows, [sequences, steps(rows)])
again = tf.keras.Sequential([layers.Bidirectional(layers.LSTM(4), input_shape=(5, 3))])
copied = tf.keras.Sequential.from_config(again.get_config())
assert copied.output_shape == (None, 8)
data = np.random.RandomState(1).rand(2, 5, 3).astype(np.float32)
_, spread = outer.predict(data)
kernel = steps.layer.get_weights()[0]
assert np.allclose(spread, data @ kernel, atol=1e-5)

fast = tf.keras.Sequential([layers.CuDNNLSTM(4, input_shape=(5, 3)), layers.Dense(1)])
assert fast.layers[0].get_config()["recurrent_activation"] == "sigmoid"
fast.compile("sgd", "mse")
pictures = tf.keras.preprocessing.image.ImageDataGenerator(horizontal_flip=True)
batch, answers = next(pictures.flow(np.ones((4, 6, 6, 1)), np.zeros(4), batch_size=2))
assert (batch.shape, answers.shape) == ((2, 6, 6, 1), (2,))
assert np.isfinite(fast.train_on_batch(data, np.zeros(2)))
tokens = tf.keras.preprocessing.text.Tokenizer(num_words=10)
tokens.fit_on_texts(["a b c", "a b"])
padded = tf.keras.preprocessing.sequence.pad_sequences(tokens.texts_to_sequences(["a c"]), 3)
assert padded.tolist() == [[0, 1, 3]]

# Every layer that a model may have is found when it is loaded, also as TensorFlow 1 described it.
kinds = [
    layers.BatchNormalization(gamma_regularizer=tf.keras.regularizers.l2(0.1)),
    layers.TimeDistributed(layers.Dense(4)),
    layers.LayerNormalization(),
    layers.GaussianNoise(0.1),
    layers.Bidirectional(layers.LSTM(3, return_sequences=True)),
    layers.CuDNNGRU(2),
]
saved = tf.keras.Sequential([layers.Dense(3, input_shape=(5, 3)), *kinds])
saved.compile("sgd", "mse")
saved.save("model.h5")
loaded = tf.keras.models.load_model("model.h5")
assert np.allclose(saved.predict(data), loaded.predict(data), atol=1e-6)

# Without a suffix they are a checkpoint, of Keras's session.
saved.save_weights("weights/saved")
again = tf.keras.models.clone_model(loaded)
again.load_weights(tf.train.latest_checkpoint("weights"))
assert np.allclose(saved.predict(data), again.predict(data), atol=1e-6)

described = {
    "axis": [2],
    "beta_initializer": {"class_name": "Ones", "config": {"dtype": "float32"}},
    "gamma_regularizer": {"class_name": "L1L2", "config": {"l1": 0.0, "l2": 0.5}},
    "beta_constraint": None,
    "renorm": False,
}
old = tf.keras.layers.deserialize({"class_name": "BatchNormalization", "config": described})
old.build((None, 5, 3))
assert old.get_weights()[1].tolist() == [1, 1, 1]
assert len(old.losses) == 1
print("fine")
