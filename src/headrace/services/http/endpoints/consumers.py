"""v2's consumer instances: create, subscribe or assign, seek, read, commit, delete."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import quote

from aiohttp import web

from headrace.client.records import TopicPartition
from headrace.services.http.consumer_instance import ConsumerInstance
from headrace.services.http.dialects import cloud_events, v2
from headrace.services.http.endpoints.topics import accepted
from headrace.services.http.exchange import Exchange, answer, nothing, number
from headrace.services.http.record_forms import CLOUD_EVENTS, FORMS, with_more
from headrace.services.http.refusal import FORMAT_MISMATCH, Refusal
from headrace.services.http.writes import read_json, require_object

USUAL_WAIT_MS = 1000
MOST_RECORDS = 100_000


async def create(exchange: Exchange) -> web.StreamResponse:
    group, door = exchange.params["group"], exchange.door
    new = v2.read_new_instance(await exchange.body())
    instance_id = door.instances.add(
        group,
        new.name,
        exchange.user.name,
        lambda: ConsumerInstance(exchange.user, group, new, door.limits),
        time.monotonic(),
    )
    path = f"/consumers/{quote(group, safe='')}/instances/{quote(instance_id, safe='')}"
    return answer({"instance_id": instance_id, "base_uri": door.base + path}, kind=v2.KIND)


async def delete(exchange: Exchange) -> web.StreamResponse:
    instance = exchange.door.instances.remove(
        exchange.params["group"], exchange.params["instance"], exchange.user.name
    )
    await instance.close()
    return nothing()


@asynccontextmanager
async def _instance(exchange: Exchange) -> AsyncIterator[ConsumerInstance]:
    instances = exchange.door.instances
    group, name = exchange.params["group"], exchange.params["instance"]
    found = instances.enter(group, name, exchange.user.name, time.monotonic())
    try:
        yield found
    finally:
        instances.leave(group, name, time.monotonic())


async def subscribe(exchange: Exchange) -> web.StreamResponse:
    topics = v2.read_subscription(await exchange.body())
    async with _instance(exchange) as instance:
        await instance.subscribe(topics)
    return nothing()


async def subscription(exchange: Exchange) -> web.StreamResponse:
    async with _instance(exchange) as instance:
        return answer({"topics": instance.topics}, kind=v2.KIND)


async def unsubscribe(exchange: Exchange) -> web.StreamResponse:
    async with _instance(exchange) as instance:
        await instance.unsubscribe()
    return nothing()


async def assign(exchange: Exchange) -> web.StreamResponse:
    places = [TopicPartition(*each) for each in v2.read_partitions(await exchange.body())]
    async with _instance(exchange) as instance:
        await instance.assign(places)
    return nothing()


async def assignment(exchange: Exchange) -> web.StreamResponse:
    async with _instance(exchange) as instance:
        found = await instance.assignment()
    shown = [{"topic": each.topic, "partition": each.partition} for each in found]
    return answer({"partitions": shown}, kind=v2.KIND)


async def seek(exchange: Exchange) -> web.StreamResponse:
    given = v2.read_offsets(await exchange.body())
    places = {TopicPartition(topic, index): offset for topic, index, offset in given}
    async with _instance(exchange) as instance:
        await instance.seek(places)
    return nothing()


async def seek_to_beginning(exchange: Exchange) -> web.StreamResponse:
    return await _seek_to_an_end(exchange, beginning=True)


async def seek_to_end(exchange: Exchange) -> web.StreamResponse:
    return await _seek_to_an_end(exchange, beginning=False)


async def _seek_to_an_end(exchange: Exchange, *, beginning: bool) -> web.StreamResponse:
    places = [TopicPartition(*each) for each in v2.read_partitions(await exchange.body())]
    async with _instance(exchange) as instance:
        await instance.seek_to_an_end(places, beginning=beginning)
    return nothing()


async def records(exchange: Exchange) -> web.StreamResponse:
    given = exchange.query(("timeout", "max_bytes", "max_records", "include"))
    limits = exchange.door.limits
    async with _instance(exchange) as instance:
        embedded = accepted(exchange, instance.new.format)
        if embedded not in (instance.new.format, CLOUD_EVENTS):
            said = "The requested embedded data format does not match the deserializer for this "
            said += f"consumer instance, which was made with the format {instance.new.format}."
            raise Refusal(406, said, code=FORMAT_MISMATCH)
        form = FORMS[embedded]
        if given.get("include") == "headers":
            form = with_more(form)
        usual = USUAL_WAIT_MS if instance.new.wait_ms is None else instance.new.wait_ms
        longest = int(limits.poll_s * 1000)
        wait_ms = number(given, "timeout", min(usual, longest), lowest=0, most=longest)
        size = limits.answer_bytes
        found = await instance.records(
            form,
            wait_s=wait_ms / 1000,
            most_bytes=number(given, "max_bytes", size, lowest=1, most=size),
            most=number(given, "max_records", MOST_RECORDS, lowest=1, most=MOST_RECORDS),
        )
    exchange.door.counters.records_out += len(found)
    return answer(found, kind=KINDS[embedded])


KINDS = {v2.JSON: v2.KIND_JSON, v2.BINARY: v2.KIND_BINARY, CLOUD_EVENTS: cloud_events.BATCH}


async def commit(exchange: Exchange) -> web.StreamResponse:
    """Without a body all that was read; an offset is that of the last record, as with Confluent."""
    exchange.query(("async",))
    body = (await exchange.body()).strip()
    offsets = None
    if body and require_object(read_json(body), "The body"):
        offsets = {
            TopicPartition(topic, index): offset + 1
            for topic, index, offset in v2.read_offsets(body)
        }
    async with _instance(exchange) as instance:
        await instance.commit(offsets)
    return nothing()


async def committed(exchange: Exchange) -> web.StreamResponse:
    """With a body in a GET, as the dialect has it."""
    places = [TopicPartition(*each) for each in v2.read_partitions(await exchange.body())]
    async with _instance(exchange) as instance:
        found = await instance.committed(places)
    shown = [
        {"topic": place.topic, "partition": place.partition, "offset": offset, "metadata": ""}
        for place, offset in found.items()
        if offset is not None
    ]
    return answer({"offsets": shown}, kind=v2.KIND)


ENDPOINTS = {
    "create_instance": create,
    "delete_instance": delete,
    "subscribe": subscribe,
    "subscription": subscription,
    "unsubscribe": unsubscribe,
    "assign": assign,
    "assignment": assignment,
    "seek": seek,
    "seek_beginning": seek_to_beginning,
    "seek_end": seek_to_end,
    "records": records,
    "commit": commit,
    "committed": committed,
}
