import tensorflow as tf
from model import Model
from trainer import Trainer


def main(batches):
    model = Model()
    with tf.Session() as sess:
        Trainer(sess, model).run(batches)
