"""What `make demo` shows: one program, run on raw TensorFlow and then on sojourn."""
