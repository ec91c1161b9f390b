"""Measurements of bytes, descriptors and processes, as the kernel and the driver report them."""
