"""Confluent's REST API v2, as Redpanda and Karapace serve it: bodies in, documents out. Pure.

`application/vnd.kafka.json.v2+json` embeds JSON: keys and values are written as JSON text, a text
with its quotes. `application/vnd.kafka.binary.v2+json` embeds base64. Plain `application/json` is
read as the first of them. Records may carry headers, a timestamp, and when to deliver them, which
the other proxies do not know. Not done: Avro, Protobuf, JSON Schema; they need a registry.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

from headrace.services.http.refusal import (
    BAD_CONFIG,
    TOO_LARGE,
    UNPROCESSABLE,
    Refusal,
    bad_payload,
)
from headrace.services.http.writes.writes import (
    WHEN,
    Write,
    base64_bytes,
    headers_of,
    json_bytes,
    moment_ms,
    partition_of,
    read_json,
    require_known,
    require_object,
    when_of,
)

JSON, BINARY = "json", "binary"
KIND = "application/vnd.kafka.v2+json"
KIND_JSON = "application/vnd.kafka.json.v2+json"
KIND_BINARY = "application/vnd.kafka.binary.v2+json"
# The content types of a body, and the embedded format of each.
PRODUCED = {
    KIND_JSON: JSON,
    "application/vnd.kafka.json+json": JSON,
    "application/json": JSON,
    KIND_BINARY: BINARY,
    "application/vnd.kafka.binary+json": BINARY,
    KIND: BINARY,
    "application/vnd.kafka+json": BINARY,
}
NEEDS_A_REGISTRY = ("avro", "protobuf", "jsonschema")

NON_RETRIABLE, RETRIABLE = 1, 2  # `error_code` of one record
_PLAIN_FIELDS = frozenset({"key", "value", "partition"})
_FIELDS = _PLAIN_FIELDS | {"headers", "timestamp", *WHEN}
_OFFSET_RESETS = ("earliest", "latest", "none")
LARGEST_OFFSET = 2**63 - 2  # the one behind it must be a number of Kafka's, too
LONGEST_NAME = 1024  # of a topic or a pattern of them
MOST_MIN_BYTES = 100_000_000  # librdkafka takes no more
_NUMBER = re.compile(r"-?[0-9]{1,11}")


def read_produce(body: bytes, embedded: str, *, partition: int | None, most: int) -> list[Write]:
    """The records of one request; `partition` is the path's, and no record may name another."""
    document = require_object(read_json(body), "The body")
    records = document.get("records")
    if not isinstance(records, list) or not records:
        raise bad_payload('The body is {"records": [{"value": ...}, ...]}, with at least one.')
    if len(records) > most:
        raise Refusal(TOO_LARGE, f"{len(records)} records in one request: at most {most}.")
    if len(document) > 1 and any("schema" in name for name in document):
        raise bad_payload("Schemas need a registry, which this server does not support.")
    return [_write(each, embedded, partition) for each in records]


def _write(given: Any, embedded: str, partition: int | None) -> Write:
    record = require_object(given, "A record")
    key, value = record.get("key"), record.get("value")
    if embedded == JSON:
        key = None if key is None else json_bytes(key)
        value = None if value is None else json_bytes(value)
    else:
        key = None if key is None else base64_bytes(key, "key")
        value = None if value is None else base64_bytes(value, "value")
    named = record.get("partition")
    if named is not None:
        if partition is not None:
            raise bad_payload("The path names the partition; leave it out of the records.")
        partition = partition_of(named)
    if record.keys() <= _PLAIN_FIELDS:
        return Write(value, key, [], partition)
    require_known(record, _FIELDS, "A record")
    headers = headers_of(record.get("headers"), binary=embedded == BINARY)
    stamp = moment_ms(record.get("timestamp"))
    return Write(value, key, headers, partition, stamp, when_of(record))


# ---- what was written


@dataclass(slots=True)
class Written:
    partition: int
    offset: int
    timestamp_ms: int


@dataclass(slots=True)
class Unwritten:
    message: str
    retriable: bool
    refusal: Refusal  # if it is the only one


Outcome = Written | Unwritten


def produced(outcomes: Sequence[Outcome]) -> bytes:
    """As text at once: the usual outcome is two numbers, and a document of them costs more."""
    return b'{"offsets":[%s],"key_schema_id":null,"value_schema_id":null}' % b",".join(
        [_outcome(each) for each in outcomes]
    )


def _outcome(one: Outcome) -> bytes:
    if isinstance(one, Written):
        return b'{"partition":%d,"offset":%d,"error_code":null,"error":null}' % (
            one.partition,
            one.offset,
        )
    code = RETRIABLE if one.retriable else NON_RETRIABLE
    said = {"partition": None, "offset": None, "error_code": code, "error": one.message}
    return json_bytes(said)


# ---- consumer instances


@dataclass(slots=True)
class NewInstance:
    name: str | None
    format: str
    auto_offset_reset: str
    auto_commit: bool
    min_bytes: int
    wait_ms: int | None


