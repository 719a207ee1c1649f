"""Notices of finished actions, shown once on the next page of the same user.

Kept here and not in the address, which any client could write. Bounded: the oldest are dropped.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

MOST_SESSIONS = 500
MOST_EACH = 5


@dataclass(slots=True)
class Notice:
    text: str
    good: bool = True
    command: str | None = None  # that does the same
    secret: str = ""  # such as a password that was made up


class Notices:
    def __init__(self) -> None:
        self._by_session: OrderedDict[str, list[Notice]] = OrderedDict()

    def put(self, session: str, notice: Notice) -> None:
        kept = self._by_session.setdefault(session, [])
        kept.append(notice)
        del kept[:-MOST_EACH]
        self._by_session.move_to_end(session)
        while len(self._by_session) > MOST_SESSIONS:
            self._by_session.popitem(last=False)

    def take(self, session: str) -> list[Notice]:
        return self._by_session.pop(session, [])
