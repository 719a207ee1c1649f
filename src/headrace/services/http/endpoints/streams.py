"""`GET /topics/{topic}/stream`: new records as server-sent events.

A reader reconnects with `Last-Event-ID` and continues where it was. Records that no longer exist
are reported (`event: gap`), never skipped silently. A reader that does not read what is written to
it is disconnected after a while; it loses only the connection.
"""

from __future__ import annotations

import asyncio
import json

from aiohttp import web

from headrace.client.errors import ClientError, Unreachable
from headrace.services.http.cluster_refusals import refusal_of
from headrace.services.http.exchange import Exchange
from headrace.services.http.refusal import UNPROCESSABLE, Refusal, busy, partition_not_found
from headrace.services.http.streams.recent_records import Recent, RecentRecords
from headrace.services.http.streams.record_forms import FORMS
from headrace.services.http.streams.stream_catch_up import CatchUp, Gap
from headrace.services.http.streams.stream_cursor import Cursor
from headrace.services.http.streams.stream_request import (
    BEGINNING,
    END,
    QUESTIONS,
    StreamRequest,
    read_stream_request,
)
from headrace.services.http.streams.topic_feed import TopicFeed
from headrace.services.http.users.credentials import unauthorized

HEARTBEAT_S = 15.0
MOST_RECORDS = 500  # written at once
RETRY_MS = 1000
HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Accel-Buffering": "no",  # a proxy in between must not gather
    "Server": "headrace",
}
_dumps = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def event_of(recent: Recent, form: str) -> bytes:
    """Returns the event of a record; a record that has no such form becomes an event that reports
    it."""
    try:
        data, name = FORMS[form](recent.record), ""
    except Refusal as refusal:
        data, name = _dumps(refusal.document()), "event: unreadable\n"
    return f"{name}id: {recent.cursor}\ndata: {data}\n\n".encode("utf-8", "replace")


async def stream(exchange: Exchange) -> web.StreamResponse:
    asked = read_stream_request(exchange.query(QUESTIONS))
    door = exchange.door
    if door.streams >= door.limits.streams:
        raise busy(f"The server serves {door.limits.streams} streams at once; try again.", 5)
    feed = door.feed_of(exchange.user, exchange.params["topic"])
    door.streams += 1
    feed.readers += 1
    door.budget.leave()  # a stream is counted by itself
    try:
        return await _Stream(exchange, feed, asked).run()
    finally:
        door.budget.requests += 1
        door.streams -= 1
        feed.leave()
        if feed.recent is None and not feed.readers:  # it never began: free its place
            exchange.user.feeds.pop(feed.topic, None)


