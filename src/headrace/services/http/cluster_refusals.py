"""Turns errors of the cluster or the client into refusals with the proxies' codes."""

from __future__ import annotations

from headrace.client.delay.registry import NotDelayed
from headrace.client.errors import (
    BufferFull,
    ClientError,
    LoginRefused,
    Misuse,
    NoShareGroups,
    NoSuchTopic,
    Unreachable,
)
from headrace.services.http.dialects.v2 import Unwritten
from headrace.services.http.refusal import (
    AWAY,
    FAILED,
    FORBIDDEN,
    ILLEGAL_STATE,
    KAFKA_ERROR,
    KAFKA_RETRIABLE,
    NOT_SERVED,
    TOO_LARGE,
    UNAUTHORIZED,
    Refusal,
    bad_payload,
    busy,
    partition_not_found,
    topic_not_found,
)

NOT_ALLOWED = frozenset(
    f"{what}_AUTHORIZATION_FAILED" for what in ("TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID")
)
TOO_LARGE_CODES = frozenset({"MSG_SIZE_TOO_LARGE", "MESSAGE_TOO_LARGE", "RECORD_LIST_TOO_LARGE"})
NO_TOPIC = frozenset({"UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "UNKNOWN_TOPIC_OR_PARTITION"})


def refusal_of(failure: ClientError) -> Refusal:
    said, code = str(failure), failure.code or ""
    if isinstance(failure, NoSuchTopic) or code in NO_TOPIC:
        return topic_not_found()
    if code == "_UNKNOWN_PARTITION":
        return partition_not_found()
    if isinstance(failure, NoShareGroups):
        return Refusal(NOT_SERVED, said)
    if isinstance(failure, LoginRefused):
        return Refusal(401, "The cluster does not let this user in.", code=UNAUTHORIZED)
    if code in NOT_ALLOWED or code == "SECURITY_DISABLED":
        return Refusal(403, said, code=FORBIDDEN)
    if isinstance(failure, BufferFull) or code == "_QUEUE_FULL":
        return busy("The cluster takes records more slowly than they come; send it again.")
    if code in TOO_LARGE_CODES:
        return Refusal(TOO_LARGE, said)
    if isinstance(failure, NotDelayed | Misuse):
        return bad_payload(said)
    if code in ("TOPIC_ALREADY_EXISTS", "INVALID_TOPIC_EXCEPTION", "TOPIC_EXCEPTION"):
        return Refusal(400, said, code=40002)
    if code in ("INVALID_PARTITIONS", "INVALID_REPLICATION_FACTOR", "INVALID_CONFIG"):
        return Refusal(400, said, code=40002)
    if code == "_INVALID_ARG":
        return bad_payload(said)
    if code in ("_STATE", "_CONFLICT"):
        return Refusal(409, said, code=ILLEGAL_STATE)
    if isinstance(failure, Unreachable) or failure.retriable or code == "_MSG_TIMED_OUT":
        return Refusal(AWAY, said, code=KAFKA_RETRIABLE, retry_after_s=1)
    return Refusal(FAILED, said, code=KAFKA_ERROR)


def unwritten(failure: ClientError) -> Unwritten:
    refusal = refusal_of(failure)
    return Unwritten(str(failure), refusal.status in (AWAY, 429), refusal)
