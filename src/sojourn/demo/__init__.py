"""The story that `make demo` tells: one program, run on raw TensorFlow and then on sojourn."""
