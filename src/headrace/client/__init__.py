"""The one door to any Kafka cluster, ours or another: typed calls on confluent-kafka.

What stands around the broker (command line, services, console) reaches a cluster through this
package and nothing else, so it works on Apache Kafka as well. `Producer` and `Consumer` (and their
asyncio kin) move records, `Admin` administers; `wire` speaks the calls that librdkafka lacks with
our own codecs. Refusals and failures are raised as `ClientError`, one sentence each. Names are
loaded when they are first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.client.acls import Acl as Acl
    from headrace.client.acls import AclFilter as AclFilter
    from headrace.client.admin import Admin as Admin
    from headrace.client.async_consumer import AsyncConsumer as AsyncConsumer
    from headrace.client.async_producer import AsyncProducer as AsyncProducer
    from headrace.client.cancelling import Cancelled as Cancelled
    from headrace.client.cancelling import NoOutcome as NoOutcome
    from headrace.client.connection import Connection as Connection
    from headrace.client.consumer import Consumer as Consumer
    from headrace.client.delay_instances import NoDelayService as NoDelayService
    from headrace.client.delay_registry import NotDelayed as NotDelayed
    from headrace.client.delivery import Delivery as Delivery
    from headrace.client.errors import BufferFull as BufferFull
    from headrace.client.errors import ClientError as ClientError
    from headrace.client.errors import CommitFailed as CommitFailed
    from headrace.client.errors import DeliveryFailed as DeliveryFailed
    from headrace.client.errors import Fenced as Fenced
    from headrace.client.errors import LoginRefused as LoginRefused
    from headrace.client.errors import Misuse as Misuse
    from headrace.client.errors import NoOffset as NoOffset
    from headrace.client.errors import NoSuchTopic as NoSuchTopic
    from headrace.client.errors import PoisonRecord as PoisonRecord
    from headrace.client.errors import PollTooSlow as PollTooSlow
    from headrace.client.errors import SerializationFailed as SerializationFailed
    from headrace.client.errors import TransactionAborted as TransactionAborted
    from headrace.client.errors import Unreachable as Unreachable
    from headrace.client.groups import GroupIsActive as GroupIsActive
    from headrace.client.groups import NoSuchGroup as NoSuchGroup
    from headrace.client.interceptors import ProducerInterceptor as ProducerInterceptor
    from headrace.client.partitioners import RoundRobin as RoundRobin
    from headrace.client.partitioners import Sticky as Sticky
    from headrace.client.partitioners import murmur2 as murmur2
    from headrace.client.producer import Producer as Producer
    from headrace.client.records import Outgoing as Outgoing
    from headrace.client.records import Record as Record
    from headrace.client.records import Sent as Sent
    from headrace.client.records import TopicPartition as TopicPartition
    from headrace.client.serializers import from_integer as from_integer
    from headrace.client.serializers import from_json as from_json
    from headrace.client.serializers import from_text as from_text
    from headrace.client.serializers import to_integer as to_integer
    from headrace.client.serializers import to_json as to_json
    from headrace.client.serializers import to_text as to_text

# Which module a public name lives in.
PUBLIC = {
    **dict.fromkeys(("Acl", "AclFilter"), "acls"),
    "Admin": "admin",
    "AsyncConsumer": "async_consumer",
    "AsyncProducer": "async_producer",
    "Connection": "connection",
    "Consumer": "consumer",
    "Delivery": "delivery",
    "NoDelayService": "delay_instances",
    "NotDelayed": "delay_registry",
    **dict.fromkeys(("Cancelled", "NoOutcome"), "cancelling"),
    **dict.fromkeys(("GroupIsActive", "NoSuchGroup"), "groups"),
    "ProducerInterceptor": "interceptors",
    "RoundRobin": "partitioners",
    "Sticky": "partitioners",
    "murmur2": "partitioners",
    "Producer": "producer",
    **dict.fromkeys(("Outgoing", "Record", "Sent", "TopicPartition"), "records"),
    **dict.fromkeys(
        (
            "BufferFull",
            "ClientError",
            "CommitFailed",
            "DeliveryFailed",
            "Fenced",
            "LoginRefused",
            "Misuse",
            "NoOffset",
            "NoSuchTopic",
            "PoisonRecord",
            "PollTooSlow",
            "SerializationFailed",
            "TransactionAborted",
            "Unreachable",
        ),
        "errors",
    ),
    **dict.fromkeys(
        ("from_integer", "from_json", "from_text", "to_integer", "to_json", "to_text"),
        "serializers",
    ),
}


def __getattr__(name: str) -> object:
    if name not in PUBLIC:
        raise AttributeError(f"module 'headrace.client' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"headrace.client.{PUBLIC[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *PUBLIC])
