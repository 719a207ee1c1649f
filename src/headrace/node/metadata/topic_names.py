"""Which names a topic may have.

Names become folders and parts of metric names: hence the few characters, the length that leaves
room for "-partition", and that two names may not differ only in "." against "_".
"""

from __future__ import annotations

import re

from headrace.wire.protocol.errors import ErrorCode, KafkaError

# 255 bytes of a file name, less "-" and a five-digit partition.
LONGEST_NAME = 249
METADATA_TOPIC = "__cluster_metadata"
INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})

# The topics of our own services (`wire/contract/companions.py`, keys of HTTP requests, the audit):
# they need settings and partitions of their own, so a request for them does not create them.
OF_SERVICES = ("headrace.", "headrace-http-keys")

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def require_legal(name: str) -> None:
    """Raises INVALID_TOPIC_EXCEPTION with the reason."""
    reason = _fault_of(name)
    if reason is not None:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"That is not a valid topic name: {reason}."
        )


def _fault_of(name: str) -> str | None:
    if not name:
        return "it is empty"
    if name in (".", ".."):
        return f"'{name}' has another meaning"
    if len(name) > LONGEST_NAME:
        return f"it has {len(name)} characters, {LONGEST_NAME} are allowed"
    if _LEGAL.fullmatch(name) is None:
        return f"'{name}' has other characters than letters, digits, '.', '_' and '-'"
    return None


def is_of_services(name: str) -> bool:
    """Returns whether one of Headrace's own services creates this topic, with its settings."""
    return name.startswith(OF_SERVICES)


def unified(name: str) -> str:
    """Equal for names that collide."""
    return name.replace(".", "_")


def can_collide(name: str) -> bool:
    return "." in name or "_" in name
