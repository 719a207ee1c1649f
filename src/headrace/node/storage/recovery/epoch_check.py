"""Compares `leader-epoch-checkpoint` with the epochs that the log's own batches carry.

A wrong file makes a follower name an epoch that its leader contradicts, again and again, and keeps
it out of the ISR. Every start looks at the batches around each entry and at the last one: a few
headers. Only if one of them contradicts the file, all headers are read. A batch's epoch is not
under its checksum, so a single batch that contradicts its neighbours does not count. Epochs without
a batch (nothing was written, or compaction removed it) contradict nothing.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from headrace.node.storage.leader_epochs import LeaderEpochs
from headrace.node.storage.recovery.damage import DamagedRecords
from headrace.node.storage.segments.batch_search import NoBatch
from headrace.node.storage.segments.segment import Segment
from headrace.wire.protocol.record_batch import BatchHeader

Entry = tuple[int, int]  # epoch, and the offset at which it begins


def find_wrong_epoch(epochs: LeaderEpochs, segments: list[Segment]) -> str:
    """Returns how the file contradicts the batches; an empty text if it does not."""
    if not any(disagrees(epochs, batch) for batch in _batches_to_look_at(epochs, segments)):
        return ""
    for batch in _believable(segments):
        if disagrees(epochs, batch):
            known = epochs.epoch_of(batch.last_offset)
            return f"the batch at offset {batch.base_offset} has epoch {batch.leader_epoch}, " + (
                "the file has none" if known < 0 else f"the file has {known}"
            )
    return ""


def epochs_of_batches(segments: list[Segment]) -> list[Entry]:
    found: list[Entry] = []
    for batch in _believable(segments):
        if not found or batch.leader_epoch > found[-1][0]:
            found.append((batch.leader_epoch, batch.base_offset))
    return found


def disagrees(epochs: LeaderEpochs, batch: BatchHeader) -> bool:
    """By its last offset: the log, and so its first epoch, may begin within a batch, or later."""
    if batch.leader_epoch < 0 or (epochs.entries and batch.last_offset < epochs.entries[0][1]):
        return False
    return epochs.epoch_of(batch.last_offset) != batch.leader_epoch


def _batches_to_look_at(epochs: LeaderEpochs, segments: list[Segment]) -> Iterator[BatchHeader]:
    if len(segments) == 1:  # else a clean start would read one more file for each partition
        yield from _around(segments, segments[0].base_offset)
    for _, start_offset in epochs.entries[1:]:
        yield from _around(segments, start_offset)
    yield from _last(segments[-1])


def _last(segment: Segment) -> list[BatchHeader]:
    if not segment.size:
        return []
    segment.load_indexes()
    return list(_headers_from(segment, segment.index.last_offset))[-1:]


def _around(segments: list[Segment], offset: int) -> Iterator[BatchHeader]:
    """Yields the batch before `offset`, and the one that holds it or follows."""
    bases = [segment.base_offset for segment in segments]
    for segment in segments[max(bisect_right(bases, offset - 1) - 1, 0) :]:
        for batch in _headers_from(segment, max(offset - 1, segment.base_offset)):
            yield batch
            if batch.last_offset >= offset:
                return


def _headers_from(segment: Segment, offset: int) -> Iterator[BatchHeader]:
    """Nothing from the first damage on, which is found and reported elsewhere."""
    try:
        yield from segment.headers_from(offset)
    except (NoBatch, DamagedRecords):
        return


def _believable(segments: list[Segment]) -> Iterator[BatchHeader]:
    """All batches but those whose epoch contradicts their neighbours."""
    before: BatchHeader | None = None  # the last one that is believed
    batch: BatchHeader | None = None
    for segment in segments:
        for after in segment.headers():
            if batch is not None and not _is_alone(before, batch, after):
                yield batch
                before = batch
            batch = after
    if batch is not None and (before is None or batch.leader_epoch >= before.leader_epoch):
        yield batch


def _is_alone(before: BatchHeader | None, batch: BatchHeader, after: BatchHeader) -> bool:
    """Epochs never decrease in a log, and without this batch they do not."""
    if before is None:
        return batch.leader_epoch > after.leader_epoch
    if batch.leader_epoch < before.leader_epoch:
        return True
    return before.leader_epoch <= after.leader_epoch < batch.leader_epoch
