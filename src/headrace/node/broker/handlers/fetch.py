"""Fetch, v4-18: records of partitions, from the page cache to the socket.

Answers with slices of files, never with bytes. Waits up to max_wait for min_bytes; answers at once
when a partition has an error. The first batch is returned even if it is larger than every limit
(KIP-74), so that no consumer gets stuck. Incremental sessions (KIP-227) are in `fetch_sessions.py`.
v5 log start offset. v7 sessions. v9 leader epoch (KIP-320). v11 closest replica (KIP-392). v12
diverging epoch, flexible. v13 topic ids. v15 replica state. v16 node endpoints. v17 directory id.
v18 high watermark in the request (KIP-1166). Readers of committed records get those before the last
stable offset, with the list of aborted transactions. A client above its quota gets an answer
without records; max_bytes is lowered to what its quota allows in a whole window. Needs READ on each
topic; a fetch as a replica needs CLUSTER_ACTION. Followers read to the log end offset, and their
fetch offset says what they have (`Replica.replicate`). Consumers with v11 or later may also read
from a follower, up to the high watermark that it knows; with `replica.selector.class` a leader
sends them to the replica in their rack.
"""

from __future__ import annotations

from collections.abc import Generator

from headrace.node.broker.broker import Broker
from headrace.node.broker.records.fetch_answers import (
    NO_RECORDS,
    aborted_transactions,
    group_by_topic,
    refuse_replica,
    refused,
    without_records,
)
from headrace.node.broker.records.fetch_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    Entry,
    FetchSession,
    Key,
)
from headrace.node.replication.leadership_handover import code_for_reader
from headrace.node.replication.partition_follower import Position
from headrace.node.replication.read_replica import preferred_read_replica
from headrace.node.replication.replica import PartitionLeader
from headrace.node.serving.api import Api, Call, Peer, Waitable, WaitingRequest
from headrace.node.serving.quotas import Meter
from headrace.node.serving.rights import TOPIC, may_on_cluster
from headrace.node.steps import Steps
from headrace.wire.protocol.acls import Operation
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from headrace.wire.protocol.messages import fetch as messages
from headrace.wire.protocol.messages.fetch import (
    FetchRequest,
    FetchResponse,
    PartitionData,
)

NONE = ErrorCode.NONE
FIRST_VERSION_WITH_IDS = 13
FIRST_VERSION_WITH_RACKS = 11
READ_COMMITTED = 1


def handle(broker: Broker, request: FetchRequest, call: Call) -> FetchResponse | WaitingRequest:
    fetch = begin(broker, request, call)
    if isinstance(fetch, FetchResponse):
        return fetch
    fetch.read()
    return finish(fetch, request, call)


def handle_large(broker: Broker, request: FetchRequest, call: Call) -> Steps:
    """Answers a large request in steps. It begins a session or has none, so no other request
    changes its partitions; the marks of a continued session may change between two steps."""
    if request.session_epoch not in (FINAL_EPOCH, INITIAL_EPOCH):
        return handle(broker, request, call)
    fetch = begin(broker, request, call)
    if isinstance(fetch, FetchResponse):
        return fetch
    marked, fetch.entries = fetch.entries, dict(fetch.entries)
    yield from fetch.read_in_steps()
    fetch.entries = marked
    return finish(fetch, request, call)


