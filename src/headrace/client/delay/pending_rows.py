"""A pending message as an instance of the delay service returns it; and how to give it a new time.

A row is an object of JSON. Bytes that are not text are written as base64, under a name with
`_base64`. To reschedule a message is to send it again under its id with another time: the service
then drops the waiting one.
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
    """The bytes of a key or value in a JSON answer."""
    packed = row.get(f"{name}_base64")
    if packed is not None:
        return base64.b64decode(packed)
    found = row.get(name)
    return None if found is None else str(found).encode()


def reschedule(producer: Producer[Any, Any], row: Mapping[str, Any], when: When) -> Delivery:
    """Send the message of a row again, with the times of `when`. The row must include its value."""
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
