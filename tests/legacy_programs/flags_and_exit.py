"""Flags as they were, and an exit code."""

import sys

import tensorflow as tf

tf.app.flags.DEFINE_string("log_dir", "logs", "a name that absl has too")
tf.app.flags.DEFINE_integer("steps", default_value=2, docstring="how many")
FLAGS = tf.app.flags.FLAGS
FLAGS._parse_flags()


def main(argv):
    print(__name__, FLAGS.log_dir, FLAGS.steps, FLAGS.__flags["steps"], argv[1:])
    left_open = tf.Session()
    left_open.run(tf.constant(1))
    sys.exit(7)


if __name__ == "__main__":
    tf.app.run()
