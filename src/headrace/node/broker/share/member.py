"""The common part of ShareFetch and ShareAcknowledge: the member, and the deadline of an answer."""

from __future__ import annotations

from headrace.node.broker.broker import Broker
from headrace.node.serving.api import Call
from headrace.node.serving.rights import GROUP, require
from headrace.wire.protocol.acls import Operation
from headrace.wire.protocol.errors import ErrorCode, KafkaError

LONGEST_MEMBER_ID = 36  # as Apache Kafka 4.3: clients make a UUID up
# The share coordinator is asked for `request.timeout.ms`; its last refusal comes a tick later.
SLACK_MS = 5_000


def require_member(
    broker: Broker, group: str | None, member: str | None, call: Call
) -> tuple[str, str]:
    """Returns group and member of a request that may be served."""
    if not broker.share_groups_served:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    if group is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    require(broker, call, Operation.READ, GROUP, group)
    if not member or len(member) > LONGEST_MEMBER_ID:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    return group, member


def wait_deadline_ms(broker: Broker) -> int:
    """Returns the time at which an answer leaves although the outcome of its acknowledgements is
    unknown."""
    timeout_ms: int = broker.values["request.timeout.ms"]
    return broker.now.monotonic_ms + timeout_ms + SLACK_MS
