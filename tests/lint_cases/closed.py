"""Every session here is closed, or somebody else's. Nothing is reported."""

import atexit
import contextlib
import sys
import threading

import elsewhere
import pytest
import tensorflow.compat.v1 as tf
from base import Base, Helper, register

x = tf.constant(1.0)
script = tf.Session()
atexit.register(script.close)


def in_with():
    with tf.Graph().as_default(), tf.Session() as sess:
        return sess.run(x)


def in_with_later():
    sess = tf.Session()
    with sess:
        return sess.run(x)


def in_finally():
    sess = tf.Session()
    try:
        return sess.run(x)
    finally:
        sess.close()


def in_finally_if_there(flag):
    sess = None
    try:
        if flag:
            sess = tf.Session()
            return sess.run(x)
    finally:
        if sess is not None:
            sess.close()


def at_the_end():
    sess = tf.Session()
    result = sess.run(x)
    sess.close()
    return result


def in_both_branches(flag):
    sess = tf.Session()
    if flag:
        print(sess.run(x))
        sess.close()
    else:
        sess.close()


def when_it_is_ours(sess=None):
    ours = sess is None
    if ours:
        sess = tf.Session()
    result = sess.run(x)
    if ours:
        sess.close()
    return result


def by_closing():
    with contextlib.closing(tf.Session()) as sess:
        return sess.run(x)


def by_a_stack():
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(tf.Session())
        second = tf.Session()
        stack.callback(second.close)
        third = tf.Session()
        stack.push(third)
        return first.run(x), second.run(x), third.run(x)


def by_an_alias():
    sess = tf.Session()
    same = sess
    print(sess.run(x))
    same.close()


def by_another_name():
    with tf.Session().as_default() as sess:
        print(x.eval())
    sess.close()


def by_a_function():
    sess = tf.Session()
    print(sess.run(x))
    finish(sess)


def finish(session):
    session.close()


def by_an_inner_function():
    sess = tf.Session()

    def done():
        sess.close()

    print(sess.run(x))
    done()


def deleted():
    sess = tf.Session()
    print(sess.run(x))
    del sess


def returned():
    sess = tf.Session()
    sess.run(x)
    return sess


def returned_with_more():
    sess = tf.Session()
    return {"session": sess, "x": x}


def yielded():
    sess = tf.Session()
    yield sess


def in_a_list(pool):
    sess = tf.Session()
    pool.append(sess)
    return sess.run(x)


def in_an_object_that_is_returned():
    sess = tf.Session()
    helper = Helper(sess)
    sess.run(x)
    return helper


def in_an_object_that_is_closed():
    sess = tf.Session()
    helper = Helper(sess)
    sess.run(x)
    helper.close()


def given_away():
    sess = tf.Session()
    register(sess)
    return sess.run(x)


def wrapped(debug):
    sess = tf.Session()
    sess = debug.Wrapper(sess)
    print(sess.run(x))
    sess.close()


def meant_to_fail():
    with pytest.raises(TypeError):
        tf.Session(42)


def never_opened(session):
    return tf.Session() if None else session


def perhaps_opened():
    try:
        sess = tf.Session()
    except RuntimeError:
        return None
    result = sess.run(x)
    sess.close()
    return result


def in_every_turn(jobs):
    for job in jobs:
        if not job:
            continue
        with tf.Graph().as_default(), tf.Session() as sess:
            print(sess.run(job()))


def until_it_works(address):
    while True:
        try:
            sess = tf.Session(address)
            break
        except tf.errors.UnavailableError:
            print("again")
    result = sess.run(x)
    sess.close()
    return result


class Closing:
    def __init__(self):
        self.session = tf.Session()

    def run(self):
        return self.session.run(x)

    def close(self):
        self.session.close()


class ClosedByItsBase(Base):
    def __init__(self):
        self.base_session = tf.Session()

    def run(self):
        return self.base_session.run(x)


class HandedOut:
    def __init__(self):
        self._handed = tf.Session()

    @property
    def handed(self):
        return self._handed


class KeepsWhatItIsGiven:
    def __init__(self, session):
        self.kept = session

    def __exit__(self, *error):
        self.kept.close()

    def __enter__(self):
        return self


def kept_by_a_class_that_closes():
    with KeepsWhatItIsGiven(tf.Session()) as keeper:
        print(keeper)


def left_as_the_default_session():
    sess = tf.Session()
    sess.__enter__()
    print(sess.run(x))
    sess = tf.get_default_session()
    if sess:
        sess.__exit__(None, None, None)


if len(sys.argv) > 1:
    main = tf.Session()
    print(main.run(x))
    main.close()
    sys.exit(0)


def finished_by_code_out_of_sight():
    sess = tf.Session()
    elsewhere.finish(sess)


def in_a_thread_out_of_sight():
    sess = tf.Session()
    threading.Thread(target=elsewhere.work, args=(sess,)).start()
