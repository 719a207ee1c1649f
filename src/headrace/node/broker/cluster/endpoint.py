"""The address of a node's listener, as clients are told it."""

from __future__ import annotations

from typing import NamedTuple


class Endpoint(NamedTuple):
    """Where clients of one listener find this broker."""

    host: str
    port: int
