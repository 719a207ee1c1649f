"""Reading a queue: a member of a share group, with an acknowledgement for each record.

    with ShareConsumer(topics=["jobs"], group="workers") as consumer:
        for record in consumer.poll():
            ...
            consumer.accept(record)      # or release (try again), reject (give up), renew

A record that was polled belongs to this member until it is acknowledged or its lock runs out; then
another member gets it, with a higher `delivery_count`. Acknowledgements travel with the next
`poll`, or with `commit`, which waits for the answers. `close` gives everything back. `poll`,
`commit` and `close` belong to one thread; `accept`, `release`, `reject` and `renew` may be called
from any. Records are bytes; deserialize them yourself. Not done: reading by regular expression.
"""

from __future__ import annotations

import base64
import logging
import select
import threading
import time
import uuid
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal

from headrace.client.connection import ClientSettings, Setting, addresses, connected
from headrace.client.errors import ClientError, Misuse
from headrace.client.records import as_names
from headrace.client.share.acquired_records import ShareRecord
from headrace.client.share.membership import Membership, ShareMember
from headrace.client.share.share_session import (
    ACCEPT,
    LOST,
    MOVED,
    REJECT,
    RELEASE,
    RENEW,
    SESSION_GONE,
    Arrived,
    QueuePartition,
    RefusedAcknowledgement,
    ShareSession,
)
from headrace.client.wire import Wire, require_no_error, wire_if_it_answers, wire_to_any
from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages import (
    incremental_alter_configs,
    metadata,
    share_acknowledge,
    share_fetch,
)

log = logging.getLogger("headrace.client")

RECORDS_PER_POLL = 500
# While records are held, acknowledgements come soon: they wait for the fetch that is under way.
FETCH_WAIT_MS, BUSY_FETCH_WAIT_MS = 500, 50
SLICE_S = 0.1
LOOK_AGAIN_S = 0.25
MOST_REFUSED_KEPT = 10_000
# A lock that a renewal has moved on is known here when its answer has come, so wait for that.
FORGET_EVERY_S, FORGET_AFTER_S = 10.0, 60.0
GROUP_RESOURCE, SET = 32, 0


