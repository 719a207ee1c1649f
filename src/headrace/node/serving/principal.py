"""The user of a connection, as Kafka names it: `User:alice`."""

from __future__ import annotations

from typing import NamedTuple


class Principal(NamedTuple):
    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


ANONYMOUS = Principal("User", "ANONYMOUS")  # the user of a connection without a login
