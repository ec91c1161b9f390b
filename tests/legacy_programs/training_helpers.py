"""Sessions that TensorFlow's helpers open for the program."""

import numpy as np
import tensorflow as tf
from tensorflow.keras.layers import BatchNormalization, Dense

step = tf.train.get_or_create_global_step()
more = tf.assign_add(step, 1)
hooks = [tf.train.StopAtStepHook(last_step=5)]
with tf.train.MonitoredTrainingSession(checkpoint_dir="ckpt", hooks=hooks) as session:
    while not session.should_stop():
        last = session.run(more)
assert last == 5

tf.reset_default_graph()
model = tf.keras.Sequential([Dense(4, input_shape=(3,)), BatchNormalization(), Dense(1)])
model.compile(optimizer=tf.train.AdamOptimizer(0.1), loss="mse")
data = np.random.RandomState(0).rand(64, 3)
told = model.fit(data, data.sum(1), epochs=8, verbose=0)
assert told.history["loss"][-1] < told.history["loss"][0]
value = tf.keras.backend.get_session().run(model.output, {model.input: data[:2]})
assert value.shape == (2, 1)
print("fine")
