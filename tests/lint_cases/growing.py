"""Graphs that grow, and loops that only look as if they made them."""

import onnxruntime_like
import tensorflow.compat.v1 as tf
from flask import Flask

app = Flask(__name__)
x = tf.placeholder(tf.float32, [None])
v = tf.get_variable("v", [])
names = ["x:0", "y:0"]
iterator = tf.data.Dataset.range(10).make_one_shot_iterator()
train = tf.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_sum(x))


def by_arithmetic(sess):
    y = tf.square(x)
    for i in range(100):
        sess.run(y * i)  # expect: SOJ004


def by_a_difference(sess, y, batches):
    for batch in batches:
        sess.run([y, x - y], {x: batch})  # expect: SOJ004


def by_an_index(sess, batches):
    y = tf.square(x)
    for batch in batches:
        print(sess.run(y[0], {x: batch}))  # expect: SOJ004


def by_the_next_element(sess):
    while True:
        print(sess.run(iterator.get_next()))  # expect: SOJ004


def on_the_default_session(batches):
    with tf.Session():
        for batch in batches:
            accuracy = tf.reduce_mean(x)  # expect: SOJ004
            print(accuracy.eval({x: batch}))


def with_an_op_that_runs(batches):
    with tf.Session():
        for batch in batches:
            train.run(feed_dict={x: batch})
            print(tf.reduce_mean(x))  # expect: SOJ004


def in_a_comprehension(sess, batches):
    return [sess.run(tf.reduce_mean(x), {x: batch}) for batch in batches]  # expect: SOJ004


def by_an_optimizer(sess, losses):
    optimizer = tf.train.AdamOptimizer(0.1)
    for loss in losses:
        sess.run(optimizer.minimize(loss))  # expect: SOJ004


def inner(sess, batches):
    def evaluate(batch):
        right = tf.equal(x, 1.0)  # expect: SOJ004
        return sess.run(right, {x: batch})

    for batch in batches:
        print(evaluate(batch))


def by_a_chain_of_calls(sess, batches):
    for batch in batches:
        report(sess, batch)


def report(sess, batch):
    print(scored(sess, batch))


def scored(sess, batch):
    score = tf.reduce_max(x)  # expect: SOJ004
    return sess.run(score, {x: batch})


@app.route("/predict")
def serve(sess):
    return str(sess.run(tf.square(x)))  # expect: SOJ004


class Kept:
    def __init__(self):
        self.graph = tf.Graph()

    def train(self, sess, batches):
        for batch in batches:
            with self.graph.as_default():
                loss = tf.reduce_mean(x)  # expect: SOJ004
                print(sess.run(loss, {x: batch}))


def names_are_not_tensors(sess, batches):
    for batch in batches:
        print(sess.run(names[0], {x: batch}), sess.run("scope/" + names[1]))
        print(sess.run(names + names, {x: batch}), sess.run([v] * 2))


def several_tensors(sess, batches):
    parts = tf.split(x, 2)
    for batch in batches:
        print(sess.run(parts[0], {x: batch}))


def a_handful(sess):
    cases = [1.0, 2.0]
    for case in cases:
        print(sess.run(tf.square(x), {x: [case]}))
    for one, two in zip(cases, [3.0, 4.0], strict=True):
        print(sess.run(tf.square(x), {x: [one, two]}))


def reused_variables(sess, layers):
    for layer in layers:
        with tf.variable_scope(layer, reuse=True):
            print(sess.run(tf.get_variable("w")))


def without_a_graph(session, batches):
    if tf.executing_eagerly():
        for batch in batches:
            print(session.run(tf.square(batch)))


def another_runtime(session, batches):
    for batch in batches:
        image = tf.image.flip_left_right(batch)
        print(session.run(None, {"image": image}))
    return onnxruntime_like


def one_graph_of_many_layers(sess, layers):
    cost = 0.0
    for layer in layers:
        now = sess.run(layer)
        cost += tf.reduce_mean(tf.square(layer - now))
    return cost


def one_list_of_many_layers(sess, layers):
    return [tf.reduce_mean(layer - sess.run(layer)) for layer in layers]


def summed_up_and_run(sess, layers):
    total = tf.constant(0.0)
    for layer in layers:
        total = total + tf.reduce_mean(layer)  # expect: SOJ004
        print(sess.run(total))


class Network:
    def __init__(self):
        self.w = tf.get_variable("w", [])

    def __call__(self, inputs):
        return tf.multiply(inputs, self.w)

    @property
    def loss(self):
        return tf.square(self.w)

    def choose_action(self, sess, state):
        best = tf.argmax(x)  # expect: SOJ004
        return sess.run(best, {x: state})


def by_an_object(sess, batches):
    network = Network()
    for batch in batches:
        print(sess.run(network(x), {x: batch}))  # expect: SOJ004


def by_a_property(sess, batches):
    network = Network()
    for batch in batches:
        print(sess.run(network.loss, {x: batch}))  # expect: SOJ004


def by_a_method_of_what_is_given(sess, states, agent):
    for state in states:
        agent.choose_action(sess, state)


def by_a_list_of_assignments(sess, values, variables):
    for value in values:
        sess.run([variable.assign(value) for variable in variables])  # expect: SOJ004


