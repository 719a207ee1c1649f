"""Reading a topic from an older place up to where its feed has the newest records in memory.

Page by page from the cluster, on the server's threads, at the pace of the reader: for a slow reader
only one page is held.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from headrace.client.errors import Unreachable
from headrace.client.lookup.record_pages import Bounds, Browser
from headrace.client.records import Record
from headrace.services.http.users.user_access import UserAccess

PAGE = Bounds(records=2000, bytes=1 << 20, seconds=5.0)


@dataclass(slots=True)
class Gap:
    """Records that are not there any more: retention or compaction of segments was quicker."""

    partition: int
    asked: int
    found: int


@dataclass(slots=True)
class Passage:
    records: list[Record] = field(default_factory=list)  # the order within a partition is kept
    next: dict[int, int] = field(default_factory=dict)
    gaps: list[Gap] = field(default_factory=list)


class CatchUp:
    def __init__(self, user: UserAccess, topic: str) -> None:
        self._user, self._topic = user, topic
        self._browser: Browser | None = None

    async def beginnings(self) -> dict[int, int]:
        return await self._user.run(lambda: self._opened().beginnings(self._opened().partitions))

    async def ends(self) -> dict[int, int]:
        return await self._user.run(lambda: self._opened().ends(self._opened().partitions))

    async def at_time(self, wall_ms: int) -> dict[int, int]:
        return await self._user.run(
            lambda: self._opened().at_time(self._opened().partitions, wall_ms)
        )

    async def read(self, cursor: dict[int, int]) -> Passage:
        return await self._user.run(lambda: self._read(cursor))

    def _opened(self) -> Browser:
        if self._browser is None:
            self._browser = Browser(self._user.connection, self._topic)
        return self._browser

    def _read(self, cursor: dict[int, int]) -> Passage:
        browser = self._opened()
        firsts = browser.beginnings(cursor)
        passage = Passage(next=dict(cursor))
        for partition, first in firsts.items():
            if first > cursor[partition]:
                passage.gaps.append(Gap(partition, cursor[partition], first))
                passage.next[partition] = first
        page = browser.onwards(passage.next, want=PAGE.records, bounds=PAGE)
        if page.unread and not page.found:
            self.close()  # a leader has moved: look it up again
            raise Unreachable(f"{self._topic}: {next(iter(page.unread.values()))}.")
        passage.records = [seen.record for seen in page.found]
        passage.next.update(page.next)
        return passage

    def close(self) -> None:
        if self._browser is not None:
            self._browser.close()
            self._browser = None
