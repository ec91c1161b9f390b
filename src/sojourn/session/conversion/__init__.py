"""Another engine for a TensorFlow model: converted once, proven to agree, timed, and chosen.

Pure: `inputs.py` makes what the model is tried with, `proof.py` says what agrees, `choosing.py`
which engines are worth it, `candidates.py` has the facts. `trying.py` asks TensorFlow for answers,
`examining.py` converts, proves and times with sessions, which `attempt.py` can call off; `cache.py`
keeps the results. A model answers by another engine only with a proof that is stored beside the
converted file.
"""
