"""The only package that connects to Kafka clusters, ours or others: typed calls on confluent-kafka.

The programs around the broker (command line, services, console) reach a cluster only through this
package, so they work on Apache Kafka as well: a contract of import-linter keeps `confluent_kafka`
in here (decision 39). `Producer` and `Consumer` (and their asyncio variants) move records, `Admin`
administers; `wire` makes the requests that librdkafka lacks with our own codecs. Refusals and
failures are raised as `ClientError`, one sentence each. Services that decide themselves what is
committed take `intake`, `transaction_writer` and `admin.requests`, and act on `faults`; these are
not for programs of users. `__all__` lists the public names; each is loaded when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.client.admin.acls import Acl as Acl
    from headrace.client.admin.acls import AclFilter as AclFilter
    from headrace.client.admin.admin import Admin as Admin
    from headrace.client.admin.groups import GroupIsActive as GroupIsActive
    from headrace.client.admin.groups import NoSuchGroup as NoSuchGroup
    from headrace.client.connection import ClientSettings as ClientSettings
    from headrace.client.connection import Connection as Connection
    from headrace.client.consumer.async_consumer import AsyncConsumer as AsyncConsumer
    from headrace.client.consumer.consumer import Consumer as Consumer
    from headrace.client.delay.cancellation import Cancelled as Cancelled
    from headrace.client.delay.cancellation import NoOutcome as NoOutcome
    from headrace.client.delay.instances import NoDelayService as NoDelayService
    from headrace.client.delay.registry import NotDelayed as NotDelayed
    from headrace.client.errors import BufferFull as BufferFull
    from headrace.client.errors import ClientError as ClientError
    from headrace.client.errors import CommitFailed as CommitFailed
    from headrace.client.errors import DeliveryFailed as DeliveryFailed
    from headrace.client.errors import Fenced as Fenced
    from headrace.client.errors import LoginRefused as LoginRefused
    from headrace.client.errors import Misuse as Misuse
    from headrace.client.errors import NoOffset as NoOffset
    from headrace.client.errors import NoShareGroups as NoShareGroups
    from headrace.client.errors import NoSuchTopic as NoSuchTopic
    from headrace.client.errors import PoisonRecord as PoisonRecord
    from headrace.client.errors import PollTooSlow as PollTooSlow
    from headrace.client.errors import SerializationFailed as SerializationFailed
    from headrace.client.errors import TransactionAborted as TransactionAborted
    from headrace.client.errors import Unreachable as Unreachable
    from headrace.client.producer.async_producer import AsyncProducer as AsyncProducer
    from headrace.client.producer.delivery import Delivery as Delivery
    from headrace.client.producer.interceptors import ProducerInterceptor as ProducerInterceptor
    from headrace.client.producer.partitioners import RoundRobin as RoundRobin
    from headrace.client.producer.partitioners import Sticky as Sticky
    from headrace.client.producer.partitioners import murmur2 as murmur2
    from headrace.client.producer.producer import Producer as Producer
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
    from headrace.client.share.acquired_records import ShareRecord as ShareRecord
    from headrace.client.share.share_consumer import ShareConsumer as ShareConsumer
    from headrace.client.share.share_session import RefusedAcknowledgement as RefusedAcknowledgement

# The module of each public name.
PUBLIC = {
    **dict.fromkeys(("Acl", "AclFilter"), "admin.acls"),
    "Admin": "admin.admin",
    "AsyncConsumer": "consumer.async_consumer",
    "AsyncProducer": "producer.async_producer",
    # Connection is the older name of ClientSettings.
    **dict.fromkeys(("ClientSettings", "Connection"), "connection"),
    "Consumer": "consumer.consumer",
    "Delivery": "producer.delivery",
    "NoDelayService": "delay.instances",
    "NotDelayed": "delay.registry",
    **dict.fromkeys(("Cancelled", "NoOutcome"), "delay.cancellation"),
    **dict.fromkeys(("GroupIsActive", "NoSuchGroup"), "admin.groups"),
    "ProducerInterceptor": "producer.interceptors",
    "RoundRobin": "producer.partitioners",
    "Sticky": "producer.partitioners",
    "murmur2": "producer.partitioners",
    "Producer": "producer.producer",
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
            "NoShareGroups",
            "NoSuchTopic",
            "PoisonRecord",
            "PollTooSlow",
            "SerializationFailed",
            "TransactionAborted",
            "Unreachable",
        ),
        "errors",
    ),
    "ShareConsumer": "share.share_consumer",
    "ShareRecord": "share.acquired_records",
    "RefusedAcknowledgement": "share.share_session",
    **dict.fromkeys(
        ("from_integer", "from_json", "from_text", "to_integer", "to_json", "to_text"),
        "serializers",
    ),
}

__all__ = list(PUBLIC)


def __getattr__(name: str) -> object:
    if name not in PUBLIC:
        raise AttributeError(f"module 'headrace.client' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"headrace.client.{PUBLIC[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *PUBLIC])
