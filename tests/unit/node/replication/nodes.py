"""A controller that never fails, and brokers that do; each takes messages and sends messages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from headrace.environment import Now
from headrace.node.controller.members import brokers
from headrace.node.controller.members.broker_heartbeats import BrokerSessions
from headrace.node.controller.members.broker_registrations import register
from headrace.node.controller.partitions import leader_balance
from headrace.node.controller.partitions.in_sync_changes import alter_partition
from headrace.node.controller.partitions.placement import new_partitions, place
from headrace.node.controller.partitions.reassignments import Rules, alter_reassignments
from headrace.node.controller.partitions.replica_directories import assign_replicas
from headrace.node.metadata.features import SUPPORTED_FEATURES
from headrace.node.metadata.image import MetadataImage, PartitionImage
from headrace.node.replication.partition_follower import Position
from headrace.node.replication.replica import Replica
from headrace.node.replication.replica_fetcher import ReplicaFetcher
from headrace.node.replication.this_broker import ReplicationSettings, ThisBroker
from headrace.node.simulator.disk import VirtualDisk
from headrace.node.storage.durability.open_files import OpenFiles
from headrace.node.storage.durability.unwritten import Unwritten
from headrace.node.storage.log_settings import LogSettings
from headrace.node.storage.partition_log import PartitionLog
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from headrace.wire.protocol.messages.alter_partition import AlterPartitionRequest
from headrace.wire.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from headrace.wire.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    RequestDirectoryData,
    RequestPartitionData,
    RequestTopicData,
)
from headrace.wire.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from headrace.wire.protocol.messages.broker_registration import BrokerRegistrationRequest, Feature
from headrace.wire.protocol.messages.config_record import ConfigRecord
from headrace.wire.protocol.messages.feature_level_record import FeatureLevelRecord
from headrace.wire.protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from headrace.wire.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from headrace.wire.protocol.messages.topic_record import TopicRecord
from tests.unit.node.replication.checkers import Checkers, raw
from tests.unit.node.replication.weather import CONTROLLER, Weather

TOPIC, TOPIC_ID = "orders", b"orders".ljust(16, b"-")
CLUSTER = "world"
MIN_IN_SYNC = 2
SESSION_MS, HEARTBEAT_MS, LAG_MS, TICK_MS = 900, 150, 500, 20
WALL_MS = 1_700_000_000_000
ANSWER_WITHIN_MS, PRODUCE_WITHIN_MS = 400, 900


class Answer(NamedTuple):
    code: int = 0
    value: Any = None


class Node:
    """One start of a process: messages reach it while it is alive; paused, it takes them later."""

    def __init__(self, weather: Weather, node_id: int) -> None:
        self.weather = weather
        self.id = node_id
        self.alive = True
        self.paused_until_ms = 0

    def turn(self, event: Callable[[], None]) -> None:
        if not self.alive:
            return
        if self.weather.now_ms < self.paused_until_ms:
            self.weather.at(self.paused_until_ms - self.weather.now_ms, lambda: self.turn(event))
            return
        event()
        self.end_turn()

    def end_turn(self) -> None:
        """What is done after each message."""

    def every(self, interval_ms: int, event: Callable[[], None]) -> None:
        def again() -> None:
            self.turn(event)
            if self.alive:
                self.weather.at(interval_ms, again)

        self.weather.at(self.weather.random.randint(1, interval_ms), again)

    def call(
        self,
        find: Callable[[], Node | None],
        target: int,
        api: str,
        request: Any,
        then: Callable[[Answer | None], None],
        within_ms: int = ANSWER_WITHIN_MS,
    ) -> None:
        """`then` is told the answer, or None when none came in time; once."""
        weather = self.weather
        is_open = True

        def finish(answer: Answer | None) -> None:
            nonlocal is_open
            if is_open:
                is_open = False
                then(answer)

        def reply(answer: Answer) -> None:
            weather.send(target, self.id, lambda: self.turn(lambda: finish(answer)))

        def deliver() -> None:
            node = find()
            if node is not None:
                node.turn(lambda: node.take(api, request, reply))

        weather.send(self.id, target, deliver)
        weather.at(within_ms, lambda: self.turn(lambda: finish(None)))

    def take(self, api: str, request: Any, reply: Callable[[Answer], None]) -> None:
        try:
            reply(Answer(0, getattr(self, f"on_{api}")(request)))
        except KafkaError as refusal:
            reply(Answer(refusal.code))


class ControllerNode(Node):
    """Decides by the controller's own functions; what it writes is committed at once."""

    def __init__(self, weather: Weather) -> None:
        super().__init__(weather, CONTROLLER)
        self.sessions = BrokerSessions(SESSION_MS)
        self.image = MetadataImage(cluster_id=CLUSTER)
        self.commit(
            [
                FeatureLevelRecord("metadata.version", 30),
                FeatureLevelRecord("eligible.leader.replicas.version", 1),
            ]
        )
        self.every(50, self.tick)
        self.every(200, self.balance)

    def commit(self, records: list[Any]) -> None:
        if records:
            self.image = self.image.apply(
                records, offset=self.image.offset + len(records), epoch=1, wall_ms=WALL_MS
            )

    def create_topic(self, partitions: int, replicas: int = 3) -> None:
        self.create_topic_on(
            place(self.image.brokers, partitions=partitions, replication_factor=replicas, seed=1)
        )

    def create_topic_on(self, placed: list[list[int]]) -> None:
        self.commit(
            [
                TopicRecord(TOPIC, TOPIC_ID),
                ConfigRecord(2, TOPIC, "min.insync.replicas", str(MIN_IN_SYNC)),
                *new_partitions(self.image.brokers, TOPIC_ID, 0, placed),
            ]
        )

    def reassign(self, targets: list[list[int]]) -> None:
        """To these replicas, as kafka-reassign-partitions asks for it."""
        topic = ReassignableTopic(
            TOPIC, [ReassignablePartition(index, target) for index, target in enumerate(targets)]
        )
        request = AlterPartitionReassignmentsRequest(topics=[topic])
        decision = alter_reassignments(self.image, request, Rules(MIN_IN_SYNC))
        [answer] = decision.response.responses
        assert [partition.error_code for partition in answer.partitions] == [0] * len(targets)
        self.commit(decision.records)

    def partitions(self) -> tuple[PartitionImage, ...]:
        return self.image.topics[TOPIC].partitions

    def tick(self) -> None:
        expired = self.sessions.expired(self.image, self.weather.now_ms)
        if expired is not None:
            self.weather.counts["brokers fenced"] += 1
            self.commit(list(brokers.fence(self.image, expired, MIN_IN_SYNC)))

    def balance(self) -> None:
        self.commit(leader_balance.balance_leaders(self.image, MIN_IN_SYNC))

    def on_register(self, request: BrokerRegistrationRequest) -> Any:
        now_ms = self.weather.now_ms
        existing = self.image.brokers.get(request.broker_id)
        decision = register(
            self.image,
            request,
            4,
            epoch=self.image.offset + 1,
            has_session=self.sessions.is_alive(existing, now_ms),
            min_in_sync_replicas=MIN_IN_SYNC,
        )
        self.commit(decision.records)
        self.sessions.registered(request.broker_id, decision.response.broker_epoch, now_ms)
        return decision.response

    def on_heartbeat(self, request: BrokerHeartbeatRequest) -> Any:
        decision = self.sessions.heartbeat(
            self.image,
            request,
            end_offset=self.image.offset + 1,
            min_in_sync_replicas=MIN_IN_SYNC,
            now_ms=self.weather.now_ms,
        )
        self.commit(decision.records)
        return decision.response

    def on_alter_partition(self, request: AlterPartitionRequest) -> Any:
        decision = alter_partition(self.image, request, 3, MIN_IN_SYNC)
        self.weather.counts["ISR changes"] += len(decision.records)
        self.commit(decision.records)
        return decision.response

    def on_assign(self, request: AssignReplicasToDirsRequest) -> Any:
        decision = assign_replicas(self.image, request, MIN_IN_SYNC)
        self.commit(decision.records)
        return decision.response

    def on_metadata(self, request: None) -> MetadataImage:
        return self.image


