"""The name of a share partition: a group and a partition that it reads.

Its text is the key by which Kafka finds the share coordinator: `group:topic id:partition`.
"""

from __future__ import annotations

from typing import NamedTuple

from headrace.wire.protocol.uuids import from_text, to_text


class SharePartitionKey(NamedTuple):
    group_id: str
    topic_id: bytes
    partition: int

    @property
    def text(self) -> str:
        return f"{self.group_id}:{to_text(self.topic_id)}:{self.partition}"


def is_valid_text(text: str) -> bool:
    """Returns whether a client's text names a share partition; a group's name may have colons."""
    parts = text.rsplit(":", 2)
    if len(parts) != 3 or not all(part.strip() for part in parts):
        return False
    try:
        from_text(parts[1])
        int(parts[2])
    except ValueError:
        return False
    return True