def begin(broker: Broker, request: FetchRequest, call: Call) -> Fetch | FetchResponse:
    by_id = call.version >= FIRST_VERSION_WITH_IDS
    now_ms = call.now.monotonic_ms
    follower = None
    if request.replica_id >= 0 or request.replica_state is not None:
        follower = follower_of(request)
    if follower is not None and not may_on_cluster(broker, call, Operation.CLUSTER_ACTION):
        return refuse_replica(request)
    meter = call.meter
    # Quotas are for clients. Replication has its own throttle (`is_held_back`), since a follower
    # that is held back leaves the ISR.
    if follower is not None and meter is not None:
        meter.exempt()
        meter = None
    session: FetchSession | None = None
    incremental = False
    # A client without a session mostly sends epoch -1 and id 0: nothing to find, close or keep.
    if request.session_epoch != FINAL_EPOCH or request.session_id != 0:
        try:
            session, incremental = find_session(
                broker, request, by_id=by_id, is_followers=follower is not None, now_ms=now_ms
            )
        except KafkaError as refusal:
            return FetchResponse(error_code=refusal.code)
    # With a session only marked partitions are read. A partition is marked when the request names
    # it, when something is appended to it, and when rights change; a partition without a mark has
    # nothing new, and an incremental answer leaves it out (KIP-227).
    entries = named_entries(request, session, by_id)
    if session is not None:
        # Too many partitions in all sessions. The answer is still complete, but without a session;
        # a client that continues one must begin again, since its answer would name only changes.
        if not broker.fetch_sessions.has_room_for(session):
            broker.fetch_sessions.close(session.id)
            if incremental:
                return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
            session, entries = None, named_entries(request, None, by_id)
        elif broker.authorizer is not None:
            session.rights_are_of(broker.authorizer.changes)
        if follower is not None and session is not None and broker.confirmed_reads.pending:
            broker.confirmed_reads.fetched(session, follower[0], now_ms)
        if incremental and session is not None and not session.entries:
            broker.fetch_sessions.close(session.id)  # all partitions were removed
            session, incremental = None, False
    return Fetch(
        broker,
        request,
        session,
        entries,
        by_id=by_id,
        incremental=incremental,
        meter=meter,
        peer=call.session,
        follower=follower,
        reads_followers=follower is None and call.version >= FIRST_VERSION_WITH_RACKS,
    )


def follower_of(request: FetchRequest) -> tuple[int, int] | None:
    """Returns the id and broker epoch (-1: unknown) of the follower that fetches; None for a
    consumer."""
    state = request.replica_state
    if state is not None and state.replica_id >= 0:
        return state.replica_id, state.replica_epoch
    return (request.replica_id, -1) if request.replica_id >= 0 else None


def finish(fetch: Fetch, request: FetchRequest, call: Call) -> FetchResponse | WaitingRequest:
    if fetch.is_enough() or request.max_wait_ms <= 0:
        return fetch.response()
    session = fetch.session
    return WaitingRequest(
        fetch.attempt,
        deadline_ms=call.now.monotonic_ms + request.max_wait_ms,
        hangs_on=[session] if session is not None else fetch.leaders(),
        mutes=True,
    )


def find_session(
    broker: Broker, request: FetchRequest, *, by_id: bool, is_followers: bool, now_ms: int
) -> tuple[FetchSession | None, bool]:
    """Returns the session of this request, and whether its answer is incremental."""
    epoch = request.session_epoch
    sessions = broker.fetch_sessions
    if epoch not in (FINAL_EPOCH, INITIAL_EPOCH):
        return sessions.resume(request.session_id, epoch, by_id=by_id, now_ms=now_ms), True
    if request.session_id != 0:
        sessions.close(request.session_id)
    if epoch == INITIAL_EPOCH:
        return sessions.open(by_id=by_id, now_ms=now_ms, is_followers=is_followers), False
    return None, False


def named_entries(
    request: FetchRequest, session: FetchSession | None, by_id: bool
) -> dict[Key, Entry]:
    """Returns the partitions to read; the request's are added to the session if there is one."""
    known = session.entries if session is not None else {}
    entries: dict[Key, Entry] = {}
    for topic in request.topics:
        name_or_id = topic.topic_id if by_id else topic.topic
        for wanted in topic.partitions:
            key = (name_or_id, wanted.partition)
            entry = known.get(key) or Entry(topic.topic, topic.topic_id, wanted.partition)
            entry.update(wanted)
            entries[key] = entry
            if session is not None:
                session.add(key, entry)
    if session is None:
        return entries
    for forgotten in request.forgotten_topics_data:
        for index in forgotten.partitions:
            session.forget((forgotten.topic_id if by_id else forgotten.topic, index))
    return session.marked


