"""The data of a member that an assignor gets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

Assignment = Mapping[bytes, frozenset[int]]  # topic id -> partitions; no empty sets


class MemberSpec(NamedTuple):
    instance_id: str | None
    topics: frozenset[bytes]  # ids of the topics it reads, all of which exist
    current: Assignment  # its last target
