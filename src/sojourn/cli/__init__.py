"""The commands, one per file; `main.py` lists them and loads the one that is requested."""
