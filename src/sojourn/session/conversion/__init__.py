"""Another engine for a TensorFlow model: converted once, proven to agree, timed, and chosen.

`inputs.py` makes what the model is tried with, `proof.py` compares, both purely; `examining.py`
converts, proves and times with sessions; `cache.py` keeps the results. A model answers by
another engine only with a proof that is stored beside the converted file.
"""
