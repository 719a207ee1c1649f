"""The errors of a client, as sentences for the user.

Every error that the client raises is a `ClientError`; its subclasses are for programs that act on
them. Errors of librdkafka carry names such as `_TRANSPORT` and half a log line; `explain` turns the
common ones into a sentence that says what to do. The rest keep the broker's own words.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, KafkaException

if TYPE_CHECKING:
    from headrace.client.records import Record


class ClientError(Exception):
    """A call failed; the text is one sentence for a person.

    `code` is Kafka's or librdkafka's name of the error, if one of them raised it; `retriable` says
    that the same call may work a little later.
    """

    code: str | None = None
    retriable: bool = False


class Unreachable(ClientError):
    """No broker answers at the bootstrap servers."""


class LoginRefused(ClientError):
    """The broker refused the login, or its certificate is not trusted."""


class NoSuchTopic(ClientError):
    """The cluster has no topic of this name."""


class Misuse(ClientError):
    """A call at the wrong time or from the wrong place: a bug in the program that makes it."""


class SerializationFailed(ClientError):
    """A key or a value could not be turned into bytes; nothing was sent."""


class BufferFull(ClientError):
    """The producer's buffer stayed full for max_block_s; the record was not sent."""


class DeliveryFailed(ClientError):
    """A record was not written. With DELIVERY_TIMED_OUT it is unknown whether it was."""


class Fenced(ClientError):
    """A newer producer or group member replaced this one, which cannot continue."""


class TransactionAborted(ClientError):
    """A transaction was not committed: none of its records is visible, and it can be retried."""


class CommitFailed(ClientError):
    """Offsets were not committed."""


class NoOffset(ClientError):
    """There is no committed offset, or it is out of range, and auto_offset_reset is "none"."""


class PollTooSlow(ClientError):
    """The program took longer than max.poll.interval.ms between polls and lost its partitions."""


class NoShareGroups(ClientError):
    """The cluster has no share groups, or they are switched off."""


class PoisonRecord(ClientError):
    """A record whose key or value cannot be deserialized; `record` has it as bytes.

    The consumer stays before it: `consumer.skip(poison)` continues after it.
    """

    def __init__(self, part: str, record: Record[bytes, bytes], cause: Exception) -> None:
        super().__init__(
            f"The {part} of {record.topic}-{record.partition} at offset {record.offset} cannot be "
            f"deserialized: {cause!r}. Skip it with consumer.skip(error), or give on_poison=."
        )
        self.part = part
        self.record = record


NOBODY_ANSWERS = frozenset(
    {
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._RESOLVE,
        KafkaError._TIMED_OUT,
        KafkaError._TRANSPORT,
    }
)

# The errors of a broker for a partition that it does not lead yet, or no longer leads.
NOT_LED_YET = frozenset(
    {
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
    }
)

FENCED = frozenset(
    {
        KafkaError._FENCED,
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.FENCED_INSTANCE_ID,
    }
)

# The errors for a missing right, with the kind of resource.
NOT_ALLOWED = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "the topic",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "the group",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "the cluster",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "the transactional id",
}

# The retriable errors among those of librdkafka itself.
LATER = NOBODY_ANSWERS | {KafkaError._WAIT_COORD, KafkaError._QUEUE_FULL}

NO_LONGER_OURS = frozenset(
    {
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError.FENCED_MEMBER_EPOCH,
        KafkaError.STALE_MEMBER_EPOCH,
        KafkaError._ASSIGNMENT_LOST,
    }
)


def unreachable(bootstrap: str, *, command: bool = False) -> Unreachable:
    """The error for a cluster that does not answer. `command`: for a person at the command line."""
    return Unreachable(
        f"No Kafka broker answers at {bootstrap}. Start one with `headrace start`, "
        + ("or name yours with --bootstrap." if command else "or give the client another address.")
    )


def silent(bootstrap: str) -> Unreachable:
    return Unreachable(
        f"No Kafka broker answers at {bootstrap}, although the port is open: check that it is the "
        "right port, and that security.protocol fits its listener."
    )


def explain(error: KafkaError, bootstrap: str, *, topic: str | None = None) -> ClientError:
    """An error of librdkafka, or of the broker behind it, as one of ours."""
    said = _explained(error, bootstrap, topic)
    said.code, said.retriable = error.name(), is_retriable(error)
    return said


def is_retriable(error: KafkaError) -> bool:
    """Whether a retry may succeed. librdkafka's flag covers transactions only; for a broker's
    refusals Kafka's own table decides."""
    from headrace.wire.protocol.errors import ErrorCode

    known = ErrorCode._value2member_map_.get(error.code())
    said = isinstance(known, ErrorCode) and known.retriable
    return said or error.retriable() or error.code() in LATER


