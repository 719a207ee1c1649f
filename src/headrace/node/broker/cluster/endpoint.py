"""The address of a node's listener, as sent to clients."""

from __future__ import annotations

from typing import NamedTuple


class Endpoint(NamedTuple):
    """The address at which clients of one listener reach this broker."""

    host: str
    port: int
