"""The values of the client's interface: records to send, records read, and their places.

Plain data. A `TopicPartition` is a key of dictionaries; offsets travel beside it as numbers, and an
offset is always that of the next record to read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, NamedTuple

from headrace.client.errors import Misuse

if TYPE_CHECKING:
    # PEP 696 defaults: `Consumer(...)` without deserializers gives bytes, and no annotation is
    # needed to say so. At run time type variables carry nothing, so 3.11 needs no extra package.
    from typing_extensions import TypeVar

    K = TypeVar("K", default=bytes)
    V = TypeVar("V", default=bytes)
    SentKey = TypeVar("SentKey", default=bytes | str)
    SentValue = TypeVar("SentValue", default=bytes | str)
else:
    from typing import TypeVar

    K = TypeVar("K")
    V = TypeVar("V")
    SentKey = TypeVar("SentKey")
    SentValue = TypeVar("SentValue")

HeaderList = list[tuple[str, bytes | None]]
GivenHeaders = Mapping[str, bytes | str | None] | Sequence[tuple[str, bytes | str | None]]


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(slots=True)
class Sent:
    """Topic, partition and offset of a record that was written."""

    topic: str
    partition: int
    offset: int  # -1 with acks=0: the broker did not say
    timestamp_ms: int


@dataclass(slots=True)
class Outgoing(Generic[SentKey, SentValue]):
    """A record before it is serialized; interceptors may change it."""

    topic: str
    value: SentValue | None
    key: SentKey | None = None
    headers: HeaderList = field(default_factory=list)
    partition: int | None = None  # None: the partitioner decides
    timestamp_ms: int | None = None  # None: now


@dataclass(slots=True)
class Record(Generic[K, V]):
    """A record that a consumer returned."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int | None
    timestamp_type: str | None  # "create" or "append"
    key: K | None
    value: V | None
    headers: HeaderList

    @property
    def place(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    def header(self, name: str) -> bytes | None:
        """The last header of this name, as Kafka's clients do; None if there is none."""
        return next((value for key, value in reversed(self.headers) if key == name), None)


def header_list(given: GivenHeaders | None) -> HeaderList:
    """Headers as Kafka has them: a list of names, which may repeat, each with bytes or None."""
    if not given:
        return []
    pairs: Any = given.items() if isinstance(given, Mapping) else given
    try:
        return [
            (name, value.encode() if isinstance(value, str) else value) for name, value in pairs
        ]
    except (TypeError, ValueError) as failure:
        raise Misuse('Headers are {"name": "value"} or pairs [("name", b"value")].') from failure


def as_names(topics: Sequence[str]) -> list[str]:
    """Check names of topics for librdkafka: its bindings end the whole process for a text with half
    of a surrogate pair, and a zero byte would make it another name."""
    if isinstance(topics, str):
        raise Misuse(f'Topics are a list: ["{topics}"].')
    for name in topics:
        if "\0" in name or any("\ud800" <= c <= "\udfff" for c in name):
            raise Misuse(f"{name!r} is not a valid topic name.")
    return list(topics)


def as_places(given: Iterable[TopicPartition]) -> list[TopicPartition]:
    """Check that these are partitions: plain pairs will do, the mere name of a topic will not."""
    for place in [given] if isinstance(given, str) else given:
        if isinstance(place, str):
            raise Misuse(
                f'Partitions are pairs such as TopicPartition("{place}", 0); '
                f'consumer.partitions_of("{place}") gives all of a topic.'
            )
    return [TopicPartition(*place) for place in given]
