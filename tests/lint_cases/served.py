"""Functions that are called again and again by code that is not in sight."""

from unittest import mock

import rospy
import tensorflow as tf
from flask import Flask, request
from keras import backend as K
from keras.backend import ctc_decode
from keras.callbacks import Callback
from keras.models import load_model
from matplotlib.animation import FuncAnimation
from tornado.web import RequestHandler

app = Flask(__name__)
x = tf.placeholder(tf.float32)
y = tf.square(x)


class Model:
    def __init__(self, sess):
        self.sess = sess
        self.logits = tf.square(x)

    def predict(self, image):
        return self.sess.run(tf.nn.softmax(self.logits), {x: image})  # expect: SOJ004

    def predict_on_device(self, image):
        return self.sess.run(self.logits, {x: image})

    def predict_all(self, images):
        best = tf.argmax(self.logits)
        return [self.sess.run(best, {x: image}) for image in images]

    def load(self, path):
        self.sess.run(tf.global_variables_initializer())

    def predict_at_last(self, image):
        return self.sess.run(tf.exp(self.logits), {x: image})

    def predict_alone(self, image):
        with tf.Session() as sess:
            return sess.run(tf.exp(y), {x: image})


def report(model, image):
    print(model.predict_at_last(image))


class Node:
    def __init__(self, sess):
        self.sess = sess
        self.subscriber = rospy.Subscriber("/image", bytes, self.see, queue_size=1)

    def see(self, message):
        self.sess.run(tf.argmax(y), {x: message})  # expect: SOJ004

    def look(self, message):
        self.sess.run(tf.argmax(y), {x: message})


class Handler(RequestHandler):
    def post(self):
        self.write(self.sess.run(tf.argmax(y), {x: self.body}))  # expect: SOJ004


def probability(sess, image):
    return sess.run(tf.nn.softmax(y), {x: image})  # expect: SOJ004


@app.route("/", methods=["POST"])
def answer():
    return str(probability(app.session, request.data))


@mock.patch("random.random")
def once(sess, image):
    return sess.run(tf.nn.softmax(y), {x: image})


def boxes_of(path, image):
    model = load_model(path)
    size = K.placeholder(shape=(2,))  # expect: SOJ004
    return K.get_session().run(model.output, {model.input: image, size: (1, 2)})


def activations(model, images):
    for image in images:
        get = K.function([model.input], [model.output])  # expect: SOJ004
        print(get([image]))


def watch(camera, path):
    while True:
        boxes_of(path, camera.read())


def decode(output):
    decoded = ctc_decode(output, [9])  # expect: SOJ004
    decoded = [path.eval(session=K.get_session()) for path in decoded[0]]
    return decoded[0]


class Report(Callback):
    def on_epoch_end(self, epoch, logs=None):
        print(self.error(decode(self.model.predict(epoch))))

    def on_train_end(self, logs=None):
        print(K.get_session().run(tf.exp(y)))

    def on_batch_end(self, batch, logs=None):
        print(K.get_session().run(tf.exp(y)))  # expect: SOJ004


def draw(sess, frame):
    return sess.run(tf.argmax(y), {x: frame})  # expect: SOJ004


def animate(figure):
    return FuncAnimation(figure, draw, frames=100)


class Suppressor:
    def __init__(self, sess, graph):
        self.sess = sess

    def keep_best(self, boxes, most):
        boxes = tf.constant(boxes)  # expect: SOJ004
        return self.sess.run(tf.argmax(boxes))

    def load(self, boxes):
        return self.sess.run(tf.assign(x, boxes))

    def widest(self, boxes):
        return self.sess.run(tf.reduce_max(boxes))


def look_once(suppressor, node):
    print(suppressor.widest([1.0]))
    node.look(b"")


class Saliency:
    def __init__(self, model, sess):
        self.model = model
        self.sess = sess

    def slopes(self, images):
        slopes = K.gradients(self.model.output, self.model.weights)  # expect: SOJ004
        sess = K.get_session()
        return sess.run(slopes, {self.model.input: images})

    def imagine(self, noise=None):
        if noise is None:
            noise = self.sess.run(tf.random_normal([1, 8]))  # expect: SOJ004
        return self.sess.run(self.model.output, {self.model.input: noise})

    def score(self, measure=None):
        if measure is None:
            measure = tf.reduce_mean(self.model.output)
        return self.sess.run(measure)


class Learner:
    """Nothing in sight makes one; who does will update it again."""

    def __init__(self, sess):
        self.sess = sess
        self.update_target()

    def update_target(self):
        for old in tf.trainable_variables("target"):
            old.assign(x).eval(session=self.sess)  # expect: SOJ004


class Copied(Learner):
    def __init__(self, sess):
        self.sess = sess
        self.update_copy()

    def update_copy(self):
        self.sess.run(tf.assign(x, y))


copied = Copied(tf.get_default_session())