_INSTANCE_FIELDS = frozenset(
    {
        "id",
        "name",
        "format",
        "auto.offset.reset",
        "auto.commit.enable",
        "fetch.min.bytes",
        "consumer.request.timeout.ms",
    }
)


def read_new_instance(body: bytes) -> NewInstance:
    given = require_object(read_json(body) if body.strip() else {}, "The body")
    if not given.keys() <= _INSTANCE_FIELDS:
        raise _bad_config(f"There is no setting {min(given.keys() - _INSTANCE_FIELDS)[:64]!r}.")
    name, embedded = given.get("name") or given.get("id"), given.get("format", BINARY)
    if name is not None and not _is_name(name):
        raise _bad_config("A name has 1 to 128 letters, digits, '.', '_' and '-'.")
    if embedded not in (JSON, BINARY):
        if embedded in NEEDS_A_REGISTRY:
            raise _bad_config(f"The format {embedded} needs a registry; json and binary do not.")
        raise _bad_config("The format is json or binary.")
    reset = given.get("auto.offset.reset", "latest")
    if reset not in _OFFSET_RESETS:
        raise _bad_config("auto.offset.reset is earliest, latest or none.")
    commit = str(given.get("auto.commit.enable", "true")).lower()
    if commit not in ("true", "false"):
        raise _bad_config("auto.commit.enable is true or false.")
    wait_ms = given.get("consumer.request.timeout.ms")
    return NewInstance(
        name,
        embedded,
        reset,
        commit == "true",
        _number(given.get("fetch.min.bytes", 1), "fetch.min.bytes", lowest=-1, most=MOST_MIN_BYTES),
        None if wait_ms is None else _number(wait_ms, "consumer.request.timeout.ms"),
    )


def _is_name(name: Any) -> bool:
    return (
        isinstance(name, str)
        and 1 <= len(name) <= 128
        and name.isascii()
        and name.replace(".", "").replace("_", "").replace("-", "").isalnum()
    )


def _bad_config(why: str) -> Refusal:
    return Refusal(UNPROCESSABLE, f"Invalid consumer configuration: {why}", code=BAD_CONFIG)


def _number(given: Any, what: str, lowest: int = 0, most: int = 2**31 - 1) -> int:
    """Reads a number, or a text that is one, which Confluent's examples use too."""
    if isinstance(given, str) and _NUMBER.fullmatch(given):
        given = int(given)
    if type(given) is not int or not lowest <= given <= most:
        raise _bad_config(f"{what} is a number between {lowest} and {most}.")
    return given


def is_name(given: Any) -> TypeGuard[str]:
    """Returns whether a name can be passed on. Half of a surrogate pair, which JSON can express,
    would end the whole server in librdkafka's bindings, and a zero byte would make it
    another name."""
    return (
        isinstance(given, str)
        and 0 < len(given) <= LONGEST_NAME
        and "\0" not in given
        and not any("\ud800" <= c <= "\udfff" for c in given)
    )


def read_subscription(body: bytes, most: int = 1000) -> list[str]:
    """Topics by name; a pattern comes as `^...`, as Kafka's clients take it."""
    given = require_object(read_json(body), "The body")
    topics, pattern = given.get("topics"), given.get("topic_pattern")
    if is_name(pattern) and topics is None:
        return [pattern if pattern.startswith("^") else f"^{pattern}"]
    if isinstance(topics, list) and 0 < len(topics) <= most and all(map(is_name, topics)):
        return topics
    raise bad_payload('The body is {"topics": ["orders"]} or {"topic_pattern": "ord.*"}.')


def read_partitions(body: bytes, most: int = 10_000) -> list[tuple[str, int]]:
    """`{"partitions": [{"topic": ..., "partition": ...}]}`."""
    given = require_object(read_json(body), "The body").get("partitions")
    return [(topic, p) for topic, p, _ in _places(given, most, "partitions", with_offset=False)]


def read_offsets(body: bytes, most: int = 10_000) -> list[tuple[str, int, int]]:
    """`{"offsets": [{"topic": ..., "partition": ..., "offset": ...}]}`."""
    document = require_object(read_json(body), "The body")
    given = document.get("offsets", document.get("partitions"))
    return _places(given, most, "offsets", with_offset=True)


def _places(given: Any, most: int, what: str, *, with_offset: bool) -> list[tuple[str, int, int]]:
    if not isinstance(given, list) or not 0 < len(given) <= most:
        raise bad_payload(f'The body is {{"{what}": [...]}}, with 1 to {most} of them.')
    found = []
    for each in given:
        place = require_object(each, "A place")
        topic, partition = place.get("topic"), partition_of(place.get("partition"))
        offset = place.get("offset", 0)
        if not is_name(topic) or partition is None:
            raise bad_payload("A place has a topic and a partition.")
        if with_offset and (
            "offset" not in place or type(offset) is not int or not 0 <= offset <= LARGEST_OFFSET
        ):
            raise bad_payload("An offset is a number from 0 on.")
        found.append((topic, partition, offset))
    return found
