"""`DELETE /topics/{topic}/delayed/{id}`: call off a delayed message before it is delivered."""

from __future__ import annotations

from aiohttp import web

from headrace.services.http.dialects import v2
from headrace.services.http.exchange import Exchange, answer
from headrace.services.http.refusal import bad_payload, partition_not_found
from headrace.services.http.writes.writes import (
    LARGEST_PARTITION,
    base64_bytes,
    json_bytes,
    read_json,
    text_bytes,
)

KEYS = ("key", "key_json", "key_base64")


async def cancel(exchange: Exchange) -> web.StreamResponse:
    """Writes the cancel; the topic of outcomes has the result, whether it came in time."""
    given = exchange.query((*KEYS, "partition"))
    partition = given.get("partition")
    if partition is not None and not (partition.isascii() and partition.isdecimal()):
        raise bad_payload("A partition is a number.")
    if partition is not None and (len(partition) > 10 or int(partition) > LARGEST_PARTITION):
        raise partition_not_found()
    sent = await exchange.user.producer.cancel(
        exchange.params["topic"],
        exchange.params["id"],
        key=_key(given),
        partition=None if partition is None else int(partition),
    )
    where = await sent
    said = {"topic": where.topic, "partition": where.partition, "offset": where.offset}
    return answer({"cancelling": exchange.params["id"], **said}, kind=v2.KIND, status=202)


def _key(given: dict[str, str]) -> bytes | None:
    """`key=7` is the text; v2 with embedded JSON writes keys as JSON, with their quotes."""
    if "key" in given:
        return text_bytes(given["key"], "key")
    if "key_json" in given:
        return json_bytes(read_json(given["key_json"]))
    if "key_base64" in given:
        return base64_bytes(given["key_base64"], "key_base64")
    return None


ENDPOINTS = {"cancel": cancel}
