"""A command that cannot do what it was asked; `main.run` prints the sentence and leaves with 1."""

from __future__ import annotations


class Failure(Exception):
    """The text is one clear sentence for the person at the terminal, and says what to do."""
