"""Sessions of brokers: the time of the last heartbeat, and the decision on each heartbeat.

Heartbeats are kept in memory of the active controller alone; only their consequences are written: a
broker is fenced or unfenced, or transfers its leaderships before it stops. A controller that
becomes active knows no heartbeat yet, so each broker gets a whole session from then on. One
exception is the node that led before: it was last heard from as the leader, and its broker's
session begins at that time. A broker whose connection has ended, or that is late, is suspected of
having ended (`suspects`). The states and their transitions are Apache's:

    FENCED               -> UNFENCED once it has caught up with its own registration
    UNFENCED             -> FENCED, CONTROLLED_SHUTDOWN or SHUTDOWN_NOW, as it asks for
    CONTROLLED_SHUTDOWN  -> SHUTDOWN_NOW when it leads nothing and all others know that
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from headrace.node.controller.decision import Decision
from headrace.node.controller.members.brokers import (
    CORDONED_DIRECTORIES_FROM,
    controlled_shutdown,
    fence,
    registration_change,
)
from headrace.node.controller.partitions.partition_elections import broker_may_lead
from headrace.node.controller.producer_ids import require_current_broker
from headrace.node.metadata.image import BrokerImage, MetadataImage
from headrace.wire.protocol.messages.broker_heartbeat import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
)

UNFENCE = -1
# Heartbeats come every two seconds (broker.heartbeat.interval.ms): a later broker is suspected.
LATE_AFTER_MS = 2_500
# Brokers have so long to find a new controller before it suspects them.
FOUND_WITHIN_MS = 300


class BrokerControlState(Enum):
    FENCED = "fenced"
    UNFENCED = "unfenced"
    CONTROLLED_SHUTDOWN = "hands over what it leads"
    SHUTDOWN_NOW = "may stop"


@dataclass(slots=True)
class Session:
    epoch: int  # of the broker's registration
    heard_at_ms: int
    metadata_offset: int = -1  # up to where it has replayed the metadata
    # Up to where all others must have replayed it before it may stop; -1: it does not want to.
    shutdown_offset: int = -1
    # From this time on it is suspected, if no heartbeat comes before.
    suspect_at_ms: int = 1 << 62
    connection: Any = None  # the connection of its last heartbeat


class BrokerSessions:
    __slots__ = ("timeout_ms", "_sessions")

    def __init__(self, timeout_ms: int = 9_000) -> None:
        self.timeout_ms = timeout_ms  # broker.session.timeout.ms
        self._sessions: dict[int, Session] = {}

    def begin(
        self, image: MetadataImage, now_ms: int, leader_heard: tuple[int, int] = (-1, 0)
    ) -> None:
        """This controller has become the active one. `leader_heard`: the former leader, and when
        this node last heard from it."""
        leader, heard_ms = leader_heard
        self._sessions = {
            broker.id: Session(
                broker.epoch,
                min(heard_ms, now_ms) if broker.id == leader else now_ms,
                suspect_at_ms=now_ms + FOUND_WITHIN_MS,
            )
            for broker in image.brokers.values()
        }

    def registered(self, broker_id: int, epoch: int, now_ms: int) -> None:
        known = self._sessions.get(broker_id)
        if known is None or known.epoch != epoch:
            self._sessions[broker_id] = Session(epoch, now_ms)

    def heard_over(self, broker_id: int, connection: Any) -> None:
        """Note the connection by which a heartbeat came."""
        session = self._sessions.get(broker_id)
        if session is not None:
            session.connection = connection

    def hung_up(self, connection: Any) -> None:
        """A connection has ended, perhaps that of a broker's heartbeats: suspect the broker."""
        for session in self._sessions.values():
            if session.connection is connection:
                session.connection, session.suspect_at_ms = None, 0

    def suspects(self, image: MetadataImage, now_ms: int) -> list[BrokerImage]:
        """Returns brokers that may have ended, although their sessions have not."""
        found = []
        for broker_id, session in self._sessions.items():
            if now_ms >= session.suspect_at_ms:
                broker = image.brokers.get(broker_id)
                if broker is not None and not broker.fenced and broker.epoch == session.epoch:
                    found.append(broker)
        return found

    def is_alive(self, broker: BrokerImage | None, now_ms: int) -> bool:
        """Returns whether an unfenced broker has sent a heartbeat within its session."""
        if broker is None or broker.fenced:
            return False
        session = self._sessions.get(broker.id)
        return session is not None and now_ms - session.heard_at_ms <= self.timeout_ms

    def expired(self, image: MetadataImage, now_ms: int, without: int | None = None) -> int | None:
        """Returns one broker that must be fenced. One at a time, as in Apache: the next decision
        sees the consequences of this one."""
        for broker_id, session in self._sessions.items():
            broker = image.brokers.get(broker_id)
            if broker is None or broker.fenced or broker_id == without:
                continue
            if now_ms - session.heard_at_ms > self.timeout_ms:
                return broker_id
        return None

    def heartbeat(
        self,
        image: MetadataImage,
        request: BrokerHeartbeatRequest,
        *,
        end_offset: int,
        min_in_sync_replicas: int,
        now_ms: int,
    ) -> Decision[BrokerHeartbeatResponse]:
        """`end_offset` is where the records of this decision will begin."""
        require_current_broker(image, request.broker_id, request.broker_epoch)
        broker = image.brokers[request.broker_id]
        session = self._sessions.setdefault(broker.id, Session(broker.epoch, now_ms))
        session.heard_at_ms = max(session.heard_at_ms, now_ms)
        session.suspect_at_ms = session.heard_at_ms + LATE_AFTER_MS
        session.metadata_offset = request.current_metadata_offset
        current = state_of(broker)
        following = self._next_state(image, broker, current, request, session)
        records = list(_records(image, broker, current, following, min_in_sync_replicas))
        records += _cordons(image, broker, request)
        if following is BrokerControlState.CONTROLLED_SHUTDOWN:
            if session.shutdown_offset < 0:
                session.shutdown_offset = end_offset + len(records) - 1
        else:
            session.shutdown_offset = -1
        response = BrokerHeartbeatResponse(
            is_caught_up=request.current_metadata_offset >= broker.epoch,
            is_fenced=following in (BrokerControlState.FENCED, BrokerControlState.SHUTDOWN_NOW),
            should_shut_down=following is BrokerControlState.SHUTDOWN_NOW,
        )
        return Decision(records, response)

    def _next_state(
        self,
        image: MetadataImage,
        broker: BrokerImage,
        current: BrokerControlState,
        request: BrokerHeartbeatRequest,
        session: Session,
    ) -> BrokerControlState:
        if current is BrokerControlState.FENCED:
            if request.want_shut_down:
                return BrokerControlState.SHUTDOWN_NOW
            caught_up = request.current_metadata_offset >= broker.epoch
            return (
                BrokerControlState.UNFENCED
                if caught_up and not request.want_fence
                else BrokerControlState.FENCED
            )
        if current is BrokerControlState.CONTROLLED_SHUTDOWN:
            if leads_anything(image, broker.id) or session.shutdown_offset < 0:
                return BrokerControlState.CONTROLLED_SHUTDOWN
            all_know = session.shutdown_offset <= self._lowest_active_offset(image)
            return (
                BrokerControlState.SHUTDOWN_NOW
                if all_know
                else BrokerControlState.CONTROLLED_SHUTDOWN
            )
        if request.want_fence:
            return (
                BrokerControlState.SHUTDOWN_NOW
                if request.want_shut_down
                else BrokerControlState.FENCED
            )
        if request.want_shut_down:
            leads = leads_anything(image, broker.id)
            return (
                BrokerControlState.CONTROLLED_SHUTDOWN if leads else BrokerControlState.SHUTDOWN_NOW
            )
        return BrokerControlState.UNFENCED

    def _lowest_active_offset(self, image: MetadataImage) -> int:
        """Returns up to where every broker that does not stop has replayed the metadata."""
        offsets = [
            session.metadata_offset
            for broker_id, session in self._sessions.items()
            if broker_id in image.brokers and image.brokers[broker_id].alive
        ]
        return min(offsets, default=1 << 62)


