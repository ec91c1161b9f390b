"""Raw TensorFlow against sojourn, interleaved in one run, as ratios.

Machines are noisy and differ, but a ratio within one run is comparable between machines.
`harness.py` measures and knows nothing of TensorFlow; `calls.py`, `opening.py` and `endings.py`
define what is compared.
"""
