"""Runs on whatever session is the default: no call in sight is inside of one."""

import numpy as np


def prune(weights, least):
    values = weights.eval()  # expect: SOJ005
    values[abs(values) < least] = 0
    weights.assign(values).eval()  # expect: SOJ005


def norm(weights):
    return np.linalg.norm(weights.eval())  # expect: SOJ005
