"""A suite of raw TensorFlow tests with two leaks, for the pytest plugin. Collected on demand."""

import pytest
import tensorflow.compat.v1 as tf


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default():
        yield


def evaluate(tensor):
    with tf.Session() as session:
        return session.run(tensor)


@pytest.mark.parametrize("number", range(12))
def test_a_helper_serves_many_tests(number):
    assert evaluate(tf.constant(number)) == number


def test_a_session_is_forgotten():
    session = tf.Session()  # expect: SOJ001
    assert session.run(tf.constant(1)) == 1


def test_a_session_is_used_late():
    constant = tf.constant(1)
    with tf.Session() as session:
        session.run(constant)
    with pytest.raises(RuntimeError):
        session.run(constant)  # expect: SOJ002
