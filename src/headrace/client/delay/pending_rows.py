"""A pending message as an instance of the delay service tells it: its bytes, and a new time for it.

A row is an object of JSON. Bytes that are no text come in base64, under a name with `_base64`. To
reschedule a message is to send it again under its id with another time: the service then drops the
one that waits.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from headrace.client.delay.schedules import When
from headrace.client.producer.delivery import Delivery
from headrace.client.producer.producer import Producer
from headrace.wire.contract import headers


def field_bytes(row: Mapping[str, Any], name: str) -> bytes | None:
    """A key or value of an answer in JSON, as the bytes that it is."""
    packed = row.get(f"{name}_base64")
    if packed is not None:
        return base64.b64decode(packed)
    found = row.get(name)
    return None if found is None else str(found).encode()


def reschedule(producer: Producer[Any, Any], row: Mapping[str, Any], when: When) -> Delivery:
    """Send the message of a row, which was asked for with its value, with the times of `when`."""
    kept = [(header["name"], field_bytes(header, "value")) for header in row["headers"]]
    if row["target_partition"] != row["partition"]:
        kept.append((headers.PARTITION, str(row["target_partition"]).encode()))
    return producer.send(
        row["topic"],
        field_bytes(row, "value"),
        key=field_bytes(row, "key"),
        headers=kept,
        partition=row["partition"],
        **When(**{**when, "id": row["id"]}),
    )
