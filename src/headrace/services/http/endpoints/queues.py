"""Queues (share groups): acquire records, then accept, release, reject or renew each by its id."""

from __future__ import annotations

import json
import time
from typing import Any, cast

from aiohttp import web

from headrace.services.http.exchange import Exchange, answer, answer_list
from headrace.services.http.queues.queue_consumer import (
    NOT_HELD,
    Acknowledging,
    HeldRecord,
    QueueConsumer,
    StartFrom,
)
from headrace.services.http.refusal import bad_payload
from headrace.services.http.streams.record_forms import as_seen
from headrace.services.http.writes.writes import read_json, require_known, require_object

USUAL_WAIT_MS = 1000
MOST_AT_ONCE = 1000
MOST_TOPICS = 100
LONGEST_ID = 64
JSON = "application/json"
_ACQUIRE = frozenset({"topics", "max_records", "timeout_ms", "start_from"})
_IDS = frozenset({"ids"})


async def acquire(exchange: Exchange) -> web.StreamResponse:
    """Waits for the first record; a lock on each ends `lock_ms` after the answer was made."""
    given = require_object(read_json(await exchange.body()), "The body")
    require_known(given, _ACQUIRE, "The body")
    topics = _texts(given, "topics", MOST_TOPICS, 249)
    most = _number(given, "max_records", 1, lowest=1, most=MOST_AT_ONCE)
    longest_ms = int(exchange.door.limits.poll_s * 1000)
    wait_ms = _number(given, "timeout_ms", USUAL_WAIT_MS, lowest=0, most=longest_ms)
    start_from = given.get("start_from", "earliest")
    if start_from not in ("earliest", "latest"):
        raise bad_payload('start_from is "earliest" or "latest".')
    group, user = exchange.params["group"], exchange.user

    def make(name: str) -> QueueConsumer:
        return QueueConsumer(
            user.connection,
            group=group,
            topics=topics,
            start_from=cast(StartFrom, start_from),
            name=name,
        )

    with exchange.door.queues.of_topics(user.name, group, topics, make) as consumer:
        found = await consumer.acquire(most, wait_ms / 1000)
    exchange.door.counters.records_out += len(found)
    return answer_list([_shown(each) for each in found], JSON)


def _shown(held: HeldRecord) -> str:
    record = held.record
    lock_ms = max(0, int((record.locked_until - time.monotonic()) * 1000))
    more = f'"delivery_count":{record.delivery_count},"lock_ms":{lock_ms}'
    return f'{{"id":{json.dumps(held.id)},{more},{as_seen(record)[1:]}'


async def accept(exchange: Exchange) -> web.StreamResponse:
    return await _acknowledge(exchange, Acknowledging.ACCEPT)


async def release(exchange: Exchange) -> web.StreamResponse:
    return await _acknowledge(exchange, Acknowledging.RELEASE)


async def reject(exchange: Exchange) -> web.StreamResponse:
    return await _acknowledge(exchange, Acknowledging.REJECT)


async def renew(exchange: Exchange) -> web.StreamResponse:
    return await _acknowledge(exchange, Acknowledging.RENEW)


async def _acknowledge(exchange: Exchange, how: Acknowledging) -> web.StreamResponse:
    given = require_object(read_json(await exchange.body()), "The body")
    require_known(given, _IDS, "The body")
    ids = list(dict.fromkeys(_texts(given, "ids", MOST_AT_ONCE, LONGEST_ID)))
    of_consumer: dict[str, list[str]] = {}
    for each in ids:
        of_consumer.setdefault(each.rpartition(".")[0], []).append(each)
    refused: dict[str, str] = {}
    user, group = exchange.user.name, exchange.params["group"]
    for name, some in of_consumer.items():
        with exchange.door.queues.named(user, group, name) as consumer:
            if consumer is None or consumer.failure is not None:
                refused |= dict.fromkeys(some, NOT_HELD)
            else:
                refused |= await consumer.acknowledge(how, some)
    return answer({"refused": [{"id": each, "message": why} for each, why in refused.items()]})


def _texts(given: dict[str, Any], name: str, most: int, longest: int) -> list[str]:
    found = given.get(name)
    if not isinstance(found, list) or not 1 <= len(found) <= most:
        raise bad_payload(f"{name} is a list with 1 to {most} texts.")
    for each in found:
        if not isinstance(each, str) or not 0 < len(each) <= longest or "\0" in each:
            raise bad_payload(f"{name} has texts of 1 to {longest} characters.")
    return found


def _number(given: dict[str, Any], name: str, default: int, *, lowest: int, most: int) -> int:
    found = given.get(name, default)
    if type(found) is not int or not lowest <= found <= most:
        raise bad_payload(f"{name} is a number between {lowest} and {most}.")
    return found


ENDPOINTS = {
    "acquire": acquire,
    "accept": accept,
    "release": release,
    "reject": reject,
    "renew": renew,
}
