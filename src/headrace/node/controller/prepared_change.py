"""A change of many records, encoded and replayed before it is written: in slices.

Writing it is then one short step (`Controller.append_prepared`), which is only valid while the
image on which it was prepared is still the newest. Offset and epoch are filled in by that step.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.node.metadata.image import MetadataImage
from headrace.node.metadata.records import encode
from headrace.node.metadata.replay import Draft
from headrace.wire.protocol.record_batch import batch_of_values, value_records


@dataclass(slots=True)
class PreparedChange:
    base: MetadataImage
    batch: bytearray  # base offset and epoch are not yet those of the log
    image: MetadataImage  # after the change; offset and epoch likewise
    wall_ms: int


def prepare(
    base: MetadataImage, records: Sequence[Any], metadata_version: int, wall_ms: int
) -> Generator[None, None, PreparedChange]:
    values = []
    for record in records:
        yield
        values.append(encode(record, metadata_version))
    pieces: list[bytes] = []
    for piece in value_records(values):
        yield
        pieces.append(piece)
    batch = batch_of_values(pieces, base_offset=0, leader_epoch=0, wall_ms=wall_ms)
    draft = Draft(base)
    for record in records:
        draft.replay(record)
        yield
    image = yield from draft.finish_in_steps(offset=-1, epoch=-1, wall_ms=wall_ms)
    return PreparedChange(base, bytearray(batch), image, wall_ms)
