"""Two classes with an attribute of one name: what one closes says nothing of the other."""

import tensorflow.compat.v1 as tf
from elsewhere import Unknown


class Careful:
    def __init__(self):
        self.sess = tf.Session()

    def close(self):
        self.sess.close()


class Careless:
    def __init__(self):
        self.sess = tf.Session()  # expect: SOJ001

    def act(self, fetch):
        return self.sess.run(fetch)


class ClosedByItsChild:
    def __init__(self):
        self.kept = tf.Session()

    def act(self, fetch):
        return self.kept.run(fetch)


class Inherits(Unknown):
    def __init__(self):
        self.handed = tf.Session()

    def act(self, fetch):
        return self.handed.run(fetch)