class ShareConsumer:
    """Reads topics as a queue; use it in a `with` statement, or call `close`."""

    def __init__(
        self,
        bootstrap: str | ClientSettings | None = None,
        *,
        topics: Sequence[str],
        group: str,
        start_from: Literal["earliest", "latest"] | None = None,
        settings: Mapping[str, Setting] | None = None,
    ) -> None:
        """`start_from` writes the group's setting `share.auto.offset.reset`, which counts for
        partitions that the group has not read yet; None leaves it (Kafka's default is latest).
        Raises NoShareGroups, Unreachable, or what the cluster refuses.
        """
        if not topics or not group:
            raise Misuse("A queue is read with topics= and group=.")
        self.connection = connected(bootstrap, settings)
        self.group = group
        self.member_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        self._topics = as_names(topics)
        self._leaders = _Leaders(self.connection, self._topics)
        self._links: dict[int, _Link] = {}
        self._numbers = 0
        self._ready: deque[ShareRecord] = deque()
        self._refused: deque[RefusedAcknowledgement] = deque(maxlen=MOST_REFUSED_KEPT)
        self._lock = threading.Lock()  # around the sessions, which other threads acknowledge in
        self._next_forget = 0.0
        self._closed = False
        self._failure: ClientError | None = None  # a refusal that will not change
        if start_from is not None:
            self._start_from(start_from)
        member = ShareMember(group, self.member_id, self._topics)
        self._membership = Membership(self.connection, member)
        self._membership.join()

    def __enter__(self) -> ShareConsumer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # ---- reading

    def poll(
        self, max_records: int = RECORDS_PER_POLL, timeout_s: float = 1.0
    ) -> list[ShareRecord]:
        """Return up to `max_records` records: waits for the first, then takes what has arrived.
        Also sends the acknowledgements since the last call; max_records=0 sends them and reads
        nothing."""
        self._require_open()
        deadline = time.monotonic() + timeout_s
        while True:
            self._forget_late()
            self._turn(max_records - len(self._ready), deadline)
            if self._ready and max_records > 0:
                count = min(max_records, len(self._ready))
                return [self._ready.popleft() for _ in range(count)]
            if time.monotonic() >= deadline:
                return []

    def _forget_late(self) -> None:
        """Records that arrived and were not polled within their lock will come again."""
        now = time.monotonic()
        if self._ready and any(record.locked_until <= now for record in self._ready):
            self._ready = deque(each for each in self._ready if each.locked_until > now)
        if now >= self._next_forget:
            self._next_forget = now + FORGET_EVERY_S
            with self._lock:
                for link in self._links.values():
                    link.session.forget_before(now - FORGET_AFTER_S)

    @property
    def held(self) -> int:
        """Records that this member has not acknowledged, with those that `poll` will return."""
        with self._lock:
            return sum(link.session.held for link in self._links.values())

    def owns(self, record: ShareRecord) -> bool:
        """Whether the record can still be acknowledged, as far as we know."""
        if record.locked_until <= time.monotonic():
            return False
        with self._lock:
            link = self._links.get(record.node)
            if link is None or link.session.number != record.session:
                return False
            share_partition = QueuePartition(record.topic_id, record.partition)
            return link.session.holds(share_partition, record.offset)

    @property
    def assigned(self) -> int:
        """How many partitions the group has assigned to us; other members may read the same."""
        return len(self._membership.assigned)

    # ---- acknowledging

    def accept(self, *records: ShareRecord) -> None:
        """Done: they will not be delivered again."""
        self._acknowledge(records, ACCEPT)

    def release(self, *records: ShareRecord) -> None:
        """Give them back: a member of the group gets them again, until the group's limit of
        deliveries (`group.share.delivery.count.limit`, 5) is reached."""
        self._acknowledge(records, RELEASE)

    def reject(self, *records: ShareRecord) -> None:
        """Give them up: the group does not get them again."""
        self._acknowledge(records, REJECT)

    def renew(self, *records: ShareRecord) -> None:
        """Keep them for another lock duration."""
        self._acknowledge(records, RENEW)

    def _acknowledge(self, records: Iterable[ShareRecord], kind: int) -> None:
        with self._lock:
            for record in records:
                link = self._links.get(record.node)
                ours = False
                if link is not None and link.session.number == record.session:
                    share_partition = QueuePartition(record.topic_id, record.partition)
                    ours = link.session.acknowledge(share_partition, record.offset, kind)
                if not ours:
                    at = record.offset
                    self._refused.append(
                        RefusedAcknowledgement(record.topic, record.partition, at, at, LOST)
                    )

    def commit(self, timeout_s: float = 10.0) -> list[RefusedAcknowledgement]:
        """Send the acknowledgements and wait for the answers. Returns those that had no effect
        since the last `commit`: their records come again, or another member has them already.
        Those without an answer in time are returned too: they may take effect later."""
        self._require_open()
        deadline = time.monotonic() + timeout_s
        while self._owes() and time.monotonic() < deadline:
            self._turn(0, deadline)
        with self._lock:
            late = [each for link in self._links.values() for each in link.session.unanswered()]
        return self.take_refused() + late

    def take_refused(self) -> list[RefusedAcknowledgement]:
        """Acknowledgements that had no effect since the last call, without waiting."""
        with self._lock:
            self._collect_refused()
            found = list(self._refused)
            self._refused.clear()
        return found

    def _owes(self) -> bool:
        with self._lock:
            return any(link.session.owes or link.acknowledges for link in self._links.values())

    def _collect_refused(self) -> None:
        for link in self._links.values():
            self._refused.extend(link.session.refused)
            link.session.refused.clear()

    # ---- one turn

    def _turn(self, room: int, deadline: float) -> None:
        if (failure := self._failure or self._membership.failure) is not None:
            raise failure
        self._leaders.look(self._membership.assigned)
        self._begin(room)
        self._end_some(min(SLICE_S, max(0.0, deadline - time.monotonic())))

    def _begin(self, room: int) -> None:
        """Send a request to each leader that has none of ours under way and for which there is
        work."""
        wanted = self._leaders.wanted(self._membership.assigned)
        for node in {*wanted, *self._links}:
            link = self._links.get(node)
            share_partitions = wanted.get(node, [])
            if link is None and share_partitions and room > 0:
                link = self._connected(node)
            if link is None or link.is_waiting:
                continue
            try:
                self._send(link, share_partitions, room)
            except ClientError as failure:
                self._drop(node, failure)

    def _send(self, link: _Link, share_partitions: list[QueuePartition], room: int) -> None:
        session = link.session
        with self._lock:
            request: Any
            if session.is_open and session.owes and (session.must_acknowledge or room <= 0):
                link.messages, request = share_acknowledge, session.acknowledge_request()
            elif share_partitions and room > 0:
                session.names = self._leaders.names
                wait_ms = BUSY_FETCH_WAIT_MS if session.held else FETCH_WAIT_MS
                link.messages, request = (
                    share_fetch,
                    session.fetch_request(share_partitions, max_records=room, max_wait_ms=wait_ms),
                )
            else:
                return
        link.sent_at = time.monotonic()
        link.wire.send(link.messages, request)
        link.is_waiting = True

    def _end_some(self, timeout_s: float) -> None:
        waiting = [link for link in self._links.values() if link.is_waiting]
        if not waiting:
            time.sleep(min(timeout_s, SLICE_S / 5))
            return
        readable = [link for link in waiting if link.wire.has_bytes]
        if not readable:
            found, _, _ = select.select([link.wire for link in waiting], [], [], timeout_s)
            readable = [link for link in waiting if link.wire in found]
        for link in readable:
            try:
                self._receive(link)
            except ClientError as failure:
                self._drop(link.session.node, failure)
        late_s = self.connection.timeout_s + FETCH_WAIT_MS / 1000
        for link in waiting:
            if link.is_waiting and time.monotonic() - link.sent_at > late_s:
                self._drop(link.session.node, ClientError("The broker did not answer in time."))

    def _receive(self, link: _Link) -> None:
        answer = link.wire.receive()
        link.is_waiting = False
        with self._lock:
            read = (
                link.session.fetched if link.messages is share_fetch else link.session.acknowledged
            )
            arrived: Arrived = read(answer, link.sent_at)
            self._ready.extend(arrived.records)
            self._collect_refused()
        if arrived.error:
            self._whole_refused(link, arrived.error, answer.error_message)
        elif arrived.errors:
            self._parts_refused(arrived.errors)

    def _whole_refused(self, link: _Link, code: int, message: str | None) -> None:
        if code in SESSION_GONE:
            self._forget_held(link.session)
            return
        try:
            require_no_error(code, message)
        except ClientError as failure:
            if not failure.retriable and code not in (ErrorCode.UNKNOWN_MEMBER_ID,):
                self._failure = failure
            self._drop(link.session.node, failure)

    def _parts_refused(self, errors: Mapping[QueuePartition, int]) -> None:
        for share_partition, code in errors.items():
            if code in MOVED:
                self._leaders.forget()
            elif code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                name = self._leaders.names.get(share_partition.topic_id, "")
                self._failure = ClientError(f"This user may not read the topic {name}.")
            else:
                log.debug(
                    "share partition %s answers with error %d", share_partition.partition, code
                )

    # ---- links to leaders

    def _connected(self, node: int) -> _Link | None:
        address = self._leaders.brokers.get(node)
        if address is None:
            return None
        try:
            wire = wire_if_it_answers(self.connection, address)
        except ClientError as failure:
            log.debug("broker %d is not reached: %s", node, failure)
            self._leaders.forget()
            return None
        self._numbers += 1
        session = ShareSession(self.group, self.member_id, node, self._numbers)
        session.names = self._leaders.names
        link = _Link(wire, session)
        with self._lock:
            self._links[node] = link
        return link

    def _drop(self, node: int, why: ClientError) -> None:
        log.debug("the share session with broker %d ended: %s", node, why)
        with self._lock:
            link = self._links.pop(node)
            link.session.lost()
            self._refused.extend(link.session.refused)
        link.wire.close()
        self._forget_held(link.session)
        self._leaders.forget()

    def _forget_held(self, session: ShareSession) -> None:
        """Records read in that session and not returned yet may now go to another member."""
        gone = (session.node, session.number)
        self._ready = deque(r for r in self._ready if (r.node, r.session) != gone)

    # ---- beginning and end

    def _start_from(self, where: str) -> None:
        config = incremental_alter_configs.AlterableConfig("share.auto.offset.reset", SET, where)
        resource = incremental_alter_configs.AlterConfigsResource(
            GROUP_RESOURCE, self.group, [config]
        )
        request = incremental_alter_configs.IncrementalAlterConfigsRequest([resource], False)
        with wire_to_any(self.connection, addresses(self.connection.bootstrap)) as wire:
            [answer] = wire.ask(incremental_alter_configs, request).responses
        if answer.error_code:
            log.warning(
                "share.auto.offset.reset of group %s could not be set to %s: %s",
                self.group, where, answer.error_message or answer.error_code,
            )  # fmt: skip

    def _require_open(self) -> None:
        if self._closed:
            raise Misuse("This share consumer is closed.")

    def close(self) -> None:
        """Send what was acknowledged, give back the rest, leave the group."""
        if self._closed:
            return
        self._closed = True
        for link in self._links.values():
            try:
                self._end(link)
            except ClientError as failure:
                log.debug("a share session was not ended: %s", failure)
            finally:
                link.wire.close()
        with self._lock:
            for link in self._links.values():
                link.session.lost()
            self._collect_refused()
        self._ready.clear()
        self._membership.leave()

    def _end(self, link: _Link) -> None:
        if link.is_waiting:
            self._receive(link)
        while link.session.is_open:
            with self._lock:
                final = not link.session.owes
                request = link.session.acknowledge_request(final=final)
            answer = link.wire.ask(share_acknowledge, request)
            with self._lock:
                link.session.acknowledged(answer, time.monotonic())
            if final:
                return