def by_an_assignment_that_is_run_later(sess, values):
    for value in values:
        update = v.assign(value)  # expect: SOJ004
        sess.run(update)


def at_the_end_of_each_episode(sess, env, episodes):
    for _ in range(episodes):
        while True:
            done = env.step(sess.run(v))
            if done:
                sess.run(tf.assign_add(v, 1.0))  # expect: SOJ004
                break


def by_variables_of_other_libraries(sess, frame, values):
    for value in values:
        print(sess.run(v), frame.assign(value))


def perhaps_once(sess, values):
    for value in values:
        sess.run(v)
        if value > 3:
            sess.run(tf.assign(v, value))


def in_the_branch_that_a_parameter_chooses(sess, batches, training):
    for batch in batches:
        fetched = v
        if not training:
            fetched = tf.no_op()  # expect: SOJ004
        sess.run(fetched, {v: batch})


def at_each_new_best(sess, losses, best):
    for loss in losses:
        if loss < best:
            best = loss
            sess.run(tf.assign(v, best))  # expect: SOJ004


def on_the_last_turn(sess, epochs):
    for epoch in range(epochs):
        sess.run(v)
        if epoch >= epochs - 1:
            sess.run(tf.assign(v, epoch))


def for_those_of_one_kind(sess, kinds, scores):
    for i in range(len(kinds)):
        kind = int(kinds[i])
        score = scores[i]
        if kind == 4 and score > 0.5:
            print(sess.run(tf.exp(v)))  # expect: SOJ004


def for_variables_of_one_type(sess, values):
    for variable, value in values.items():
        if "ref" in str(variable.dtype) and variable in sess.known:
            sess.run(variable.assign(value))  # expect: SOJ004


def of_images_among_other_files(sess, folder):
    for name in folder:
        if ".png" in name:
            print(sess.run(tf.io.read_file(name)))  # expect: SOJ004


def halved(sess, value):
    return sess.run(tf.divide(value, 2.0))  # expect: SOJ004


def of_each_of_them(sess, pool, values):
    return pool.map(halved, values)


def doubled(sess, value):
    return sess.run(tf.multiply(value, 2.0))


def of_a_pair_or_a_dataset(dataset):
    print(list(map(doubled, (1.0, 2.0))), dataset.map(doubled, 4))


def epoch(sess, batches, train=None):
    if train is None:
        train = tf.no_op()  # expect: SOJ004
    for batch in batches:
        sess.run([train, v], {v: batch})


def with_and_without_training(sess, batches, train):
    for _ in range(100):
        epoch(sess, batches, train)
        epoch(sess, batches)


def always_with_training(sess, batches, train=None):
    if not train:
        train = tf.no_op()
    for batch in batches:
        sess.run([train, v], {v: batch})


def that_is_always_given(sess, batches, train):
    for _ in range(100):
        always_with_training(sess, batches, train)


def how_many_are_waiting(sess, queue, cell):
    while sess.run(queue.size()) > 3:  # expect: SOJ004
        print(sess.run(cell.zero_state(1, tf.float32)))


def by_a_session_that_is_given_by_place(sess, counters):
    for counter in counters:
        print((counter.value + 1).eval(sess))  # expect: SOJ004


def of_first_values_that_are_only_kept(sess, variables):
    for variable in variables:
        value = tf.constant(variable.eval(sess))
        variable.first = value


def with_a_board(sess, batch, board=False):
    sess.run(train, {x: batch})
    if board:
        print(sess.run(tf.summary.merge_all(), {x: batch}))  # expect: SOJ004


def with_a_board_now_and_then(sess, batches):
    for turn, batch in enumerate(batches):
        with_a_board(sess, batch, board=turn % 100 == 0)


def with_a_note(sess, batch, note=False):
    sess.run(train, {x: batch})
    if note:
        print(sess.run(tf.summary.merge_all(), {x: batch}))


def without_notes(sess, batches):
    for batch in batches:
        with_a_note(sess, batch)


def save(sess, path):
    saver = tf.train.Saver()  # expect: SOJ004
    saver.save(sess, path)


def save_on_each_turn(sess, paths):
    for path in paths:
        save(sess, path)


def answer_of_a_file(path):
    with tf.Session() as sess:  # expect: SOJ003
        saver = tf.train.import_meta_graph(path)  # expect: SOJ004
        saver.restore(sess, path)
        return sess.run("y:0")


def answer_of_a_file_in_a_graph_of_its_own(path):
    with tf.Graph().as_default(), tf.Session() as sess:
        saver = tf.train.import_meta_graph(path)
        saver.restore(sess, path)
        return sess.run("y:0")


def of_each_file(paths):
    return [answer_of_a_file(path) for path in paths]


def of_each_file_alone(paths):
    return [answer_of_a_file_in_a_graph_of_its_own(path) for path in paths]


def by_a_model_that_is_called(sess, model, batches):
    for batch in batches:
        print(sess.run(model(batch)))  # expect: SOJ004


def by_a_name_that_is_looked_up(sess, find, graph, names):
    for name in names:
        print(sess.run(find(name)), sess.run(graph.get_tensor_by_name(name)))
