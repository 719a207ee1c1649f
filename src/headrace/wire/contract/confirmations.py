"""Confirmations of messages that came from an outbox: their topic and their form.

A record with the header `headrace-confirm` asks for one. The application that has handled it, and
has committed what it changed, writes a record here: the key is the message id, the value a JSON
object with `outbox` (the header's value), `id` (the message id) and `group` (the group that handled
it). To confirm twice is the same as to confirm once.
"""

from __future__ import annotations

import json

from headrace.wire.contract.own_records import UnreadableRecord, json_object

TOPIC = "headrace.outbox.confirmations"
PARTITIONS = 4
# An outbox whose relay is stopped for longer sends confirmed messages again.
SETTINGS = {"cleanup.policy": "delete", "retention.ms": str(7 * 86_400_000)}


def written(*, outbox_id: str, message_id: str, group: str) -> bytes:
    return json.dumps({"outbox": outbox_id, "id": message_id, "group": group}).encode()


def read_confirmation(key: bytes | None, value: bytes | None) -> tuple[str, str]:
    """The outbox and the message id; raises UnreadableRecord if it is not a confirmation."""
    said = json_object(value)
    outbox_id, message_id = said.get("outbox"), said.get("id")
    if not isinstance(outbox_id, str) or not isinstance(message_id, str):
        raise UnreadableRecord("it names no outbox and message")
    return outbox_id, message_id


def understood(value: bytes | None) -> tuple[str, str] | None:
    """Returns the outbox and the message id; None if the value is not a confirmation: any client
    may write to this topic."""
    try:
        return read_confirmation(None, value)
    except UnreadableRecord:
        return None
