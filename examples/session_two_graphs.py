"""Two graphs and two sessions in one process, used in turn."""

import tensorflow as tf

from sojourn.compat.v1 import Session

counting, naming = tf.Graph(), tf.Graph()
with counting.as_default():
    count = tf.compat.v1.get_variable("value", initializer=0)
    step = count.assign_add(1)
with naming.as_default():
    name = tf.compat.v1.get_variable("value", initializer="nobody")
    rename = name.assign("somebody")

with Session(graph=counting) as first, Session(graph=naming) as second:
    first.run(count.initializer)
    second.run(name.initializer)
    for _ in range(3):
        first.run(step)
    second.run(rename)
    print("count:", first.run(count))
    print("name:", second.run(name).decode())
    try:
        first.run(name)
    except ValueError as error:
        print("not of this graph:", "is not an element of this graph" in str(error))