class _Stream:
    def __init__(self, exchange: Exchange, feed: TopicFeed, asked: StreamRequest) -> None:
        self._exchange, self._feed, self._asked = exchange, feed, asked
        self._door = exchange.door
        self._catch_up = CatchUp(exchange.user, feed.topic)
        headers = HEADERS | self._door.guard.cors(exchange.request.headers.get("Origin"))
        self._response = web.StreamResponse(headers=headers)
        self._made_anew = False
        # Where this stream is further than the list that all readers share; the list will bring
        # these records again.
        self._ahead: dict[int, int] = {}

    async def run(self) -> web.StreamResponse:
        try:
            recent = await self._feed.begin()
            if self._asked.partition is not None and self._asked.partition not in recent.next:
                raise partition_not_found()
            cursor = await self._begin(recent)
            self._response.enable_chunked_encoding()
            await self._response.prepare(self._exchange.request)
            await self._begun(cursor)
            try:
                await self._flow(recent, cursor)
            except Refusal as refusal:
                await self._tell_failure(refusal)
            except ClientError as failure:
                await self._tell_failure(refusal_of(failure))
        except ConnectionError:
            pass  # the client has gone
        finally:
            self._catch_up.close()
        return self._response

    async def _begin(self, recent: RecentRecords) -> dict[int, int]:
        """Returns the place from which the reader continues."""
        last = self._exchange.request.headers.get("Last-Event-ID")
        if last:
            cursor = Cursor.read(last)
            if cursor.topic_mark == self._feed.mark:
                known = {p: cursor.next.get(p, 0) for p in recent.next}
                await self._require_before_end(known, recent)
                return known
            self._made_anew = True
            return await self._catch_up.beginnings()
        if self._asked.begin == END:
            return dict(recent.next)
        if self._asked.begin == BEGINNING:
            return await self._catch_up.beginnings()
        assert isinstance(self._asked.begin, int)
        return await self._catch_up.at_time(self._asked.begin)

    async def _require_before_end(self, known: dict[int, int], recent: RecentRecords) -> None:
        """Refuses an id beyond the end. Another server, or this reader itself, may have been ahead
        of what the feed has read."""
        if all(offset <= recent.next[p] for p, offset in known.items()):
            return
        ends = await self._catch_up.ends()
        if any(offset > ends.get(p, offset) for p, offset in known.items()):
            raise Refusal(UNPROCESSABLE, "Last-Event-ID is beyond the end of the topic.")

    async def _begun(self, cursor: dict[int, int]) -> None:
        """Returns an event with an id: a reader that reconnects before the first record continues
        here."""
        where = Cursor(self._feed.mark, cursor).text()
        said = f"retry: {RETRY_MS}\nevent: begun\nid: {where}\ndata: {{}}\n\n"
        if self._made_anew:
            why = "The topic was deleted and created again; this is the new one from its beginning."
            said += f"event: gap\ndata: {_dumps({'message': why})}\n\n"
            self._door.counters.gaps += 1
        await self._write(said.encode())

    # ---- the flow

    async def _flow(self, recent: RecentRecords, cursor: dict[int, int]) -> None:
        number = None if cursor != recent.next else recent.end  # None: not in the list yet
        while not self._door.draining:
            if self._door.logins.has_expired(self._exchange.user.expires_s):
                await self._tell_failure(unauthorized("The token has expired."))
                return
            if number is not None and number < recent.first:  # too slow: the list has moved on
                number = None
            if number is None:
                if recent.holds(cursor):
                    number = await self._join(recent, cursor)
                else:
                    await self._read_on(cursor)
            elif number < recent.end:
                number = await self._from_memory(recent, number, cursor)
            elif self._feed.failure is not None:
                await self._tell_failure(refusal_of(self._feed.failure))
                return
            else:
                before = recent.end
                await self._feed.wait(HEARTBEAT_S)
                if recent.end == before:
                    await self._write(b": \n\n")

    async def _from_memory(self, recent: RecentRecords, number: int, cursor: dict[int, int]) -> int:
        asked = self._asked
        if self._ahead:
            return await self._past_what_was_sent(recent, number, cursor)
        if asked.lets_all_through:
            count, events = recent.events_since(number, MOST_RECORDS, asked.form, event_of)
        else:
            found = recent.since(number, MOST_RECORDS)
            count = len(found)
            events = b"".join(
                each.event(asked.form, event_of)
                for each in found
                if asked.lets_through(each.record)
            )
        last = recent.since(number + count - 1, 1)[0]
        cursor.update(Cursor.read(last.cursor).next)
        self._door.counters.records_out += count
        if events:
            await self._write(events)
        return number + count

    async def _past_what_was_sent(
        self, recent: RecentRecords, number: int, cursor: dict[int, int]
    ) -> int:
        """Takes the next records of the list, some of which this reader has already got from the
        cluster."""
        found = recent.since(number, MOST_RECORDS)
        events = [self._own_event(each, cursor) for each in found]
        reached = Cursor.read(found[-1].cursor).next
        self._ahead = {p: at for p, at in self._ahead.items() if at > reached.get(p, 0)}
        await self._write(b"".join(events))
        return number + len(found)

    async def _join(self, recent: RecentRecords, cursor: dict[int, int]) -> int:
        """Sends the list's records after our position, one by one: from here on the stream follows
        the list."""
        number = recent.first
        while number < recent.end:
            if number < recent.first:
                return number  # it moved on while we wrote
            found = recent.since(number, MOST_RECORDS)
            events = [self._own_event(each, cursor) for each in found]
            number += len(found)
            await self._write(b"".join(events))
        self._ahead = {p: at for p, at in cursor.items() if at > recent.next.get(p, at)}
        return number

    def _own_event(self, recent: Recent, cursor: dict[int, int]) -> bytes:
        """Returns the event with this stream's own place as its id, which may be ahead of the
        list's in other partitions."""
        record = recent.record
        if record.offset < cursor.get(record.partition, 0):
            return b""
        cursor[record.partition] = record.offset + 1
        if not self._asked.lets_through(record):
            return b""
        self._door.counters.records_out += 1
        return event_of(Recent(record, Cursor(self._feed.mark, cursor).text()), self._asked.form)

    async def _read_on(self, cursor: dict[int, int]) -> None:
        try:
            passage = await self._catch_up.read(dict(cursor))
        except Refusal as refusal:
            if refusal.retry_after_s is None:
                raise
            await self._write(b": the server is busy\n\n")
            await asyncio.sleep(refusal.retry_after_s)
            return
        except Unreachable:
            await self._write(b": the cluster does not answer\n\n")
            await asyncio.sleep(1)
            return
        for gap in passage.gaps:
            cursor[gap.partition] = gap.found
            await self._tell_gap(gap)
        events = []
        for record in passage.records:
            events.append(self._own_event(Recent(record, ""), cursor))
            if len(events) >= MOST_RECORDS:
                await self._write(b"".join(events))
                events = []
        cursor.update(passage.next)  # past unreadable records at the end of a page
        await self._write(b"".join(events) or b": \n\n")

    # ---- words

    async def _tell_gap(self, gap: Gap) -> None:
        self._door.counters.gaps += 1
        said = {
            "message": "These records are not there any more.",
            "partition": gap.partition,
            "from_offset": gap.asked,
            "to_offset": gap.found,
        }
        await self._write(f"event: gap\ndata: {_dumps(said)}\n\n".encode())

    async def _tell_failure(self, refusal: Refusal) -> None:
        document = refusal.document()
        await self._write(f"event: failed\ndata: {_dumps(document)}\n\n".encode())

    async def _write(self, events: bytes) -> None:
        if not events:
            return
        await self._response.write(events)  # a reader that takes nothing is cut by its connection


ENDPOINTS = {"stream": stream}
