"""`python -m headrace` is the `headrace` command."""

from headrace.cli.main import run

if __name__ == "__main__":
    run()
