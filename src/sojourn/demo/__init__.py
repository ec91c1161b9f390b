"""The demo of `make demo`: one program, run on raw TensorFlow and on sojourn."""
