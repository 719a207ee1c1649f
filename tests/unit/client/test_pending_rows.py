"""A row of a pending message: its bytes, and the record that gives it another time."""

from __future__ import annotations

from typing import Any, cast

from headrace.client.delay.pending_rows import field_bytes, reschedule
from headrace.client.producer.producer import Producer

ROW = {
    "topic": "orders",
    "partition": 2,
    "target_partition": 2,
    "id": "order-42",
    "key": "tom",
    "value_base64": "/w==",
    "headers": [{"name": "trace", "value": "7"}, {"name": "empty", "value": None}],
}


class Sending:
    """Notes the arguments of `send`."""

    def __init__(self) -> None:
        self.sent: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    def send(self, *given: Any, **named: Any) -> None:
        self.sent.append((given, named))


def rescheduled(row: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    sending = Sending()
    reschedule(cast("Producer[Any, Any]", sending), row, {"delay": "5m"})
    [sent] = sending.sent
    return sent


def test_bytes_come_as_text_or_in_base64() -> None:
    assert field_bytes({"key": None}, "key") is None
    assert field_bytes({"key": "ä"}, "key") == "ä".encode()
    assert field_bytes({"key_base64": "/w=="}, "key") == b"\xff"


def test_a_message_is_sent_again_whole_under_its_id() -> None:
    assert rescheduled(ROW) == (
        ("orders", b"\xff"),
        {
            "key": b"tom",
            "headers": [("trace", b"7"), ("empty", None)],
            "partition": 2,
            "delay": "5m",
            "id": "order-42",
        },
    )


def test_a_message_for_another_partition_still_goes_there() -> None:
    _, named = rescheduled({**ROW, "target_partition": 1})
    assert named["partition"] == 2
    assert named["headers"][-1] == ("headrace-partition", b"1")
