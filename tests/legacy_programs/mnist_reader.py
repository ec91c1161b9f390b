"""The MNIST reader of the tutorials, over local files."""

import tensorflow as tf
from tensorflow.examples.tutorials.mnist import input_data

data = input_data.read_data_sets("MNIST_data", one_hot=True, validation_size=3)
images, labels = data.train.next_batch(5)
with tf.Session() as sess:
    print(sess.run(tf.shape(images)), labels.shape, data.validation.num_examples)
