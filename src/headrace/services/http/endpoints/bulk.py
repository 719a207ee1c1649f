"""NDJSON in bulk: a body of any length, read in pieces, with a bounded number under way.

The answer counts what was written, by partition, and names the first lines that were not. A body
that breaks off in the middle leaves its first records written; the answer says how many.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from headrace.client.errors import ClientError
from headrace.client.records import Sent
from headrace.services.http.cluster_refusals import refusal_of
from headrace.services.http.dialects import ndjson
from headrace.services.http.exchange import Exchange, answer
from headrace.services.http.refusal import TOO_LARGE, Refusal, bad_payload
from headrace.services.http.users.user_access import outgoing_of
from headrace.services.http.writes.writes import Write

FAULTS_SHOWN = 20
# Groups under way; a group is what one piece of the body holds, some tens of kilobytes.
WINDOW = 16

Ends = asyncio.Future[list[Sent | ClientError]]


@dataclass(slots=True)
class Spread:
    """The records for one partition."""

    first_offset: int
    last_offset: int
    records: int = 1


@dataclass(slots=True)
class Tally:
    written: int = 0
    refused: int = 0
    spread: dict[int, Spread] = field(default_factory=dict)
    faults: list[dict[str, Any]] = field(default_factory=list)
    first: Refusal | None = None

    def add(self, lines: list[int], ends: list[Sent | ClientError]) -> None:
        for line, end in zip(lines, ends, strict=True):
            if isinstance(end, ClientError):
                self.refuse(line, refusal_of(end))
                continue
            self.written += 1
            known = self.spread.get(end.partition)
            if known is None:
                self.spread[end.partition] = Spread(end.offset, end.offset)
                continue
            known.records += 1
            if end.offset > known.last_offset:
                known.last_offset = end.offset
            elif end.offset < known.first_offset:
                known.first_offset = end.offset

    def refuse(self, line: int, refusal: Refusal) -> None:
        self.refused += 1
        self.first = self.first or refusal
        if len(self.faults) < FAULTS_SHOWN:
            self.faults.append({"line": line, **refusal.document()})

    def document(self) -> dict[str, Any]:
        partitions = [
            {
                "partition": index,
                "records": each.records,
                "first_offset": each.first_offset,
                "last_offset": each.last_offset,
            }
            for index, each in sorted(self.spread.items())
        ]
        return {
            "written": self.written,
            "refused": self.refused,
            "partitions": partitions,
            "faults": self.faults,
        }


async def bulk(exchange: Exchange) -> web.StreamResponse:
    sending = _Sending(exchange)
    try:
        rest, number = b"", 0
        async for piece in exchange.pieces(least_rate=exchange.door.limits.body_rate):
            *lines, rest = (rest + piece).split(b"\n")
            await sending.send(lines, number)
            number += len(lines)
            if len(rest) > exchange.door.limits.record_bytes:
                raise Refusal(TOO_LARGE, f"The line {number + 1} is too long.")
        await sending.send([rest], number)
    except Refusal as refusal:
        tally = await sending.finish()
        said = f"{refusal.message} {tally.written} records before that were written."
        raise Refusal(
            refusal.status, said, code=refusal.code, retry_after_s=refusal.retry_after_s
        ) from None
    tally = await sending.finish()
    exchange.door.counters.records_in += tally.written
    if not tally.written:
        raise tally.first or bad_payload("The body has no lines.")
    return answer(tally.document(), status=207 if tally.refused else 200)


class _Sending:
    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._topic = exchange.params["topic"]
        self._producer = exchange.user.producer
        self._under_way: deque[tuple[list[int], Ends, int]] = deque()
        self._tally = Tally()
        self._bytes = 0

    async def send(self, lines: list[bytes], before: int) -> None:
        outgoing, numbers = [], []
        for number, line in enumerate(lines, before + 1):
            if not line or line.isspace():
                continue
            try:
                write = ndjson.read_line(line)
                outgoing.append(await outgoing_of(self._producer, self._topic, write))
                numbers.append(number)
            except Refusal as refusal:
                self._tally.refuse(number, refusal)
            except ClientError as failure:
                self._tally.refuse(number, refusal_of(failure))
        if not outgoing:
            return
        size = sum(map(len, lines))
        self._bytes += size
        self._exchange.lease.grow_to(self._bytes)
        self._under_way.append((numbers, await self._producer.send_all(outgoing), size))
        if len(self._under_way) >= WINDOW:
            await self._hear_one()

    async def _hear_one(self) -> None:
        numbers, ends, size = self._under_way.popleft()
        self._tally.add(numbers, await ends)
        self._bytes -= size

    async def finish(self) -> Tally:
        while self._under_way:
            await self._hear_one()
        return self._tally


def read_lines(body: bytes, *, most: int) -> list[Write]:
    """Reads all of a body that is written as one; one bad line refuses it."""
    lines = [line for line in body.split(b"\n") if line and not line.isspace()]
    if not lines:
        raise bad_payload("The body has no lines.")
    if len(lines) > most:
        raise Refusal(TOO_LARGE, f"{len(lines)} lines under one key: at most {most}.")
    return [ndjson.read_line(line) for line in lines]
