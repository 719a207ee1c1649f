"""What deciding gives: the records to write and the answer once they are committed.

Decisions are pure: they read an image and return this; only the replay of the records changes
anything. An empty list of records is a decision too: nothing changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

Response = TypeVar("Response")


@dataclass(slots=True)
class Decision(Generic[Response]):
    records: list[Any]
    response: Response