class Fetch:
    """A Fetch request until it is answered: read, and read again after a change."""

    __slots__ = (
        "broker",
        "session",
        "entries",
        "by_id",
        "incremental",
        "meter",
        "peer",
        "min_bytes",
        "max_bytes",
        "committed",
        "answers",
        "total_bytes",
        "has_error",
        "follower",
        "reads_followers",
        "rack",
    )

    def __init__(
        self,
        broker: Broker,
        request: FetchRequest,
        session: FetchSession | None,
        entries: dict[Key, Entry],
        *,
        by_id: bool,
        incremental: bool,
        meter: Meter | None,
        peer: Peer,
        follower: tuple[int, int] | None = None,
        reads_followers: bool = False,
    ) -> None:
        self.broker = broker
        self.follower = follower
        self.reads_followers = reads_followers  # may also read from a replica that does not lead
        # The rack of a consumer that is sent to a replica near it; "": it reads from this broker.
        self.rack = request.rack_id if reads_followers and broker.selects_by_rack else ""
        self.session = session
        self.entries = entries
        self.by_id = by_id
        self.incremental = incremental
        self.meter = meter
        self.peer = peer
        # min_bytes must not exceed max_bytes, or an answer that is as large as allowed would still
        # wait.
        self.max_bytes = min(request.max_bytes, broker.fetch_max_bytes)
        if meter is not None:
            self.max_bytes = min(self.max_bytes, meter.most_fetch_bytes())
        self.min_bytes = min(request.min_bytes, self.max_bytes)
        self.committed = request.isolation_level == READ_COMMITTED
        self.answers: list[tuple[Entry, PartitionData]] = []
        self.total_bytes = 0
        self.has_error = False

    def attempt(self, expired: bool) -> FetchResponse | None:
        self.read()
        return self.response() if expired or self.is_enough() else None

    def is_enough(self) -> bool:
        # An error is answered at once: the client has to act on it (find the new leader, reset its
        # offset), and waiting would only delay that.
        if self.total_bytes >= self.min_bytes or self.has_error or not self.entries_in_all():
            return True
        return self.follower is not None and self.is_enough_for(self.follower[0])

    def is_enough_for(self, follower: int) -> bool:
        """Returns whether a follower's fetch without records is answered now."""
        broker, reads = self.broker, self.broker.confirmed_reads
        if reads.pending and self.session is not None and reads.is_hurried(self.session, follower):
            return True
        return broker.tells_followers_at_once and self.has_news()

    def has_news(self) -> bool:
        return any(self.says_something_new(*answered) for answered in self.answers)

    def entries_in_all(self) -> dict[Key, Entry]:
        return self.session.entries if self.session is not None else self.entries

    def leaders(self) -> list[Waitable]:
        """The partitions that wake a fetch without a session. Followers wait for appends, consumers
        for the high watermark."""
        found = [entry.leader for entry in self.entries.values() if entry.leader is not None]
        if self.follower is None:
            return list(found)
        return [leader.leading for leader in found if leader.leading is not None]

    def read(self) -> None:
        for _ in self.read_in_steps():
            pass

    def read_in_steps(self) -> Generator[None, None, None]:
        # Read everything again from the beginning: what was found in an earlier attempt may be gone
        # or may have grown.
        self.answers = []
        self.total_bytes = 0
        self.has_error = False
        idle: list[Key] = []
        for key, entry in self.entries.items():
            yield
            answer = self.read_one(key, entry)
            if answer.error_code != NONE or answer.diverging_epoch is not None:
                self.has_error = True
            elif not answer.records:
                assert entry.leader is not None
                if answer.preferred_read_replica >= 0:
                    self.has_error = True  # answered at once
                elif self.incremental and not self.says_something_new(entry, answer):
                    # A partition passed over because the answer was full stays marked.
                    # The reader has everything it may read here, so nothing is left to find until
                    # the partition changes: its mark can go.
                    if entry.offset >= self.end_for(entry.leader, answer):
                        idle.append(key)
                    continue
            self.answers.append((entry, answer))
        for key in idle:
            yield
            del self.entries[key]

    def end_for(self, leader: PartitionLeader, answer: PartitionData) -> int:
        """Returns the offset up to which this reader may read."""
        if self.follower is not None:
            return leader.log.end_offset
        return answer.last_stable_offset if self.committed else answer.high_watermark

    def read_one(self, key: Key, entry: Entry) -> PartitionData:
        if self.follower is not None:
            return self.replicate_one(key, entry, *self.follower)
        leader: PartitionLeader | None = None
        try:
            leader = self.find_leader(key, entry)
            # KIP-320: a consumer with an older or newer leader epoch must refresh its metadata
            # before it reads, or it could miss a truncation.
            leader.require_epoch(entry.leader_epoch)
            if entry.last_fetched_epoch >= 0:
                diverging = leader.find_divergence(entry.last_fetched_epoch, entry.offset)
                if diverging is not None:
                    return without_records(entry, leader, diverging=diverging)
            if self.rack and (near := self.replica_near(leader, entry)) is not None:
                return without_records(entry, leader, preferred=near)
            # KIP-74: the limit is for the whole answer, partitions are filled in order, and the
            # first batch of the first partition with records is sent whatever its size.
            left = self.max_bytes - self.total_bytes
            first = self.total_bytes == 0
            records = None
            if first or left > 0:
                records = leader.read(
                    entry.offset,
                    min(entry.max_bytes, left),
                    committed=self.committed,
                    at_least_one=first,
                )
        except KafkaError as refusal:
            if leader is None:
                return refused(entry, refusal.code)
            now_ms = self.broker.now.monotonic_ms
            return refused(entry, code_for_reader(leader, refusal, now_ms))
        if records is not None:
            self.total_bytes += records.length
        # High watermark and last stable offset are read after the records, so they may be newer
        # than them, never older.
        answer = PartitionData(
            entry.index,
            NONE,
            leader.high_watermark,
            leader.last_stable_offset(),
            leader.log.start_offset,
        )
        answer.aborted_transactions = (
            aborted_transactions(leader, entry.offset, records) if self.committed else None
        )
        answer.records = NO_RECORDS if records is None else records
        return answer

    def replicate_one(self, key: Key, entry: Entry, follower: int, epoch: int) -> PartitionData:
        position = Position(
            entry.offset, entry.leader_epoch, entry.last_fetched_epoch, entry.start_offset
        )
        left = self.max_bytes - self.total_bytes
        first = self.total_bytes == 0
        try:
            leader = self.find_leader(key, entry)
            # A throttled follower gets no records, but its fetch still counts as progress.
            if self.is_held_back(leader, follower):
                left, first = 0, False
            found = leader.replicate(
                follower,
                epoch,
                position,
                max(min(entry.max_bytes, left), 0),
                at_least_one=first,
                now_ms=self.broker.now.monotonic_ms,
            )
        except KafkaError as refusal:
            return refused(entry, refusal.code)
        answer = without_records(entry, leader, diverging=found.diverging)
        if found.records is not None:
            self.total_bytes += found.records.length
            answer.records = found.records
        return answer

    def is_held_back(self, leader: PartitionLeader, follower: int) -> bool:
        """Whether replication to this follower is throttled now; never for an in-sync replica."""
        quota = self.broker.replica_fetching.quotas.leader
        if not quota.topics or not quota.is_throttled(leader.topic, leader.index):
            return False
        in_sync = leader.leading is not None and follower in leader.leading.isr
        return not in_sync and quota.is_exceeded(self.broker.now.monotonic_ms)

    def count_throttled(self) -> None:
        quota = self.broker.replica_fetching.quotas.leader
        for entry, answer in self.answers:
            if answer.records and quota.is_throttled(entry.topic, entry.index):
                quota.record(len(answer.records), self.broker.now.monotonic_ms)

    def find_leader(self, key: Key, entry: Entry) -> PartitionLeader:
        """Returns the replica to read from. Checks the right to read each time, as it may change
        meanwhile."""
        topics = self.broker.topics
        if not self.by_id:
            if self.broker.authorizer is not None:
                self.require_readable(entry.topic)
            topic = topics.by_name.get(entry.topic)
            if topic is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        else:
            topic = topics.by_id.get(entry.topic_id)
            if topic is None:
                raise KafkaError(self.fate_of(entry))
            self.require_readable(topic.name)
            entry.topic = topic.name
        # Looked up for each attempt: while the fetch waited, the partition may have got another
        # leader, or the topic may have been deleted and created again.
        leader = topic.replica(entry.index)
        if leader.led_since < 0 and not self.reads_followers:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if self.session is not None:
            self.session.attach(key, entry, leader)
        else:
            entry.leader = leader
        return leader

    def replica_near(self, leader: PartitionLeader, entry: Entry) -> int | None:
        """Returns the id of another replica, in the rack of the consumer, from which it is to
        read."""
        if leader.leading is None:
            return None
        return preferred_read_replica(leader.leading, self.rack, entry.offset)

    def require_readable(self, topic: str) -> None:
        authorizer = self.broker.authorizer
        if self.follower is not None:
            return  # it has the right to act as a broker
        if authorizer is not None and not authorizer.allows(
            self.peer, Operation.READ, TOPIC, topic
        ):
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)

    def fate_of(self, entry: Entry) -> ErrorCode:
        """Why a topic id is unknown: never seen, deleted, or created again with the same name."""
        if not entry.topic:
            return ErrorCode.UNKNOWN_TOPIC_ID
        if entry.topic in self.broker.topics.by_name:
            return ErrorCode.INCONSISTENT_TOPIC_ID
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    @staticmethod
    def says_something_new(entry: Entry, answer: PartitionData) -> bool:
        return (
            answer.high_watermark != entry.seen_high_watermark
            or answer.log_start_offset != entry.seen_start_offset
        )

    def response(self) -> FetchResponse:
        if self.meter is not None and self.meter.fetched(self.total_bytes):
            return self.without_records()
        response = FetchResponse(0, NONE, self.session.id if self.session is not None else 0)
        response.responses = group_by_topic(self.answers)
        self.broker.bytes_out += self.total_bytes
        if self.follower is not None and self.broker.replica_fetching.quotas.leader.topics:
            self.count_throttled()
        if self.session is not None:
            self.remember()
            if self.follower is not None:
                self.broker.confirmed_reads.answered(self.session)
        return response

    def without_records(self) -> FetchResponse:
        """The answer of a throttled client: no records, and the session remembers nothing."""
        if self.session is None or self.incremental:
            return FetchResponse(0, NONE, self.session.id if self.session is not None else 0)
        self.broker.fetch_sessions.close(self.session.id)  # it begins with an answer in full
        return FetchResponse()

    def remember(self) -> None:
        """Record what the client now knows. Partitions with records move to the end, so that the
        next answer begins with others."""
        assert self.session is not None
        for entry, answer in self.answers:
            entry.seen_high_watermark = answer.high_watermark
            entry.seen_start_offset = answer.log_start_offset
            if answer.records:
                key = (entry.topic_id if self.by_id else entry.topic, entry.index)
                self.session.marked[key] = self.session.marked.pop(key, entry)


API = Api(messages=messages, handle=handle, versions=range(4, 19), handle_large=handle_large)
