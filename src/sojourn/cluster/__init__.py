"""More than one machine: sojourn on Ray."""
