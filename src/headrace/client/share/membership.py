"""A member of a share group: joins, heartbeats on a thread of its own, and leaves.

The heartbeats continue while the program handles its records; a program that is stuck loses its
records when their locks expire, not by its membership. `ShareMember` is the pure part: it makes the
requests and reads the answers.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence

from headrace.client.connection import ClientSettings, addresses
from headrace.client.errors import ClientError, LoginRefused, NoShareGroups, Unreachable
from headrace.client.share.share_session import QueuePartition
from headrace.client.wire import Wire, require_no_error, wire_if_it_answers, wire_to_any
from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages import find_coordinator, share_group_heartbeat

log = logging.getLogger("headrace.client")

GROUP_KEY = 0
JOINING, LEAVING = 0, -1
FIRST_INTERVAL_S = 1.0
PAUSE_S, LONGEST_PAUSE_S = 0.1, 2.0
LEAVE_WAIT_S = 5.0
COORDINATOR_WAIT_S = 60.0
ADVICE = (
    "Apache Kafka has them since 4.2; switch them on with `headrace brokers features "
    "share.version=1`."
)

REJOIN = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH})
LOOK_AGAIN = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    }
)


class ShareMember:
    """The pure part of a member. Joins again with the same id after the coordinator has forgotten
    it."""

    def __init__(self, group: str, member_id: str, topics: Sequence[str]) -> None:
        self.group, self.id = group, member_id
        self.topics = list(topics)
        self.epoch = JOINING
        self.interval_s = FIRST_INTERVAL_S
        self.assigned: frozenset[QueuePartition] = frozenset()

    def heartbeat(self) -> share_group_heartbeat.ShareGroupHeartbeatRequest:
        joins = self.epoch == JOINING
        return share_group_heartbeat.ShareGroupHeartbeatRequest(
            self.group, self.id, self.epoch, None, self.topics if joins else None
        )

    def farewell(self) -> share_group_heartbeat.ShareGroupHeartbeatRequest:
        return share_group_heartbeat.ShareGroupHeartbeatRequest(self.group, self.id, LEAVING)

    def heard(self, answer: share_group_heartbeat.ShareGroupHeartbeatResponse) -> bool:
        """Take an answer; False: join again. Raises lasting refusals, and temporary ones with
        `retriable` set."""
        if answer.error_code in REJOIN:
            self.epoch, self.assigned = JOINING, frozenset()
            return False
        if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
            raise NoShareGroups(f"Share groups are switched off in this cluster. {ADVICE}")
        if answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
            raise ClientError(
                f"{self.group} is a consumer group already; a queue needs a group name of its own."
            )
        require_no_error(answer.error_code, answer.error_message)
        self.epoch = answer.member_epoch
        self.interval_s = max(0.05, answer.heartbeat_interval_ms / 1000)
        if answer.assignment is not None:
            self.assigned = frozenset(
                QueuePartition(each.topic_id, partition)
                for each in answer.assignment.topic_partitions
                for partition in each.partitions
            )
        return True


class Membership:
    """Keeps a `ShareMember` alive; `assigned` and `failure` may be read from any thread."""

    def __init__(self, connection: ClientSettings, member: ShareMember) -> None:
        self._connection = connection
        self._member = member
        self._wire: Wire | None = None
        self._closing = threading.Event()
        self._thread = threading.Thread(
            target=self._beat, name="headrace-share-heartbeat", daemon=True
        )
        self.failure: ClientError | None = None

    @property
    def assigned(self) -> frozenset[QueuePartition]:
        return self._member.assigned

    def join(self) -> None:
        """Join; waits for a coordinator that is loading. Raises the cluster's refusal."""
        started = time.monotonic()
        while True:
            try:
                if self._heartbeat():
                    break
            except (NoShareGroups, LoginRefused):
                raise
            except ClientError as failure:
                patience_s = self._connection.timeout_s
                if failure.retriable:  # a new cluster first makes the topic of its coordinators
                    patience_s = max(patience_s, COORDINATOR_WAIT_S)
                elif not isinstance(failure, Unreachable):
                    raise
                if time.monotonic() - started > patience_s:
                    raise
            self._closing.wait(PAUSE_S)
        self._thread.start()

    def _beat(self) -> None:
        pause_s = PAUSE_S
        while not self._closing.wait(self._member.interval_s if pause_s == PAUSE_S else pause_s):
            try:
                while not self._heartbeat() and not self._closing.wait(PAUSE_S):
                    pass
                pause_s = PAUSE_S
            except ClientError as failure:
                self._let_go()
                if _stays(failure):
                    self.failure = failure
                    return
                log.debug("a heartbeat of share group %s failed: %s", self._member.group, failure)
                pause_s = min(pause_s * 2, LONGEST_PAUSE_S)

    def _heartbeat(self) -> bool:
        try:
            if self._wire is None:
                self._wire = self._to_coordinator()
            answer = self._wire.ask(share_group_heartbeat, self._member.heartbeat())
            return self._member.heard(answer)
        except ClientError:
            self._let_go()
            raise

    def _to_coordinator(self) -> Wire:
        group = self._member.group
        with wire_to_any(self._connection, addresses(self._connection.bootstrap)) as wire:
            try:
                wire.version_of(share_group_heartbeat)
            except ClientError as failure:
                raise NoShareGroups(f"This cluster has no share groups. {ADVICE}") from failure
            request = find_coordinator.FindCoordinatorRequest(group, GROUP_KEY, [group])
            [found] = wire.ask(find_coordinator, request).coordinators
        require_no_error(found.error_code, found.error_message)
        return wire_if_it_answers(self._connection, (found.host, found.port))

    def _let_go(self) -> None:
        if self._wire is not None:
            self._wire.close()
            self._wire = None

    def leave(self) -> None:
        """Leave, so that the group reassigns our partitions now, not at the session timeout."""
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join(LEAVE_WAIT_S)
        if self._thread.is_alive():
            return  # it waits for a broker that does not answer; the session will time out
        try:
            if self._member.epoch > 0 and self.failure is None:
                wire = self._wire or self._to_coordinator()
                self._wire = wire
                wire.ask(share_group_heartbeat, self._member.farewell())
        except ClientError as failure:
            log.debug("share group %s was not left: %s", self._member.group, failure)
        finally:
            self._let_go()


def _stays(failure: ClientError) -> bool:
    """Whether another heartbeat would be refused for the same reason. A lost connection has no
    code; the connection is made again."""
    if isinstance(failure, LoginRefused | NoShareGroups):
        return True
    return failure.code is not None and not failure.retriable
