"""What can go wrong between us and a cluster, as sentences for the person who asked.

Errors of librdkafka carry names such as `_TRANSPORT` and half a log line; `explain` turns the ones
that people meet into a sentence that says what to do. The rest keep the broker's own words.
"""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException


class ClientError(Exception):
    """A call failed; the text is one sentence for a person."""


class Unreachable(ClientError):
    """No broker answers at the address we were given."""


class NoSuchTopic(ClientError):
    """The cluster has no topic of this name."""


NOBODY_ANSWERS = frozenset(
    {
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._RESOLVE,
        KafkaError._TIMED_OUT,
        KafkaError._TRANSPORT,
    }
)


def unreachable(bootstrap: str) -> Unreachable:
    return Unreachable(
        f"No Kafka broker answers at {bootstrap}. Start one with `headrace start`, "
        "or name yours with --bootstrap."
    )


def explain(error: KafkaError, bootstrap: str, *, topic: str | None = None) -> ClientError:
    """The sentence for an error of librdkafka or of the broker behind it."""
    code = error.code()
    if code in NOBODY_ANSWERS:
        return unreachable(bootstrap)
    if code in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC) and topic:
        return NoSuchTopic(f"There is no topic {topic}.")
    if code == KafkaError._UNKNOWN_PARTITION and topic:
        return ClientError(f"Topic {topic} has no such partition.")
    if code == KafkaError.TOPIC_ALREADY_EXISTS and topic:
        return ClientError(f"Topic {topic} exists already.")
    return ClientError(sentence(error.str() or error.name()))


def kafka_error(failure: KafkaException) -> KafkaError:
    """The KafkaError that an exception of confluent-kafka carries."""
    first = failure.args[0] if failure.args else None
    return first if isinstance(first, KafkaError) else KafkaError(KafkaError._FAIL, str(failure))


def sentence(words: str) -> str:
    """The words with a capital and a full stop."""
    words = words.strip()
    if not words:
        return "It failed, and nobody said why."
    return words[0].upper() + words[1:] + ("" if words[-1] in ".!?" else ".")
