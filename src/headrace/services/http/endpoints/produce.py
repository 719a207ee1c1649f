"""`POST /topics/{topic}`: writes records of any content type, and answers for each.

The content type says the form. A request whose records all failed for the same reason is answered
with that reason; otherwise each record has its own outcome, as in the other proxies. With an
`Idempotency-Key` the request is written once, however often it is sent (`keyed_writes.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from aiohttp import web

from headrace.services.http.dialects import cloud_events, ndjson, v2
from headrace.services.http.dialects.v2 import Outcome, Unwritten
from headrace.services.http.endpoints import bulk
from headrace.services.http.exchange import Exchange, answer_bytes
from headrace.services.http.refusal import UNPROCESSABLE, WRONG_KIND, Refusal, bad_payload
from headrace.services.http.writes.writes import WHEN, Write, text_bytes, when_of

RAW = ("text/plain", "application/octet-stream")
TAKEN = (
    *("application/json", v2.KIND_JSON, v2.KIND_BINARY, ndjson.KINDS[0]),
    *(cloud_events.STRUCTURED, cloud_events.BATCH, *RAW),
)
KEY_HEADER = "Idempotency-Key"
REPLAYED_HEADER = "Idempotency-Replayed"  # the answer is that of an earlier request
FORM = "application/x-www-form-urlencoded"

Document = Callable[[Sequence[Outcome]], Any]


async def produce(exchange: Exchange) -> web.StreamResponse:
    kind = exchange.kind
    partition = exchange.partition() if "partition" in exchange.params else None
    embedded = v2.PRODUCED.get(kind)
    if embedded is not None and not _is_binary_event(exchange, kind):
        exchange.query(())
        most = exchange.door.limits.records
        body = await exchange.body()
        writes = v2.read_produce(body, embedded, partition=partition, most=most)
    elif kind in ndjson.KINDS:
        exchange.query(())
        if partition is not None:
            raise bad_payload("Lines name their partitions themselves.")
        if KEY_HEADER not in exchange.request.headers:
            return await bulk.bulk(exchange)
        writes = bulk.read_lines(await exchange.body(), most=exchange.door.limits.records)
    else:
        writes = await _other(exchange, kind, partition)
    outcomes = await write(exchange, writes)
    return replayed(exchange, answer_bytes(v2.produced(outcomes), kind=v2.KIND))


async def write(exchange: Exchange, writes: Sequence[Write]) -> Sequence[Outcome]:
    """Writes records plainly, or once per idempotency key; raises a failure that all
    records share."""
    topic, key = exchange.params["topic"], exchange.request.headers.get(KEY_HEADER)
    if key is None:
        outcomes = await exchange.user.write(topic, writes)
    else:
        answered = await exchange.door.write_once(exchange.user, key, topic, writes)
        outcomes, exchange.replayed = answered.outcomes, answered.replayed
    exchange.door.counters.records_in += judged(outcomes)
    return outcomes


def judged(outcomes: Sequence[Outcome]) -> int:
    """Returns how many were written; raises a failure that all of them share."""
    refused = [each for each in outcomes if isinstance(each, Unwritten)]
    if len(refused) == len(outcomes):
        first = refused[0].refusal
        if all(each.refusal.code == first.code for each in refused):
            raise first
    return len(outcomes) - len(refused)


def replayed(exchange: Exchange, response: web.StreamResponse) -> web.StreamResponse:
    if exchange.replayed:
        response.headers[REPLAYED_HEADER] = "true"
    return response


async def _other(exchange: Exchange, kind: str, partition: int | None) -> list[Write]:
    given = exchange.query(("key", *WHEN))
    headers = exchange.request.headers
    if kind == cloud_events.BATCH:
        writes = cloud_events.read_batch(await exchange.body(), exchange.door.limits.records)
    elif kind == cloud_events.STRUCTURED:
        writes = [cloud_events.read_structured(await exchange.body())]
    elif cloud_events.is_binary(headers):
        writes = [cloud_events.read_binary(headers, await exchange.body())]
    elif kind in RAW:
        writes = [Write(await exchange.body())]
    else:
        raise _wrong_kind(kind)
    when = when_of(_typed(given))
    for each in writes:
        each.when, each.partition = when, partition
        if "key" in given:
            each.key = text_bytes(given["key"], "key")
    return writes


def _typed(given: dict[str, str]) -> dict[str, Any]:
    """Returns arguments as the client's `send` takes them: numbers as numbers."""
    typed: dict[str, Any] = dict(given)
    for name in ("deliver_at", "cron_until", "cron_count"):
        text = given.get(name, "")
        if text.isascii() and text.isdecimal() and len(text) < 16:
            typed[name] = int(text)
    return typed


def _is_binary_event(exchange: Exchange, kind: str) -> bool:
    """`application/json` with `ce-` headers is an event whose data is JSON."""
    return kind == "application/json" and cloud_events.is_binary(exchange.request.headers)


def _wrong_kind(kind: str) -> Refusal:
    if any(f".{each}." in kind for each in v2.NEEDS_A_REGISTRY):
        return Refusal(
            UNPROCESSABLE, "Avro, Protobuf and JSON Schema need a registry, which is not here."
        )
    hint = " (curl's default)" if kind == FORM else ""
    return Refusal(
        WRONG_KIND,
        f"Content-Type {kind[:80]!r}{hint} is not taken: use {', '.join(TAKEN)}.",
    )


ENDPOINTS = {"produce": produce}