def _explained(error: KafkaError, bootstrap: str, topic: str | None) -> ClientError:
    code = error.code()
    if code in NOBODY_ANSWERS:
        return unreachable(bootstrap)
    if code in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC) and topic:
        return NoSuchTopic(f"There is no topic {topic}.")
    if code == KafkaError._UNKNOWN_PARTITION and topic:
        return ClientError(f"Topic {topic} has no such partition.")
    if code == KafkaError.TOPIC_ALREADY_EXISTS and topic:
        return ClientError(f"Topic {topic} exists already.")
    if code in NOT_ALLOWED:
        return ClientError(_not_allowed(error, topic))
    if code == KafkaError._AUTHENTICATION:
        return LoginRefused(
            f"The broker refuses the login: {_said(error)}. Check sasl.mechanism, "
            "sasl.username and sasl.password."
        )
    if code == KafkaError._SSL:
        return LoginRefused(
            f"TLS with the broker has failed: {_said(error)}. Check ssl.ca.location, the client's "
            "certificate, and whether this is the broker's TLS port."
        )
    if code == KafkaError._WAIT_COORD:
        return Unreachable("No broker coordinates the group or transaction now; try again.")
    if code in FENCED:
        return Fenced(
            "Another client with the same transactional.id or group.instance.id has taken over, or "
            "a transaction was open for longer than transaction.timeout.ms: "
            "close this client, and give each running instance its own id."
        )
    if code in NO_LONGER_OURS:
        return CommitFailed(
            "The group has given these partitions to another member: drop the unfinished work and "
            "poll again. If it happens often, raise max.poll.interval.ms or take smaller batches."
        )
    if code == KafkaError._MAX_POLL_EXCEEDED:
        return PollTooSlow(
            "The program took too long between two polls, so the group gave its partitions away. "
            "Raise max.poll.interval.ms or take smaller batches, and poll again to rejoin."
        )
    if code in (KafkaError._AUTO_OFFSET_RESET, KafkaError._NO_OFFSET):
        return NoOffset(
            sentence(error.str())
            + ' Seek to an offset, or choose auto_offset_reset="earliest" or "latest".'
        )
    return ClientError(sentence(error.str() or error.name()))


def _not_allowed(error: KafkaError, topic: str | None) -> str:
    what = NOT_ALLOWED[error.code()]
    if topic and error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        what = f"the topic {topic}"
    return (
        f"This user may not do that with {what}: {_said(error)} "
        "(`headrace acls add` grants rights; the audit of the node names the missing one)."
    )


def _said(error: KafkaError) -> str:
    return (error.str() or error.name()).rstrip(".")


def explain_delivery(error: KafkaError, bootstrap: str, topic: str) -> ClientError:
    """Why a record was not written."""
    said = _delivery_explained(error, bootstrap, topic)
    said.code, said.retriable = error.name(), is_retriable(error)
    return said


def _delivery_explained(error: KafkaError, bootstrap: str, topic: str) -> ClientError:
    match error.code():
        case KafkaError._MSG_TIMED_OUT:
            return DeliveryFailed(
                f"A record for {topic} was not acknowledged within the delivery timeout "
                f"(delivery.timeout.ms): see whether {bootstrap} answers and whether enough "
                "replicas are in sync."
            )
        case KafkaError._PURGE_QUEUE | KafkaError._PURGE_INFLIGHT:
            return DeliveryFailed(
                f"A record for {topic} was dropped: its transaction was aborted or its producer "
                "was closed before it was sent."
            )
        case KafkaError.CLUSTER_AUTHORIZATION_FAILED:  # an idempotent producer gets no identity
            return DeliveryFailed(
                f"This user may not write to the topic {topic}, nor to any other: WRITE on it is "
                "needed (`headrace acls add` gives rights)."
            )
        case KafkaError.TOPIC_EXCEPTION:
            return DeliveryFailed(
                f"'{topic}' is not a valid topic name: letters, digits, '.', '_' and '-' make one, "
                "249 at most."
            )
        case KafkaError.INVALID_RECORD:
            return DeliveryFailed(
                f"The broker refuses a record for {topic} as invalid: {_said(error)}. The usual "
                "reason is a topic that compacts (cleanup.policy): give each record a key."
            )
        case KafkaError.INVALID_TIMESTAMP:
            return DeliveryFailed(
                f"The time of a record for {topic} is too far from the broker's clock: see whether "
                "the clock of this machine is right, or raise the topic's "
                "message.timestamp.after.max.ms or message.timestamp.before.max.ms."
            )
        case KafkaError.MSG_SIZE_TOO_LARGE:
            return DeliveryFailed(
                f"A record is too large for {topic}: raise the topic's max.message.bytes, or send "
                "less."
            )
    said = _explained(error, bootstrap, topic)
    if isinstance(said, NoSuchTopic):
        said.args = (f"{said} Create it with `headrace topics create {topic}`.",)
    return said if type(said) is not ClientError else DeliveryFailed(str(said))


def too_large_for_us(error: KafkaError, topic: str) -> DeliveryFailed:
    """The producer's own limit; the broker never saw the record."""
    said = DeliveryFailed(
        f"A record for {topic} is larger than this producer sends: raise its setting "
        "message.max.bytes, and max.message.bytes of the topic if need be, or send less."
    )
    said.code = error.name()
    return said


def kafka_error(failure: KafkaException) -> KafkaError:
    """The KafkaError that an exception of confluent-kafka carries."""
    first = failure.args[0] if failure.args else None
    return first if isinstance(first, KafkaError) else KafkaError(KafkaError._FAIL, str(failure))


def explained(failure: KafkaException, bootstrap: str, *, topic: str | None = None) -> ClientError:
    """An exception of confluent-kafka as one of ours."""
    return explain(kafka_error(failure), bootstrap, topic=topic)


def sentence(words: str) -> str:
    """The words with a capital and a full stop."""
    words = words.strip()
    if not words:
        return "It failed without a reason."
    return words[0].upper() + words[1:] + ("" if words[-1] in ".!?" else ".")
