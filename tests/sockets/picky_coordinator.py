"""A group's coordinator that refuses a commit for a while: what is sent again may come too late."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from headrace.node.broker.coordinators.partition_journal import PartitionJournal
from headrace.node.coordination.group.records import CODEC
from headrace.wire.protocol import errors, record_batch
from headrace.wire.protocol.messages.offset_commit_value import OffsetCommitValue


class Picky:
    """Refuses the place 1 of a topic until it has taken 2, as one whose disk is full for a while;
    whoever gives up on 1 may come with 2.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, topic: str) -> None:
        self.taken: list[int] = []
        self.refused = 0
        append = PartitionJournal.append

        def picky(journal: PartitionJournal, batch: bytes, wall_ms: int) -> int:
            offsets = list(_places_in(batch, topic))
            if 1 in offsets and 2 not in self.taken:
                self.refused += 1
                raise errors.KafkaError(errors.ErrorCode.NOT_COORDINATOR)
            end_offset = append(journal, batch, wall_ms)
            self.taken += offsets
            return end_offset

        monkeypatch.setattr(PartitionJournal, "append", picky)


def _places_in(batch: bytes, topic: str) -> Iterator[int]:
    for record in record_batch.walk(memoryview(batch), 1 << 20):
        assert record.key is not None
        found: Any = CODEC.decode(record.key, record.value)
        if isinstance(found.value, OffsetCommitValue) and found.key.topic == topic:
            yield found.value.offset
