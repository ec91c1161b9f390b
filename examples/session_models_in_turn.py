"""Models one after the other. The memory of each is back before the next one starts."""

import tensorflow.compat.v1 as tf

from sojourn.compat.v1 import Session

tf.disable_eager_execution()

for size in (100, 200, 300):
    tf.reset_default_graph()
    weights = tf.get_variable("weights", [size, size], initializer=tf.ones_initializer())
    with Session(name=f"model-{size}") as session:
        session.run(tf.global_variables_initializer())
        print(f"model of {size}: sum {session.run(tf.reduce_sum(weights)):.0f}")
    print("  all of it is back:", session.receipt.clean)
