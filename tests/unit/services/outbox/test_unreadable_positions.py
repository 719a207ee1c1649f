"""Records in the topic of positions that no relay has written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError

from headrace.client.errors import ClientError
from headrace.client.intake import Arrived, Intake
from headrace.services.outbox import positions
from headrace.services.outbox.shard import Position

KEY = b"orders/3"


@dataclass
class Read:
    """A message as librdkafka gives it."""

    its_offset: int
    its_key: bytes | None = None
    its_value: bytes | None = None
    its_error: KafkaError | None = None

    def key(self) -> bytes | None:
        return self.its_key

    def value(self) -> bytes | None:
        return self.its_value

    def error(self) -> KafkaError | None:
        return self.its_error

    def topic(self) -> str:
        return positions.TOPIC

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self.its_offset


class Log:
    """A partition that is read to its end."""

    def __init__(self, *values: bytes) -> None:
        self.messages = [Read(number, KEY, value) for number, value in enumerate(values)]
        end = KafkaError(KafkaError._PARTITION_EOF)
        self.messages.append(Read(len(values), its_error=end))

    def read(self, wait_s: float, most: int) -> Arrived:
        taken: Any = self.messages
        self.messages = []
        arrived = Arrived()
        arrived.add(taken)
        return arrived


def last(*values: bytes) -> Position | None:
    return positions._last(cast(Intake, Log(*values)), KEY, len(values))


def test_a_position_that_cannot_be_read_is_skipped() -> None:
    good = Position(7, 9, (3,))
    assert last(positions.written(good), b"[" * 100_000, b'{"row": "x"}', b"{}") == good
    assert last() is None


def test_without_any_readable_position_nothing_is_sent_again_in_silence() -> None:
    with pytest.raises(ClientError, match="No position of orders/3 .* can be read"):
        last(b"[" * 100_000)
