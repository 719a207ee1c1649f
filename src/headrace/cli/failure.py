"""A command that cannot do what it was asked; `main.run` prints the sentence and leaves with 1."""

from __future__ import annotations


class Failure(Exception):
    """The text is one clear sentence for the person at the terminal, and says what to do."""

    @property
    def code(self) -> str | None:
        """Kafka's name of the error behind it, for programs; None if no broker refused."""
        found = getattr(self.__cause__, "code", None)
        return found if isinstance(found, str) else None