@dataclass(slots=True)
class Store:
    """What a broker leaves behind when it stops: its disk."""

    broker_id: int
    directory: bytes
    disk: VirtualDisk = field(default_factory=lambda: VirtualDisk(Now(0, WALL_MS)))
    clean_epoch: int = -1  # said by the last stop, if it was a clean one
    high_watermarks: dict[int, int] = field(default_factory=dict)  # checkpoints, flushed
    recovery_points: dict[int, int] = field(default_factory=dict)
    starts: int = 0


@dataclass(slots=True)
class Wait:
    replica: Replica[PartitionLog]
    base_offset: int
    end_offset: int
    led_since: int
    deadline_ms: int
    reply: Callable[[Answer], None]


@dataclass(slots=True)
class ServedSession:
    next_epoch: int = 1
    positions: dict[int, Position] = field(default_factory=dict)
    told: dict[int, int] = field(default_factory=dict)  # high watermarks


class BrokerNode(Node):
    def __init__(
        self,
        weather: Weather,
        store: Store,
        find: Callable[[int], Node | None],
        checkers: Checkers,
        *,
        durable: bool = False,
    ) -> None:
        super().__init__(weather, store.broker_id)
        self.store = store
        self.find = find
        self.checkers = checkers
        self.durable = durable
        store.starts += 1
        self.incarnation = bytes([store.broker_id, store.starts]).ljust(16, b"i")
        self.previous_epoch, store.clean_epoch = store.clean_epoch, -1
        self.broker = ThisBroker(
            store.broker_id,
            settings=ReplicationSettings(lag_time_max_ms=LAG_MS, fetch_backoff_ms=100),
        )
        self.image = MetadataImage(cluster_id=CLUSTER)
        self.replicas: dict[int, Replica[PartitionLog]] = {}
        self.fetchers: dict[int, ReplicaFetcher] = {}
        self.sessions: dict[int, ServedSession] = {}
        self.waits: list[Wait] = []
        self.shown: dict[int, int] = {}
        self.unwritten = Unwritten()
        self.open_files = OpenFiles(store.disk)
        self.stopping = False
        self._registers()
        self.every(HEARTBEAT_MS, self._heartbeat)
        self.every(40, self._ask_for_metadata)
        self.every(TICK_MS, self._tick)
        self.every(LAG_MS // 2, self._look_for_lag)
        self.every(weather.random.randint(200, 600), self._flush)

    # Membership

    def _controller(self, api: str, request: Any, then: Callable[[Answer | None], None]) -> None:
        self.call(lambda: self.find(CONTROLLER), CONTROLLER, api, request, then)

    def _registers(self) -> None:
        request = BrokerRegistrationRequest(
            broker_id=self.id,
            cluster_id=CLUSTER,
            incarnation_id=self.incarnation,
            features=[Feature(name, *levels) for name, levels in SUPPORTED_FEATURES.items()],
            rack=None,
            log_dirs=[self.store.directory],
            previous_broker_epoch=self.previous_epoch,
        )

        def then(answer: Answer | None) -> None:
            if answer is not None and answer.code == 0:
                self.broker.epoch = answer.value.broker_epoch
            else:
                self.weather.at(100, lambda: self.turn(self._registers))

        self._controller("register", request, then)

    def _heartbeat(self) -> None:
        if self.broker.epoch < 0:
            return
        request = BrokerHeartbeatRequest(
            self.id, self.broker.epoch, self.image.offset, want_shut_down=self.stopping
        )

        def then(answer: Answer | None) -> None:
            if answer is not None and answer.code == 0 and answer.value.should_shut_down:
                self.close()

        self._controller("heartbeat", request, then)

    def _ask_for_metadata(self) -> None:
        def then(answer: Answer | None) -> None:
            if answer is not None:
                self.follow(answer.value)

        self._controller("metadata", None, then)

    def follow(self, image: MetadataImage) -> None:
        """Nothing is believed before the metadata have this start's own registration."""
        known = image.brokers.get(self.id)
        if image.offset <= self.image.offset or known is None or known.epoch != self.broker.epoch:
            return
        self.image = image
        self.broker.brokers = image.brokers
        topic = image.topics.get(TOPIC)
        for index, partition in enumerate(topic.partitions if topic is not None else ()):
            if self.id in partition.replicas:
                self._follow_partition(index, partition)

    def _follow_partition(self, index: int, partition: PartitionImage) -> None:
        replica = self.replicas.get(index) or self._open(index)
        led = replica.leading is not None
        replica.follow(partition, self.weather.now_ms)
        if replica.leading is not None:
            self.checkers.leads(index, partition.leader_epoch, self.id)
            self.weather.counts["elections"] += not led
        for fetcher in self.fetchers.values():
            fetcher.remove(TOPIC_ID, index)
        if replica.following is not None and partition.leader >= 0:
            leader = partition.leader
            fetcher = self.fetchers.setdefault(leader, ReplicaFetcher(self.broker, leader))
            fetcher.add(replica)
        if partition.directories[partition.replicas.index(self.id)] != self.store.directory:
            self._tell_directory(index)

    def _tell_directory(self, index: int) -> None:
        topic = RequestTopicData(TOPIC_ID, [RequestPartitionData(index)])
        request = AssignReplicasToDirsRequest(
            self.id, self.broker.epoch, [RequestDirectoryData(self.store.directory, [topic])]
        )
        self._controller("assign", request, lambda answer: None)

    def _open(self, index: int) -> Replica[PartitionLog]:
        log = PartitionLog.open(
            self.open_files,
            f"/{TOPIC}-{index}",
            LogSettings(),
            now_wall_ms=WALL_MS,
            recovery_point=self.store.recovery_points.get(index, 0),
            unwritten=self.unwritten,
            wants_flush=[],
        )
        replica = Replica(
            TOPIC,
            TOPIC_ID,
            index,
            log,
            -1,
            commits_at_once=not self.durable,
            on_progress=self.progressed,
            broker=self.broker,
            high_watermark=self.store.high_watermarks.get(index, 0),
        )
        replica.require_in_sync(MIN_IN_SYNC)
        self.replicas[index] = replica
        return replica

    def progressed(self, replica: Replica[Any]) -> None:
        start = self.shown.get(replica.index, 0)
        end = replica.high_watermark
        records = raw(replica, start, end)
        self.checkers.shown(replica.index, start, records, end, f"broker {self.id}")
        self.shown[replica.index] = max(start, end)

    # What is done by time

    def _tick(self) -> None:
        now_ms = self.weather.now_ms
        if self.durable:
            self._flush()
        for leader, fetcher in self.fetchers.items():
            request = fetcher.next_request(now_ms, WALL_MS)
            if request is not None:
                self._fetch(leader, fetcher, request)
        changes = self.broker.isr_changes
        altered = changes.next_request(self.id, self.broker.epoch, now_ms)
        if altered is not None:

            def then(answer: Answer | None) -> None:
                said = answer.value if answer is not None and answer.code == 0 else None
                changes.answered(said, self.weather.now_ms)

            self._controller("alter_partition", altered, then)

    def _fetch(
        self, leader: int, fetcher: ReplicaFetcher, request: FetchRequest | ListOffsetsRequest
    ) -> None:
        is_fetch = isinstance(request, FetchRequest)

        def then(answer: Answer | None) -> None:
            now_ms = self.weather.now_ms
            if answer is None or answer.code:
                fetcher.failed(now_ms)
            elif is_fetch:
                cut = [p for t in answer.value.responses for p in t.partitions if p.diverging_epoch]
                self.weather.counts["truncations"] += len(cut)
                fetcher.answered(answer.value, now_ms, WALL_MS)
            else:
                fetcher.bounds_answered(answer.value, now_ms, WALL_MS)

        api = "fetch" if is_fetch else "list_offsets"
        self.call(lambda: self.find(leader), leader, api, request, then)

    def _look_for_lag(self) -> None:
        for replica in self.replicas.values():
            replica.tick(self.weather.now_ms)

    def _flush(self) -> None:
        for replica in self.replicas.values():
            flush = replica.flush_target()
            if flush is not None:
                flush.run(self.store.disk)
                replica.flushed(flush)
        self._checkpoint()

    def _checkpoint(self) -> None:
        for index, replica in self.replicas.items():
            self.store.high_watermarks[index] = replica.high_watermark
            self.store.recovery_points[index] = replica.log.recovery_point

    def end_turn(self) -> None:
        for log in self.unwritten:
            log.write_pending()
        self.unwritten.clear()
        self.unwritten.borrowing.clear()
        now_ms = self.weather.now_ms
        still = []
        for wait in self.waits:
            code = wait.replica.outcome_of(wait.end_offset, wait.led_since)
            if code is None and now_ms < wait.deadline_ms:
                still.append(wait)
                continue
            code = ErrorCode.REQUEST_TIMED_OUT if code is None else code
            wait.reply(Answer(code, wait.base_offset))
        self.waits = still

    # Ends

    def close(self) -> None:
        for replica in self.replicas.values():
            replica.log.close().run(self.store.disk)
        self._checkpoint()
        for index, replica in self.replicas.items():
            self.store.recovery_points[index] = replica.log.end_offset
        self.store.clean_epoch = self.broker.epoch
        self.alive = False
        self.weather.counts["clean stops"] += 1

    def kill(self, *, loses: bool) -> None:
        self.alive = False
        logs = [replica.log for replica in self.replicas.values()]
        if loses:
            unflushed = any(log.recovery_point < log.end_offset for log in logs)
            self.weather.counts["crashes with unflushed bytes"] += unflushed
            now = Now(self.weather.now_ms, WALL_MS)
            self.store.disk = self.store.disk.power_cut(self.weather.random, now)
        for log in logs:
            log.let_go()

    # What others ask for

    def take(self, api: str, request: Any, reply: Callable[[Answer], None]) -> None:
        if api == "produce":
            self._take_produce(request, reply)
        else:
            super().take(api, request, reply)

    def _take_produce(self, request: Any, reply: Callable[[Answer], None]) -> None:
        index, batch, count, acks_all = request
        replica = self.replicas.get(index)
        try:
            if replica is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            records = memoryview(bytearray(batch))
            base_offset, _ = replica.append(records, WALL_MS, acks_all=acks_all)
        except KafkaError as refusal:
            reply(Answer(refusal.code))
            return
        replica.advance()
        if not acks_all:
            reply(Answer(0, base_offset))
            return
        deadline_ms = self.weather.now_ms + PRODUCE_WITHIN_MS
        end_offset = base_offset + count
        self.waits.append(
            Wait(replica, base_offset, end_offset, replica.led_since, deadline_ms, reply)
        )

    def on_consume(self, request: tuple[int, int, int]) -> tuple[bytes, int | None]:
        """Records from an offset on, and where the log ends for readers, if that can be said."""
        index, epoch, offset = request
        replica = self.replicas.get(index)
        if replica is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        replica.require_epoch(epoch)
        replica.require_leading()
        found = replica.read(offset, 1 << 20, committed=True, at_least_one=True)
        records = b"" if found is None else found.file.read(found.length, found.position)
        try:
            return records, replica.latest_offset(committed=True)
        except KafkaError:
            return records, None

    def on_fetch(self, request: FetchRequest) -> FetchResponse:
        assert request.replica_state is not None
        if request.session_epoch == 0:
            session_id = len(self.sessions) + 1
            session = self.sessions[session_id] = ServedSession()
        else:
            session_id = request.session_id
            found = self.sessions.get(session_id)
            if found is None:
                return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
            session = found
            if session.next_epoch != request.session_epoch:
                return FetchResponse(error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
            session.next_epoch += 1
        for forgotten in request.forgotten_topics_data:
            for index in forgotten.partitions:
                session.positions.pop(index, None)
        for topic in request.topics:
            for part in topic.partitions:
                session.positions[part.partition] = Position(
                    part.fetch_offset,
                    part.current_leader_epoch,
                    part.last_fetched_epoch,
                    part.log_start_offset,
                )
        state = request.replica_state
        answers = []
        for index, position in session.positions.items():
            answer = self._replicate(state.replica_id, state.replica_epoch, index, position)
            is_news = answer.error_code or answer.diverging_epoch or answer.records
            if is_news or session.told.get(index) != answer.high_watermark:
                session.told[index] = answer.high_watermark
                answers.append(answer)
        return FetchResponse(
            session_id=session_id,
            responses=[FetchableTopicResponse(topic_id=TOPIC_ID, partitions=answers)],
        )

    def _replicate(
        self, follower: int, broker_epoch: int, index: int, position: Position
    ) -> PartitionData:
        replica = self.replicas.get(index)
        try:
            if replica is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            # Small on purpose: batches are cut in the middle.
            max_bytes = self.weather.random.choice((150, 400, 4_000))
            found = replica.replicate(
                follower,
                broker_epoch,
                position,
                max_bytes,
                at_least_one=True,
                now_ms=self.weather.now_ms,
            )
        except KafkaError as refusal:
            return PartitionData(index, refusal.code, -1, -1, -1)
        answer = PartitionData(index, 0, replica.high_watermark, -1, replica.log.start_offset)
        if found.diverging is not None:
            answer.diverging_epoch = EpochEndOffset(*found.diverging)
        elif found.records is not None:
            answer.records = found.records.file.read(found.records.length, found.records.position)
        return answer

    def on_list_offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        answers = []
        for part in request.topics[0].partitions:
            answer = ListOffsetsPartitionResponse(part.partition_index)
            replica = self.replicas.get(part.partition_index)
            if replica is None or replica.leading is None:
                answer.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            elif part.current_leader_epoch != replica.epoch:
                answer.error_code = ErrorCode.FENCED_LEADER_EPOCH
            else:
                log = replica.log
                answer.offset = log.end_offset if part.timestamp == -1 else log.start_offset
            answers.append(answer)
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(TOPIC, answers)])
