"""`python -m sojourn` runs the command `sojourn`, also if no script for it is on the PATH."""

from sojourn.cli.main import main

if __name__ == "__main__":
    main(prog_name="sojourn")
