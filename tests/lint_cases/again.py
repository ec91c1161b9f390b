"""Ops under a condition of a loop: again and again, or once."""

import os
import random

import tensorflow.compat.v1 as tf

x = tf.placeholder(tf.float32)
v = tf.Variable(0.0)


def for_each_file_that_is_there(sess, folder):
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        if os.path.isfile(path):
            sess.run(tf.read_file(path))  # expect: SOJ004


def where_a_fixed_file_is_missing(sess, values, path):
    for value in values:
        sess.run(v)
        if not os.path.exists(path):
            sess.run(tf.assign(v, value))


def for_each_frame_that_came(sess, camera):
    while True:
        ok, frame = camera.read()
        if ok:
            sess.run(tf.image.rgb_to_grayscale(frame))  # expect: SOJ004


def while_there_is_one(sess, camera):
    while camera.is_on:
        if camera.image is not None:
            sess.run(tf.image.rgb_to_grayscale(camera.image))  # expect: SOJ004


def for_the_first_one(sess, camera):
    while camera.is_on:
        sess.run(v)
        if camera.first is not None:
            sess.run(tf.image.rgb_to_grayscale(camera.first))
            camera.first = None


def with_a_flag_of_its_own(sess, values):
    first = True
    for value in values:
        if first:
            sess.run(tf.assign(v, value))
            first = False
        sess.run(v)


def for_names_that_were_chosen(sess, names, chosen):
    for name in names:
        if name in chosen:
            sess.run(tf.constant(name))  # expect: SOJ004


def for_variables_that_have_a_value(sess, variables, values):
    for index in range(len(variables)):
        if variables[index].name in values:
            sess.run(tf.assign(variables[index], values[variables[index].name]))  # expect: SOJ004


def for_the_one_that_is_called_so(sess):
    for variable in tf.global_variables():
        if "output/bias" in variable.name:
            sess.run(tf.assign(variable, 1.0))
        sess.run(variable)


def once_for_each_name(sess, names):
    built = {}
    for name in names:
        if name not in built:
            built[name] = tf.constant(name)
        sess.run(built[name])


def for_one_name_of_many(sess, values):
    found = {}
    for name in values:
        value = sess.run(v)
        if name == "scale":
            value = sess.run(tf.square(v))
        found[name] = float(value)
    return found


def by_shape(sess, images):
    for image in images:
        if len(image.shape) == 2:
            image = sess.run(tf.image.grayscale_to_rgb(image))  # expect: SOJ004
        sess.run(v, {x: image})


def by_score(sess, scores):
    for index in range(len(scores)):
        score = scores[index]
        if score > 0.5:
            sess.run(tf.assign(v, score))  # expect: SOJ004


def by_the_name_of_one(sess, layers):
    for index in range(len(layers)):
        name = layers[index]
        if name == "last":
            sess.run(tf.assign(v, index))
        sess.run(v)


def by_chance(sess, values):
    for value in values:
        if random.random() < 0.1:
            sess.run(tf.assign(v, value))  # expect: SOJ004


def from_the_count_on(sess, records):
    total = 0
    for record in records:
        total += len(record)
        if total > 100:
            sess.run(tf.assign(v, record))  # expect: SOJ004


def at_the_end_of_each_episode(sess, episodes, steps):
    for _ in range(episodes):
        for step in range(steps):
            sess.run(v)
            if step == steps - 1:
                sess.run(tf.assign(v, 0.0))  # expect: SOJ004


def at_the_end_of_the_only_one(sess, steps):
    for step in range(steps):
        sess.run(v)
        if step == steps - 1:
            sess.run(tf.assign(v, 0.0))


def over_a_list_that_is_filled_first(sess, layers):
    todo = []
    for layer in layers:
        layer.build()
        todo.append((layer.output, layer.scale))
    for output, _ in todo:
        mean, _variance = tf.nn.moments(output, [0])  # expect: SOJ004
        sess.run(mean)


def of_distributions(sess, distributions):
    for distribution in distributions:
        print(sess.run(distribution.entropy()))  # expect: SOJ004


def by_the_name_of_the_op(sess, variables, values):
    for index in range(len(values)):
        op = variables[index].assign(values[index])  # expect: SOJ004
        sess.run(op)


def eagerly_as_a_rule(sizes):
    for size in sizes:
        product = tf.matmul(tf.ones(size), tf.ones(size))
        print(product if tf.executing_eagerly() else tf.Session().run(product))  # expect: SOJ001


def in_the_condition_of_a_comprehension(sess):
    found = tf.global_variables()
    return [n for n in found if sess.run(tf.is_variable_initialized(n))]  # expect: SOJ004


class Agent:
    def __init__(self, sess):
        self.sess = sess
        self.scores = tf.square(x)

    def explore(self, state):
        if random.random() > 0.1:
            return self.sess.run(tf.argmax(self.scores), {x: state})  # expect: SOJ004
        return 0

    def resize(self, shape):
        if shape != self.shape:
            self.shape = shape
            self.grid = tf.zeros(shape)
        return self.sess.run(self.grid)


def play(sess, states):
    agent = Agent(sess)
    for state in states:
        agent.explore(state)
        agent.resize(state.shape)
