"""InteractiveSession, eval and run without a session."""

import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()
sess = tf.InteractiveSession()
v = tf.Variable([1.0, 2.0])
v.initializer.run()
print(v.eval())
update = v.assign(v * 2)
for _ in range(3):
    print(sess.run(update))
print((v + 1).eval())
