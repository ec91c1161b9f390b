"""Another engine for a TensorFlow model: converted once, proven to agree, timed, and chosen.

Pure: `inputs.py` makes the inputs that the model is tried with, `proof.py` decides what agrees,
`choosing.py` which engines to use, `candidates.py` has the facts. `trying.py` gets TensorFlow's
answers, `examining.py` converts, proves and times with sessions, which `attempt.py` can call off;
`cache.py` stores the results. Another engine is used only with a proof, which is stored beside the
converted file.
"""
