"""Measurements: bytes, descriptors, processes, as the kernel and the driver report them."""
