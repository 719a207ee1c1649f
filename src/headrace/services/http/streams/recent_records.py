"""The newest records of a topic in the order they were read, bounded in bytes. Pure.

Every reader of the topic's streams goes through the same list with a number of its own, so a record
is read from the cluster once and turned into an event once, however many readers there are. The
oldest records are dropped when there is no room; a reader that has fallen behind them reads from
the cluster.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from headrace.client.records import Record
from headrace.services.http.streams.stream_cursor import Cursor

PER_RECORD = 512  # bytes of Python around one, about


class Recent:
    """One record, and its events by form."""

    __slots__ = ("cursor", "events", "record", "size")

    def __init__(self, record: Record, cursor: str) -> None:
        self.record = record
        self.cursor = cursor  # behind this record
        self.size = len(record.key or b"") + len(record.value or b"") + PER_RECORD
        self.size += sum(len(name) + len(value or b"") for name, value in record.headers)
        self.events: dict[str, bytes] = {}

    def event(self, form: str, encode: Callable[[Recent, str], bytes]) -> bytes:
        found = self.events.get(form)
        if found is None:
            found = self.events[form] = encode(self, form)
        return found


class RecentRecords:
    def __init__(self, topic_mark: str, starts: dict[int, int], most_bytes: int) -> None:
        self.floor = dict(starts)  # from these offsets on everything that was read is here
        self.next = dict(starts)  # where reading goes on
        self._mark, self._most = topic_mark, most_bytes
        self._records: deque[Recent] = deque()
        self._bytes = 0
        self.first = 0  # the number of the first record that is here
        self._cache: tuple[int, int, str, bytes] = (0, 0, "", b"")

    @property
    def end(self) -> int:
        """The number of the next record."""
        return self.first + len(self._records)

    @property
    def size_bytes(self) -> int:
        return self._bytes

    def cursor(self) -> Cursor:
        return Cursor(self._mark, dict(self.next))

    def add(self, records: Iterable[Record]) -> None:
        for record in records:
            self.next[record.partition] = record.offset + 1
            recent = Recent(record, self.cursor().text())
            self._records.append(recent)
            self._bytes += recent.size
        while self._bytes > self._most and len(self._records) > 1:
            gone = self._records.popleft()
            self._bytes -= gone.size
            self.floor[gone.record.partition] = gone.record.offset + 1
            self.first += 1

    def holds(self, cursor: dict[int, int]) -> bool:
        """Returns whether all records from this place on are here, or still to come."""
        return all(cursor.get(p, 0) >= floor for p, floor in self.floor.items())

    def since(self, number: int, most: int) -> list[Recent]:
        """Returns records from this number on; those before `first` are gone."""
        begin = number - self.first
        assert begin >= 0
        count = min(most, len(self._records) - begin)
        if begin == 0 and count == len(self._records):
            return list(self._records)
        return [self._records[i] for i in range(begin, begin + count)]

    def events_since(
        self, number: int, most: int, form: str, encode: Callable[[Recent, str], bytes]
    ) -> tuple[int, bytes]:
        """For readers who take everything: they are mostly at the same place, so the bytes of the
        last answer are kept."""
        count = min(most, self.end - number)
        known_from, known_count, known_form, known = self._cache
        if (known_from, known_count, known_form) == (number, count, form):
            return count, known
        found = b"".join(each.event(form, encode) for each in self.since(number, count))
        self._cache = (number, count, form, found)
        return count, found
