"""`python -m sojourn` is the command `sojourn`, also where no script is on the path."""

from sojourn.cli.main import main

if __name__ == "__main__":
    main(prog_name="sojourn")
