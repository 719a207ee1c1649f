"""Batches that were counted as appended and that the file did not take."""

from __future__ import annotations

from headrace.environment import Buffer
from headrace.node.storage.leader_epochs import LeaderEpochs
from headrace.node.storage.producer_state import ProducerState
from headrace.node.storage.segments.batch_headers import headers_of
from headrace.node.storage.segments.segment import Segment
from headrace.wire.protocol.record_batch import CONTROL


def take_back(
    segment: Segment, pieces: list[Buffer], epochs: LeaderEpochs, producers: ProducerState
) -> int | None:
    """Remove lost batches from the active segment and the producers' state; returns the new log
    end. Returns None, without changes, if the earlier state can only be read from the file.

    To read a large segment again takes seconds in which no client is served; on a full disk that
    would happen for each producer that retries.
    """
    size = segment.size - sum(map(len, pieces))
    lost = [batch for piece in pieces for batch in headers_of(piece)]
    offset = lost[0].base_offset
    if (
        size <= 0
        or size != segment.open_file().size
        or any(batch.attributes & CONTROL for batch in lost)
        or epochs.begins_after(offset)
        or not producers.take_back({batch.producer_id for batch in lost} - {-1}, offset)
    ):
        return None
    try:
        segment.take_back(offset, size)
    except OSError:
        return None
    return offset


def expect_first_batches(producers: ProducerState, refused: Buffer) -> None:
    """The first batches of producers are to come again before their second ones are taken."""
    for batch in headers_of(refused):
        if batch.producer_id >= 0 and batch.base_sequence == 0:
            producers.expect_first(batch.producer_id, batch.producer_epoch, batch.max_timestamp)
