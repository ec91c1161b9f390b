"""Raw TensorFlow against sojourn, interleaved in one run, as ratios.

Machines are noisy and differ; a ratio within one run travels. `harness.py` measures and knows
nothing of TensorFlow; `calls.py`, `opening.py` and `endings.py` say what is compared.
"""
