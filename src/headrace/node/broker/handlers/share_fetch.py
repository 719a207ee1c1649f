"""ShareFetch, v1-2: a member acquires records, and may acknowledge earlier ones (KIP-932).

Answers with slices of files and the offsets of them that the member has acquired; a slice begins
and ends with a whole batch, so it may hold records of others. Waits up to max_wait for min_bytes of
new records, or for one that was given back. `share.isolation.level` of the group says whether
records of open and aborted transactions are seen. v2 renew (KIP-1222; such a request acquires
nothing) and share.acquire.mode (KIP-1206): 1 is a strict limit of records, 0 takes whole batches.
Sessions are in `share/sessions.py`. Needs READ on the group and on each topic.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from headrace.node.broker.broker import Broker
from headrace.node.broker.share.acknowledgements import FIRST_VERSION_WITH_RENEW, Acknowledging
from headrace.node.broker.share.acquisition import Acquired, Wish, acquire
from headrace.node.broker.share.led_partitions import LedSharePartition
from headrace.node.broker.share.member import require_member, wait_deadline_ms
from headrace.node.broker.share.sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    ShareSession,
    TopicPartition,
)
from headrace.node.broker.share.told_leaders import ToldLeaders
from headrace.node.serving.api import Api, Call, Peer, WaitingRequest, require_few_partitions
from headrace.node.serving.rights import TOPIC
from headrace.wire.protocol.acls import Operation
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from headrace.wire.protocol.messages import share_fetch as messages
from headrace.wire.protocol.messages.share_fetch import (
    AcquiredRecords,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)

RECORD_LIMIT = 1  # the share.acquire.mode that never acquires more than max_records
NO_RECORDS = b""


def handle(
    broker: Broker, request: ShareFetchRequest, call: Call
) -> ShareFetchResponse | WaitingRequest:
    group, member = require_member(broker, request.group_id, request.member_id, call)
    require_few_partitions(messages.NAME, sum(len(topic.partitions) for topic in request.topics))
    renews = call.version >= FIRST_VERSION_WITH_RENEW and request.is_renew_ack
    if renews:
        require_nothing_wanted(request)
    try:
        session = session_of(broker, request, group, member, call)
    except KafkaError as refused:
        if refused.code is ErrorCode.SHARE_SESSION_LIMIT_REACHED:
            return refuse_later(request, refused, call)
        raise
    fetch = ShareFetch(broker, request, session, call, renews=renews)
    for topic in request.topics:
        for part in topic.partitions:
            key, batches = (topic.topic_id, part.partition_index), part.acknowledgement_batches
            fetch.acknowledging.take(call, key, batches, renews=renews)
    if request.share_session_epoch == FINAL_EPOCH:
        broker.shared.sessions.end(session)
    return fetch.begin(call)


def require_nothing_wanted(request: ShareFetchRequest) -> None:
    if request.max_bytes or request.min_bytes or request.max_records or request.max_wait_ms:
        raise KafkaError(ErrorCode.INVALID_REQUEST)


def session_of(
    broker: Broker, request: ShareFetchRequest, group: str, member: str, call: Call
) -> ShareSession:
    sessions, epoch = broker.shared.sessions, request.share_session_epoch
    named = [(topic.topic_id, part.partition_index) for topic, part in _parts(request)]
    if epoch == INITIAL_EPOCH:
        if any(part.acknowledgement_batches for _, part in _parts(request)):
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        most = broker.values["group.share.max.share.sessions"]
        return sessions.begin(group, member, call.session, named, most)
    session = sessions.resume(group, member, epoch, call.session)
    if epoch != FINAL_EPOCH:
        forgotten = [
            (topic.topic_id, index)
            for topic in request.forgotten_topics_data
            for index in topic.partitions
        ]
        sessions.change(session, named, forgotten)
    return session


def _parts(
    request: ShareFetchRequest,
) -> Iterator[tuple[messages.FetchTopic, messages.FetchPartition]]:
    return ((topic, part) for topic in request.topics for part in topic.partitions)


def refuse_later(request: ShareFetchRequest, refused: KafkaError, call: Call) -> WaitingRequest:
    """Delay the refusal: a client without a session tries again at once."""

    def attempt(expired: bool) -> None:
        if expired:
            raise refused

    deadline_ms = call.now.monotonic_ms + max(request.max_wait_ms, 0)
    return WaitingRequest(attempt, deadline_ms=deadline_ms, hangs_on=[], mutes=True)


class ShareFetch:
    """A ShareFetch until it is answered: tried again after each change."""

    __slots__ = (
        "broker",
        "session",
        "peer",
        "acknowledging",
        "found",
        "opened",
        "fetches",
        "is_full",
        "min_bytes",
        "max_bytes",
        "max_records",
        "batch_size",
        "exactly",
        "until_ms",
        "settings",
    )

    def __init__(
        self,
        broker: Broker,
        request: ShareFetchRequest,
        session: ShareSession,
        call: Call,
        *,
        renews: bool,
    ) -> None:
        epoch = request.share_session_epoch
        self.broker = broker
        self.session = session
        self.peer: Peer = call.session
        self.settings = broker.groups.share_settings(session.group)
        self.acknowledging = Acknowledging(broker, session.group, session.member)
        # None: nothing was acquired yet, and no partition was refused.
        self.found: dict[TopicPartition, Acquired | KafkaError | None] | None = None
        self.opened: dict[TopicPartition, LedSharePartition] = {}
        self.fetches = epoch != FINAL_EPOCH and not renews and request.max_records > 0
        self.is_full = epoch == INITIAL_EPOCH  # without records the answer names every partition
        self.max_bytes = min(request.max_bytes, broker.fetch_max_bytes)
        if call.meter is not None:
            self.max_bytes = min(self.max_bytes, call.meter.most_fetch_bytes())
        self.min_bytes = min(request.min_bytes, self.max_bytes)
        self.max_records = request.max_records
        self.batch_size = request.batch_size
        self.exactly = request.share_acquire_mode == RECORD_LIMIT
        self.until_ms = call.now.monotonic_ms + max(request.max_wait_ms, 0)

    def begin(self, call: Call) -> ShareFetchResponse | WaitingRequest:
        answer = self.attempt(expired=False)
        if answer is not None:
            return answer
        deadline_ms = self.until_ms
        if self.acknowledging.left:
            # The answer has to carry their outcome, so it may come later than max_wait.
            deadline_ms = max(deadline_ms, wait_deadline_ms(self.broker))
            self._wake_at(self.until_ms)
        hangs_on = [
            self.acknowledging,
            *self.opened.values(),
            *(part.leader for part in self.opened.values()),
        ]
        return WaitingRequest(self.attempt, deadline_ms=deadline_ms, hangs_on=hangs_on, mutes=True)

    def _wake_at(self, at_ms: int) -> None:
        def wake(expired: bool) -> bool | None:
            if expired:
                self.broker.purgatory.wake(self.acknowledging)
            return expired or None

        self.broker.purgatory.add(WaitingRequest(wake, deadline_ms=at_ms, hangs_on=[]))

    def attempt(self, expired: bool) -> ShareFetchResponse | None:
        if self.found is None and self.fetches:
            late = expired or self.broker.now.monotonic_ms >= self.until_ms
            self.found = self._acquire(late=late)
        if expired:
            self.acknowledging.give_up()
        if self.acknowledging.left or (self.found is None and self.fetches):
            return None
        return self._response()

    # --- acquiring

    def _acquire(self, *, late: bool) -> dict[TopicPartition, Acquired | KafkaError | None] | None:
        """Returns None if the request has to wait longer."""
        found: dict[TopicPartition, Acquired | KafkaError | None] = {}
        ready: list[tuple[TopicPartition, LedSharePartition]] = []
        has_changed = False
        for key in self.session.in_turn():
            before = self.opened.get(key)
            if before is not None and before.refused is not None:
                found[key] = before.refused
                continue
            try:
                part = self._open(key)
            except KafkaError as refused:
                found[key] = refused
                continue
            # A share partition that was closed and opened again is another object; wait for the new
            # one.
            has_changed |= self.opened.setdefault(key, part) is not part
            if part.machine is not None:
                ready.append((key, part))
        if not (late or found or has_changed) and not self._is_enough(ready):
            return None
        self._acquire_from(ready, found)
        if late or has_changed or not self.session.partitions or any(found.values()):
            return found
        return None

    def _open(self, key: TopicPartition) -> LedSharePartition:
        broker = self.broker
        topic = broker.topics.by_id.get(key[0])
        if topic is None:
            known = broker.image.topics_by_id.get(key[0])
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_ID if known is None else ErrorCode.NOT_LEADER_OR_FOLLOWER
            )
        if broker.authorizer is not None and not broker.authorizer.allows(
            self.peer, Operation.READ, TOPIC, topic.name
        ):
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        return broker.shared.opened(self.session.group, topic.leader(key[1]))

    def _is_enough(self, ready: Iterable[tuple[TopicPartition, LedSharePartition]]) -> bool:
        """Returns whether there are min_bytes of new records, or any that were acquired before."""
        size = 0
        for _, part in ready:
            machine, leader = self.broker.shared.prepare(part), part.leader
            if machine is None or not machine.has_room:
                continue
            start = machine.next_fetch_offset
            if start >= self._end(part):
                continue
            if start < machine.end_offset or self.min_bytes <= 1:
                return True
            try:
                records = leader.read(
                    start,
                    self.max_bytes,
                    committed=self.settings.reads_committed,
                    at_least_one=True,
                )
            except KafkaError:
                return True  # the attempt to acquire finds the error
            size += 0 if records is None else records.length
            if size >= self.min_bytes:
                return True
        return False

    def _end(self, part: LedSharePartition) -> int:
        leader = part.leader
        return (
            leader.last_stable_offset() if self.settings.reads_committed else leader.high_watermark
        )

    def _acquire_from(
        self,
        ready: Iterable[tuple[TopicPartition, LedSharePartition]],
        found: dict[TopicPartition, Acquired | KafkaError | None],
    ) -> None:
        shared, count, size = self.broker.shared, 0, 0
        now_ms = self.broker.now.monotonic_ms
        for key, part in ready:
            if count >= self.max_records or (count and size >= self.max_bytes):
                return
            machine = shared.prepare(part)
            if machine is None or machine.next_fetch_offset >= self._end(part):
                continue
            wish = Wish(
                most_records=self.max_records - count,
                batch_size=self.batch_size,
                max_bytes=self.max_bytes - size,
                at_least_one=not count,
                exactly=self.exactly,
                committed=self.settings.reads_committed,
            )
            try:
                acquired = acquire(machine, part.leader, self.session.member, wish, now_ms)
            except KafkaError as refused:
                found[key] = refused
                continue
            if acquired is not None:
                found[key] = acquired
                count += acquired.count
                size += acquired.records.length
                shared.acquired(part)

    # --- the answer

    def _response(self) -> ShareFetchResponse:
        response = ShareFetchResponse(acquisition_lock_timeout_ms=self.settings.record_lock_ms)
        found, refusals = self.found or {}, self.acknowledging.refusals
        told = ToldLeaders(self.broker, self.peer.listener)
        topics: dict[bytes, ShareFetchableTopicResponse] = {}
        everything = dict.fromkeys([*found, *refusals])
        if self.is_full and not any(isinstance(each, Acquired) for each in found.values()):
            everything |= dict.fromkeys(self.session.partitions)
        for key in everything:
            if key[0] not in topics:
                topics[key[0]] = ShareFetchableTopicResponse(key[0])
            topics[key[0]].partitions.append(
                self._answer_of(key, found.get(key), refusals.get(key), told)
            )
        response.responses = list(topics.values())
        response.node_endpoints = [NodeEndpoint(*each) for each in told.endpoints()]
        return response

    def _answer_of(
        self,
        key: TopicPartition,
        found: Acquired | KafkaError | None,
        refused: KafkaError | None,
        told: ToldLeaders,
    ) -> PartitionData:
        answer = PartitionData(key[1], records=NO_RECORDS)
        if isinstance(found, KafkaError):
            answer.error_code = found.code
            answer.error_message = found.message
        elif found is not None:
            answer.records = found.records
            answer.acquired_records = [AcquiredRecords(*each) for each in found.ranges]
            self.broker.bytes_out += found.records.length
        if refused is not None:
            answer.acknowledge_error_code = refused.code
            answer.acknowledge_error_message = refused.message
        for each in (found, refused):
            if isinstance(each, KafkaError):
                hint = told.leader_of(key, each.code)
                if hint is not None:
                    answer.current_leader = LeaderIdAndEpoch(*hint)
        return answer


API = Api(messages=messages, handle=handle, versions=range(1, 3))
