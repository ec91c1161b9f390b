"""Everything that is closed, in every way there is, and a few late ops. Nothing to report."""

import atexit
import contextlib
import threading

import helper_of_innocent
import tensorflow.compat.v1 as tf

tf.disable_eager_execution()
answer = tf.constant(42)
counter = tf.train.get_or_create_global_step()
count = counter.assign_add(1)

with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    helper_of_innocent.show(answer)
    session.run(answer + 1)
    session.run(answer + 2)
    for _ in range(20):
        session.run(count)

with contextlib.closing(tf.Session()) as session, session.as_default():
    answer.eval()

with contextlib.ExitStack() as stack:
    stack.enter_context(tf.Session()).run(answer)

session = tf.Session()
try:
    session.run(answer)
finally:
    session.close()

with tf.train.MonitoredTrainingSession(hooks=[tf.train.StopAtStepHook(last_step=30)]) as monitored:
    while not monitored.should_stop():
        monitored.run(count)

with tf.Graph().as_default():
    step = tf.train.get_or_create_global_step()
    with tf.train.Supervisor(logdir=None).managed_session() as session:
        session.run(step)


class Owner:
    def __init__(self):
        self.session = tf.Session()

    def __del__(self):
        self.session.close()


owner = Owner()
last = tf.Session()
atexit.register(last.close)
with contextlib.suppress(ZeroDivisionError), tf.Session() as session:
    session.run(answer)
    1 / 0  # noqa: B018


def work():
    with tf.Session(graph=answer.graph) as session:
        session.run(answer)


thread = threading.Thread(target=work)
thread.start()
thread.join()