def state_of(broker: BrokerImage) -> BrokerControlState:
    if broker.fenced:
        return BrokerControlState.FENCED
    return (
        BrokerControlState.CONTROLLED_SHUTDOWN
        if broker.in_controlled_shutdown
        else BrokerControlState.UNFENCED
    )


def leads_anything(image: MetadataImage, broker_id: int) -> bool:
    return any(
        partition.leader == broker_id
        for topic in image.topics.values()
        for partition in topic.partitions
    )


def _records(
    image: MetadataImage,
    broker: BrokerImage,
    current: BrokerControlState,
    following: BrokerControlState,
    min_in_sync_replicas: int,
) -> Iterator[Any]:
    if following is current or (
        current is BrokerControlState.FENCED and following is BrokerControlState.SHUTDOWN_NOW
    ):
        return
    if following is BrokerControlState.UNFENCED:
        yield from unfence_other(image, broker, min_in_sync_replicas)
    elif following is BrokerControlState.CONTROLLED_SHUTDOWN:
        yield from controlled_shutdown(image, broker.id, min_in_sync_replicas)
    else:
        yield from fence(image, broker.id, min_in_sync_replicas)


def _cordons(
    image: MetadataImage, broker: BrokerImage, request: BrokerHeartbeatRequest
) -> Iterator[Any]:
    """Directories that take no new replicas from now on (KIP-1066). A heartbeat before v2 names
    none, and changes nothing."""
    named = request.cordoned_log_dirs
    if named is None or image.metadata_version < CORDONED_DIRECTORIES_FROM:
        return
    cordoned = [directory for directory in broker.log_dirs if directory in named]
    if tuple(cordoned) != (broker.cordoned_log_dirs or ()):
        yield registration_change(broker, cordoned=cordoned)


def unfence_other(
    image: MetadataImage, broker: BrokerImage, min_in_sync_replicas: int
) -> Iterator[Any]:
    """Unfence a broker of another process. The partitions that it led before it was fenced have
    another leader by now, or none."""
    yield registration_change(broker, fenced=UNFENCE)
    back = replace(broker, fenced=False)
    after = replace(image, brokers={**image.brokers, broker.id: back})
    yield from broker_may_lead(after, broker.id, min_in_sync_replicas)
