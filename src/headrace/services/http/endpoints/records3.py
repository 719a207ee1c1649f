"""v3's records: documents of JSON one after the other, a delivery report for each, in order.

A body of known length is answered as a whole. One that comes in chunks is a conversation: reports
go out while it lasts, at most `WINDOW` records ahead of them.
"""

from __future__ import annotations

import asyncio
from typing import Any

from aiohttp import web

from headrace.client.errors import ClientError
from headrace.services.http.cluster_refusals import refusal_of
from headrace.services.http.dialects import v3
from headrace.services.http.dialects.json_sequence import JsonSequence
from headrace.services.http.dialects.v2 import Unwritten
from headrace.services.http.endpoints.clusters import require_cluster
from headrace.services.http.endpoints.produce import KEY_HEADER, replayed, write
from headrace.services.http.exchange import JSON, Exchange, line
from headrace.services.http.refusal import TOO_LARGE, WRONG_KIND, Refusal, bad_payload, busy
from headrace.services.http.users.user_access import outcome_of, outgoing_of

WINDOW = 256
Report = tuple[v3.Asked, "asyncio.Future[Any]"] | Refusal


async def records(exchange: Exchange) -> web.StreamResponse:
    if exchange.kind not in ("", JSON):
        raise Refusal(WRONG_KIND, "v3 takes application/json.")
    cluster_id = await require_cluster(exchange)
    limits, headers = exchange.door.limits, exchange.request.headers
    declared = exchange.request.content_length
    whole = declared is not None and declared <= limits.body_bytes
    if whole or KEY_HEADER in headers or "Content-Encoding" in headers:
        return await _as_a_whole(exchange, cluster_id)
    return await _counted(exchange, cluster_id)


async def _counted(exchange: Exchange, cluster_id: str) -> web.StreamResponse:
    """Counts a conversation, which may last, as a stream and not as a request."""
    door = exchange.door
    if door.streams >= door.limits.streams:
        raise busy(f"The server serves {door.limits.streams} streams at once; try again.", 5)
    door.streams += 1
    door.budget.leave()
    try:
        return await _Conversation(exchange, cluster_id).hold()
    finally:
        door.budget.requests += 1
        door.streams -= 1


async def _as_a_whole(exchange: Exchange, cluster_id: str) -> web.StreamResponse:
    limits = exchange.door.limits
    sequence = JsonSequence(limits.body_bytes)
    asked = [v3.read_record(each) for each in sequence.feed(await exchange.body())]
    sequence.finish()
    if not asked:
        raise bad_payload("Null input provided. Data is required.")
    if len(asked) > limits.records:
        raise Refusal(TOO_LARGE, f"{len(asked)} records in one request: at most {limits.records}.")
    outcomes = await write(exchange, [each.write for each in asked])
    topic = exchange.params["topic"]
    reports = [
        line(v3.report(cluster_id, topic, one, outcome))
        for one, outcome in zip(asked, outcomes, strict=True)
    ]
    response = web.Response(body=b"".join(reports), headers={"Content-Type": JSON})
    return replayed(exchange, response)


class _Conversation:
    def __init__(self, exchange: Exchange, cluster_id: str) -> None:
        self._exchange, self._cluster_id = exchange, cluster_id
        self._topic = exchange.params["topic"]
        self._reports: asyncio.Queue[Report | None] = asyncio.Queue(WINDOW)
        self._response = web.StreamResponse(headers={"Content-Type": JSON})

    async def hold(self) -> web.StreamResponse:
        await self._response.prepare(self._exchange.request)
        speaking = asyncio.ensure_future(self._speak())
        try:
            await self._listen(speaking)
            await self._reports.put(None)
            await speaking
        finally:
            speaking.cancel()
        await self._response.write_eof()
        return self._response

    async def _listen(self, speaking: asyncio.Future[None]) -> None:
        sequence = JsonSequence(self._exchange.door.limits.record_bytes)
        try:
            async for piece in self._exchange.pieces():
                for document in sequence.feed(piece):
                    await self._reports.put(await self._taken(document))
                if speaking.done():
                    return  # the client no longer reads the reports
            sequence.finish()
        except Refusal as refusal:
            await self._reports.put(refusal)

    async def _taken(self, document: Any) -> Report:
        producer = self._exchange.user.producer
        try:
            asked = v3.read_record(document)
            record = await outgoing_of(producer, self._topic, asked.write)
            return asked, await producer.send_all([record])
        except Refusal as refusal:
            return refusal
        except ClientError as failure:
            return refusal_of(failure)

    async def _speak(self) -> None:
        while (report := await self._reports.get()) is not None:
            if isinstance(report, Refusal):
                await self._response.write(line(report.document()))
                continue
            asked, ends = report
            outcome = outcome_of((await ends)[0])
            self._exchange.door.counters.records_in += not isinstance(outcome, Unwritten)
            said = v3.report(self._cluster_id, self._topic, asked, outcome)
            await self._response.write(line(said))


ENDPOINTS = {"records3": records}
