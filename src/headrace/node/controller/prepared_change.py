"""A change of many records, encoded and replayed before it is written: in slices.

Writing it is then one short step (`Controller.append_prepared`), which is only valid while the
image on which it was prepared is still the newest. Offset and epoch are filled in by that step.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.node.consensus.batches import encoded
from headrace.node.metadata.image import MetadataImage
from headrace.node.metadata.replay import Draft
from headrace.wire.protocol.record_batch import build_values
from headrace.wire.protocol.steps import in_steps


@dataclass(slots=True)
class PreparedChange:
    base: MetadataImage
    batch: bytearray  # base offset and epoch are not yet those of the log
    image: MetadataImage  # after the change; offset and epoch likewise
    wall_ms: int


def prepare(
    base: MetadataImage, records: Sequence[Any], metadata_version: int, wall_ms: int
) -> Generator[None, None, PreparedChange]:
    values = yield from in_steps(encoded)(records, metadata_version)
    batch = yield from in_steps(build_values)(
        values, base_offset=0, leader_epoch=0, wall_ms=wall_ms
    )
    draft = Draft(base)
    for record in records:
        draft.replay(record)
        yield
    image = yield from in_steps(Draft.finish)(draft, offset=-1, epoch=-1, wall_ms=wall_ms)
    return PreparedChange(base, bytearray(batch), image, wall_ms)
