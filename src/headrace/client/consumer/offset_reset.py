"""The first offset of a consumer: the committed one, else by auto_offset_reset.

The reset's words are the Java client's; librdkafka calls its "none" an error.
"""

from __future__ import annotations

from typing import Literal

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, OFFSET_STORED

from headrace.client.connection import Setting
from headrace.client.errors import Misuse

OffsetReset = Literal["earliest", "latest", "none"]

# librdkafka needs a name even without a group; nothing is ever committed under it.
NO_GROUP = "headrace-without-group"

_LIBRDKAFKA = {"earliest": "earliest", "latest": "latest", "none": "error"}


def consumer_defaults(
    group: str | None, reset: OffsetReset, *, auto_commit: bool
) -> dict[str, Setting]:
    if reset not in _LIBRDKAFKA:
        raise Misuse('auto_offset_reset is "earliest", "latest" or "none".')
    return {
        "group.id": group or NO_GROUP,
        "enable.auto.commit": auto_commit,
        "enable.auto.offset.store": False,  # we store what the program has seen
        "auto.offset.reset": _LIBRDKAFKA[reset],
    }


def start_offset(group: str | None, reset: OffsetReset) -> int:
    """The start offset of a partition that is assigned by hand."""
    if group:
        return OFFSET_STORED
    if reset == "none":
        raise Misuse('Give the offsets, or auto_offset_reset="earliest" or "latest".')
    return OFFSET_BEGINNING if reset == "earliest" else OFFSET_END
