"""The name of an open session is bound to the next one."""

import tensorflow.compat.v1 as tf

tf.disable_eager_execution()
answer = tf.constant(42)


class Model:
    def load(self):
        self.session = tf.Session()  # expect: SOJ008
        return self.session.run(answer)


model = Model()
model.load()
model.load()
model.session.close()
