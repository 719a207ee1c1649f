"""v2's topics, partitions and brokers; and records of a partition without a group (Redpanda's)."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from headrace.client.admin.topics import PartitionDescription
from headrace.client.lookup.record_pages import Bounds, Browser, Page
from headrace.services.http.dialects import cloud_events, v2
from headrace.services.http.exchange import JSON, Exchange, answer, answer_list, number
from headrace.services.http.refusal import BAD_REQUEST, Refusal, partition_not_found
from headrace.services.http.streams.record_forms import CLOUD_EVENTS, FORMS

KINDS = {v2.JSON: v2.KIND_JSON, v2.BINARY: v2.KIND_BINARY, CLOUD_EVENTS: cloud_events.BATCH}
BROWSE_S = 5.0
MOST_RECORDS = 10_000


async def topics(exchange: Exchange) -> web.StreamResponse:
    found = await exchange.user.ask_topics(lambda topics: topics.all())
    return answer([each.name for each in found], kind=v2.KIND)


async def topic(exchange: Exchange) -> web.StreamResponse:
    name = exchange.params["topic"]
    [found] = await exchange.user.ask_topics(lambda topics: topics.describe([name]))
    document = {
        "name": found.name,
        "configs": {key: each.value for key, each in found.settings.items()},
        "partitions": [_partition(each) for each in found.partitions],
    }
    return answer(document, kind=v2.KIND)


async def partitions(exchange: Exchange) -> web.StreamResponse:
    return answer([_partition(each) for each in await _described(exchange)], kind=v2.KIND)


async def partition(exchange: Exchange) -> web.StreamResponse:
    return answer(_partition(await _chosen(exchange)), kind=v2.KIND)


async def partition_offsets(exchange: Exchange) -> web.StreamResponse:
    found = await _chosen(exchange)
    document = {"beginning_offset": found.start_offset, "end_offset": found.end_offset}
    return answer(document, kind=v2.KIND)


async def partition_records(exchange: Exchange) -> web.StreamResponse:
    given = exchange.query(("offset", "max_records", "max_bytes", "format", "timeout"))
    limits = exchange.door.limits
    offset = number(given, "offset", 0, lowest=0, most=v2.LARGEST_OFFSET)
    most = number(given, "max_records", 500, lowest=1, most=MOST_RECORDS)
    size = number(given, "max_bytes", limits.answer_bytes, lowest=1, most=limits.answer_bytes)
    accept = exchange.request.headers.get("Accept", "")
    embedded = given.get("format") or accepted(accept)
    if embedded not in FORMS:
        raise Refusal(BAD_REQUEST, f"The format is one of {', '.join(FORMS)}.")
    name, index = exchange.params["topic"], exchange.partition()

    def read() -> Page:
        browser = Browser(exchange.user.connection, name)
        try:
            if index not in browser.partitions:
                raise partition_not_found()
            bounds = Bounds(records=most, bytes=size, seconds=BROWSE_S)
            return browser.onwards({index: offset}, want=most, bounds=bounds)
        finally:
            browser.close()

    page = await exchange.user.run(read)
    if not page.found and page.unread:
        raise Refusal(503, f"{page.unread[index]}.", code=50003, retry_after_s=1)
    form = FORMS[embedded]
    return answer_list([form(seen.record) for seen in page.found], KINDS.get(embedded, JSON))


def accepted(accept: str, otherwise: str = v2.BINARY) -> str:
    """The embedded format that the header Accept asks for."""
    said = accept.lower()
    if "kafka.json" in said:
        return v2.JSON
    if "kafka.binary" in said:
        return v2.BINARY
    if "cloudevents" in said:
        return "cloudevents"
    return otherwise


async def brokers(exchange: Exchange) -> web.StreamResponse:
    found = await exchange.user.ask(lambda admin: admin.cluster.describe())
    return answer({"brokers": [each.id for each in found.brokers]}, kind=v2.KIND)


async def _described(exchange: Exchange) -> list[PartitionDescription]:
    name = exchange.params["topic"]
    [found] = await exchange.user.ask_topics(lambda topics: topics.describe([name]))
    return found.partitions


async def _chosen(exchange: Exchange) -> PartitionDescription:
    wanted = exchange.partition()
    for each in await _described(exchange):
        if each.partition == wanted:
            return each
    raise partition_not_found()


def _partition(found: PartitionDescription) -> dict[str, Any]:
    return {
        "partition": found.partition,
        "leader": -1 if found.leader is None else found.leader,
        "replicas": [
            {"broker": each, "leader": each == found.leader, "in_sync": each in found.isr}
            for each in found.replicas
        ],
    }


ENDPOINTS = {
    "topics": topics,
    "topic": topic,
    "partitions": partitions,
    "partition": partition,
    "partition_offsets": partition_offsets,
    "partition_records": partition_records,
    "brokers": brokers,
}
