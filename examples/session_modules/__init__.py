"""Modules that the examples share."""