class _Link:
    """A connection to one leader, and the session on it."""

    __slots__ = ("is_waiting", "messages", "sent_at", "session", "wire")

    def __init__(self, wire: Wire, session: ShareSession) -> None:
        self.wire, self.session = wire, session
        self.messages: Any = None
        self.is_waiting = False
        self.sent_at = 0.0

    @property
    def acknowledges(self) -> bool:
        """Whether an answer about acknowledgements will come."""
        return self.is_waiting and self.session.awaits_answers


class _Leaders:
    """The leader of each partition, by the cluster's last answer."""

    def __init__(self, connection: ClientSettings, topics: Sequence[str]) -> None:
        self._connection = connection
        self._topics = topics
        self._next_look = 0.0
        self._stale = True
        self.brokers: dict[int, tuple[str, int]] = {}
        self.names: dict[bytes, str] = {}
        self._leader: dict[QueuePartition, int] = {}

    def forget(self) -> None:
        self._stale = True

    def wanted(self, assigned: Iterable[QueuePartition]) -> dict[int, list[QueuePartition]]:
        """The assigned partitions, by leader, as far as leaders are known."""
        found: dict[int, list[QueuePartition]] = {}
        for share_partition in assigned:
            leader = self._leader.get(share_partition, -1)
            if leader in self.brokers:
                found.setdefault(leader, []).append(share_partition)
        return found

    def look(self, assigned: frozenset[QueuePartition]) -> None:
        """Ask again if a leader is missing, at most four times a second."""
        missing = self._stale or not assigned <= self._leader.keys()
        now = time.monotonic()
        if not missing or now < self._next_look:
            return
        self._next_look = now + LOOK_AGAIN_S
        wanted = [metadata.MetadataRequestTopic(name=name) for name in self._topics]
        known = [*self.brokers.values(), *addresses(self._connection.bootstrap)]
        try:
            with wire_to_any(self._connection, list(dict.fromkeys(known))) as wire:
                answer = wire.ask(metadata, metadata.MetadataRequest(wanted, False))
        except ClientError as failure:
            log.debug("the leaders are not known: %s", failure)
            return
        self._stale = False
        self.brokers = {each.node_id: (each.host, each.port) for each in answer.brokers}
        for topic in answer.topics:
            if topic.name is None:
                continue
            self.names[topic.topic_id] = topic.name
            for each in topic.partitions:
                self._leader[QueuePartition(topic.topic_id, each.partition_index)] = each.leader_id
                if each.leader_id < 0:
                    self._stale = True
