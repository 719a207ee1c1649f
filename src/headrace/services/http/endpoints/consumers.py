"""v2's consumer instances: create, subscribe or assign, seek, read, commit, delete."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

from aiohttp import web

from headrace.client.consumer.async_consumer import uninterrupted
from headrace.client.records import TopicPartition
from headrace.services.http.consumers.consumer_instance import ConsumerInstance
from headrace.services.http.dialects import v2
from headrace.services.http.endpoints.topics import KINDS, accepted
from headrace.services.http.exchange import (
    Exchange,
    answer,
    answer_list,
    list_bytes,
    nothing,
    number,
    read_query,
)
from headrace.services.http.limits import HttpLimits
from headrace.services.http.refusal import FORMAT_MISMATCH, Refusal
from headrace.services.http.streams.record_forms import CLOUD_EVENTS, FORMS, Form, with_more
from headrace.services.http.users.user_access import UserAccess
from headrace.services.http.writes.writes import read_json, require_object

if TYPE_CHECKING:
    from headrace.services.http.door import Door

USUAL_WAIT_MS = 1000
MOST_RECORDS = 100_000
# An answer that is written at once stays in the server's memory until its reader takes it.
AT_ONCE_BYTES = 131_072


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
    # Closes it even if the caller does not wait: no one else has a reference to it any more.
    await uninterrupted(instance.close())
    return nothing()


@asynccontextmanager
async def _instance(exchange: Exchange) -> AsyncIterator[ConsumerInstance]:
    instances = exchange.door.instances
    group, name = exchange.params["group"], exchange.params["instance"]
    found = instances.enter(group, name, exchange.user.name, time.monotonic())
    try:
        yield found
    finally:
        instances.leave(group, name, exchange.user.name, time.monotonic())


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


@dataclass(slots=True)
class _Wanted:
    """The parameters of a GET of records."""

    embedded: str
    form: Form
    wait_s: float
    most_bytes: int
    most: int


def _wanted(instance: ConsumerInstance, limits: HttpLimits, query: str, accept: str) -> _Wanted:
    given = read_query(query, ("timeout", "max_bytes", "max_records", "include"))
    embedded = accepted(accept, instance.new.format)
    if embedded not in (instance.new.format, CLOUD_EVENTS):
        said = "The requested embedded data format does not match the deserializer for this "
        said += f"consumer instance, which was made with the format {instance.new.format}."
        raise Refusal(406, said, code=FORMAT_MISMATCH)
    form = FORMS[embedded]
    if given.get("include") == "headers" and embedded != CLOUD_EVENTS:
        form = with_more(form)
    usual = USUAL_WAIT_MS if instance.new.wait_ms is None else instance.new.wait_ms
    longest, size = int(limits.poll_s * 1000), limits.answer_bytes
    wait_ms = number(given, "timeout", min(usual, longest), lowest=0, most=longest)
    return _Wanted(
        embedded,
        form,
        wait_ms / 1000,
        number(given, "max_bytes", size, lowest=1, most=size),
        number(given, "max_records", MOST_RECORDS, lowest=1, most=MOST_RECORDS),
    )


async def records(exchange: Exchange) -> web.StreamResponse:
    accept = exchange.request.headers.get("Accept", "")
    async with _instance(exchange) as instance:
        wanted = _wanted(instance, exchange.door.limits, exchange.raw_query, accept)
        found = await instance.records(
            wanted.form, wait_s=wanted.wait_s, most_bytes=wanted.most_bytes, most=wanted.most
        )
    exchange.door.counters.records_out += len(found)
    return answer_list(found, KINDS[wanted.embedded])


@dataclass(slots=True)
class AtOnce:
    body: bytes
    kind: str


def read_at_once(
    door: Door, user: UserAccess, params: dict[str, str], query: str, accept: str
) -> AtOnce | None:
    """Returns records that are here already; None if there are none, or the answer is large."""
    group, name, now_s = params["group"], params["instance"], time.monotonic()
    instance = door.instances.enter(group, name, user.name, now_s)
    try:
        if not instance.has_records:
            return None
        wanted = _wanted(instance, door.limits, query, accept)
        most_bytes = min(wanted.most_bytes, AT_ONCE_BYTES)
        found = instance.records_at_once(wanted.form, most_bytes=most_bytes, most=wanted.most)
    finally:
        door.instances.leave(group, name, user.name, now_s)
    door.counters.records_out += len(found)
    return AtOnce(list_bytes(found), KINDS[wanted.embedded])


async def commit(exchange: Exchange) -> web.StreamResponse:
    """Commits all that was read, or the offsets in the body; an offset is that of the last record,
    as with Confluent."""
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
