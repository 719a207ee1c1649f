"""A decision: the records to write, and the answer once they are committed.

Decisions are pure: they read an image and return this; only the replay of the records changes
state. A decision may have no records: then nothing changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

Response = TypeVar("Response")

# Apache's limit for one batch. A client's request becomes one batch or none: half of a request must
# not survive a crash. Only elections may need several.
MOST_RECORDS_PER_BATCH = 10_000
# A decision with so many records is made in slices: one takes 10 to 30 us.
LARGE_FROM = 500


@dataclass(slots=True)
class Decision(Generic[Response]):
    records: list[Any]
    response: Response
