"""The commands, one a file; `main.py` lists them and loads the one that is asked for."""
