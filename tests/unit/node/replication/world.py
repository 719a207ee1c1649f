"""Three brokers, a controller, clients and faults on virtual time: one seed is one run.

The promise under test: with three replicas and `min.insync.replicas` 2, any one broker at a time
may be killed and lose its unflushed bytes or its whole disk, any may be paused, cut off or stopped,
and nothing that was acknowledged is lost. A broker that was killed counts until it is in sync
again: the controller cannot know what it has lost, and trusts it in nothing until then.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from headrace.environment import Now
from headrace.node.metadata.image import MetadataImage
from headrace.node.simulator.disk import VirtualDisk
from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.record_batch import Record, build
from tests.unit.node.replication.checkers import CARELESS, Checkers, Violation, values_in
from tests.unit.node.replication.nodes import (
    CLUSTER,
    TOPIC,
    WALL_MS,
    Answer,
    BrokerNode,
    ControllerNode,
    Node,
    Store,
)
from tests.unit.node.replication.weather import CONTROLLER, Weather

BROKERS = (1, 2, 3)
PARTITIONS = 2
FAULTS_FROM_MS, FAULTS_MS, CALM_MS = 2_000, 9_000, 6_000
LOST_SEQUENCES = (
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.UNKNOWN_PRODUCER_ID,
)


class Character(NamedTuple):
    """What a run is mostly about; weights of the faults in the order of `World.fault`."""

    name: str
    # power cut, kill, stop, pause, cut off, some links, deaf to the controller, mended, weather,
    # all three in turn
    weights: tuple[int, ...]
    pace_ms: tuple[int, int] = (150, 1_200)
    storm: bool = False  # messages are lost, late and repeated from the first fault on


CHARACTERS = (
    Character("mixed", (2, 1, 1, 1, 1, 1, 1, 1, 1, 0)),
    Character("storm", (1, 1, 1, 3, 1, 1, 4, 3, 0, 0), storm=True),
    Character("one after the other", (2, 1, 1, 1, 1, 1, 1, 2, 0, 3), (700, 2_000)),
)


class Client(Node):
    """Knows the cluster by what it was told last."""

    def __init__(self, world: World, node_id: int) -> None:
        super().__init__(world.weather, node_id)
        self.world = world
        self.image = MetadataImage(cluster_id=CLUSTER)

    def refresh(self) -> None:
        def then(answer: Answer | None) -> None:
            if answer is not None and answer.value.offset > self.image.offset:
                self.image = answer.value

        self.call(lambda: self.world.find(CONTROLLER), CONTROLLER, "metadata", None, then)

    def leader(self, index: int) -> tuple[int, int] | None:
        topic = self.image.topics.get(TOPIC)
        if topic is None or topic.partitions[index].leader < 0:
            return None
        return topic.partitions[index].leader, topic.partitions[index].leader_epoch


class Producer(Client):
    """Idempotent, acks=all, one batch in flight; tries each until it is acknowledged."""

    def __init__(self, world: World, node_id: int) -> None:
        super().__init__(world, node_id)
        self.sequences = [0] * PARTITIONS
        self.produced = 0
        self.in_flight: tuple[int, list[bytes]] | None = None
        self.weather.at(50, self.step)

    def step(self) -> None:
        if self.in_flight is None:
            if self.weather.now_ms > self.world.producers_stop_ms:
                return
            values = []
            for _ in range(self.weather.random.randint(1, 3)):
                self.produced += 1
                values.append(b"%d-%d" % (self.id, self.produced))
            self.in_flight = self.weather.random.randrange(PARTITIONS), values
        index, values = self.in_flight
        found = self.leader(index)
        if found is None:
            self.retry()
            return
        leader, _ = found
        batch = build(
            [Record(None, value, timestamp=WALL_MS) for value in values],
            producer_id=self.id,
            producer_epoch=0,
            base_sequence=self.sequences[index],
        )
        request = index, batch, len(values), True
        self.call(lambda: self.world.find(leader), leader, "produce", request, self.then, 1_200)

    def retry(self) -> None:
        self.refresh()
        self.weather.at(60, self.step)

    def then(self, answer: Answer | None) -> None:
        assert self.in_flight is not None
        index, values = self.in_flight
        if answer is not None and answer.code in LOST_SEQUENCES:
            raise Violation(f"lost acknowledged write: the sequence of producer {self.id} is gone")
        if answer is None or answer.code:
            self.weather.counts["produces refused"] += 1
            self.retry()
            return
        self.world.checkers.acknowledge(index, answer.value, values)
        self.weather.counts["records acknowledged"] += len(values)
        self.sequences[index] += len(values)
        self.in_flight = None
        self.weather.at(self.weather.random.randint(1, 40), self.step)


class CarelessProducer(Client):
    """acks=1, and never tries again: leaders that are cut off get records that nobody else has."""

    def __init__(self, world: World, node_id: int) -> None:
        super().__init__(world, node_id)
        self.produced = 0
        self.every(45, self.step)

    def step(self) -> None:
        index = self.weather.random.randrange(PARTITIONS)
        found = self.leader(index)
        if found is None or self.weather.random.random() < 0.1:
            self.refresh()
        if found is None or self.weather.now_ms > self.world.producers_stop_ms:
            return
        self.produced += 1
        value = b"%s-%d" % (CARELESS, self.produced)
        batch = build([Record(None, value, timestamp=WALL_MS)])
        request = index, batch, 1, False
        leader, _ = found
        self.call(lambda: self.world.find(leader), leader, "produce", request, lambda answer: None)


class Consumer(Client):
    def __init__(self, world: World, node_id: int) -> None:
        super().__init__(world, node_id)
        self.offsets = [0] * PARTITIONS
        self.latest = [0] * PARTITIONS
        self.every(70, self.poll)

    def poll(self) -> None:
        index = self.weather.random.randrange(PARTITIONS)
        found = self.leader(index)
        if found is None or self.weather.random.random() < 0.2:
            self.refresh()
        if found is None:
            return
        leader, epoch = found
        offset = self.offsets[index]

        def then(answer: Answer | None) -> None:
            if answer is None or answer.code:
                self.refresh()
                return
            records, latest = answer.value
            if offset != self.offsets[index]:
                return
            values = values_in(records)
            end = values[-1][0] + 1 if values else offset
            self.world.checkers.shown(index, offset, records, end, f"consumer {self.id}")
            self.offsets[index] = max(offset, end)
            if latest is not None and self.image.offset == asked_at:
                self.world.checkers.told_latest(f"consumer {self.id}", self.latest[index], latest)
                self.latest[index] = latest

        asked_at = self.image.offset
        request = index, epoch, offset
        self.call(lambda: self.world.find(leader), leader, "consume", request, then, 300)


class World:
    def __init__(self, seed: int, *, durable: bool = False) -> None:
        self.weather = Weather(seed)
        self.character = CHARACTERS[seed % len(CHARACTERS)]
        self.random = self.weather.random
        self.checkers = Checkers()
        self.durable = durable
        self.controller = ControllerNode(self.weather)
        self.stores = {b: Store(b, directory=bytes([b]).ljust(16, b"d")) for b in BROKERS}
        self.brokers: dict[int, BrokerNode] = {}
        for broker_id in BROKERS:
            self.start(broker_id)
        self.weakened: int | None = None  # was killed, and is not in sync again
        self.producers_stop_ms = FAULTS_FROM_MS + FAULTS_MS + CALM_MS // 2

    def find(self, node_id: int) -> Node | None:
        return self.controller if node_id == CONTROLLER else self.brokers.get(node_id)

    def start(self, broker_id: int) -> None:
        node = self.brokers.get(broker_id)
        if node is not None and node.alive:
            return
        self.brokers[broker_id] = BrokerNode(
            self.weather,
            self.stores[broker_id],
            self.find,
            self.checkers,
            durable=self.durable,
        )

    def run(self) -> Counter[str]:
        weather = self.weather
        weather.run(FAULTS_FROM_MS // 2)
        self.controller.create_topic(PARTITIONS)
        self.begin()
        weather.run(FAULTS_FROM_MS)
        if self.character.storm:
            weather.loss, weather.repeats, weather.long_delays = 0.03, 0.2, 0.2
        end_ms = FAULTS_FROM_MS + FAULTS_MS
        while weather.now_ms < end_ms:
            self.fault()
            wait_ms = self.random.randint(*self.character.pace_ms)
            weather.run(min(weather.now_ms + wait_ms, end_ms))
        self.heal()
        weather.run(end_ms + CALM_MS)
        self.check()
        return weather.counts

    def begin(self) -> None:
        self.producers = [Producer(self, 10 + number) for number in range(3)]
        self.careless = CarelessProducer(self, 19)
        self.consumers = [Consumer(self, 20 + number) for number in range(2)]

    # Faults

    def fault(self) -> None:
        self._note_recovery()
        broker_id = self.random.choice(BROKERS)
        others = [CONTROLLER, *(b for b in BROKERS if b != broker_id)]
        node = self.brokers[broker_id]
        match self.random.choices(range(10), self.character.weights)[0]:
            case 0:
                self.crash(broker_id, loses=True)
            case 1:
                self.crash(broker_id, loses=False)
            case 2:
                if node.alive and not node.stopping:
                    node.stopping = True
                    self.weather.at(2_500, lambda: self._stop_took_too_long(node))
                    self._restart(broker_id, self.random.randint(600, 3_000))
            case 3:
                self._pause(broker_id)
            case 4:
                self.weather.cut(broker_id, others, inwards=True, outwards=True)
            case 5:
                inwards = self.random.random() < 0.5
                some = self.random.sample(others, self.random.randint(1, 3))
                self.weather.cut(broker_id, some, inwards=inwards, outwards=not inwards)
            case 6:
                self.weather.cut(broker_id, [CONTROLLER], inwards=True, outwards=False)
            case 7:
                self.weather.cuts.clear()
            case 8:
                self.weather.loss = self.random.choice((0.0, 0.0, 0.05, 0.2))
                self.weather.repeats = self.random.choice((0.0, 0.1, 0.3))
                self.weather.long_delays = self.random.choice((0.0, 0.05, 0.2))
            case 9:
                self._in_turn()

    def _in_turn(self) -> None:
        """One is cut off, then another loses its power, then the last one stands still."""
        first, second, third = self.random.sample(BROKERS, 3)
        others = [CONTROLLER, second, third]
        self.weather.cut(first, others, inwards=True, outwards=True)
        crash_ms = self.random.randint(600, 1_200)
        self.weather.at(crash_ms, lambda: self.crash(second, loses=True))
        pause_ms = crash_ms + self.random.randint(0, 600)
        self.weather.at(pause_ms, lambda: self._pause(third, 1_500))
        self.weather.at(pause_ms + 2_500, self.weather.cuts.clear)

    def _pause(self, broker_id: int, at_least_ms: int = 300) -> None:
        node = self.brokers[broker_id]
        node.paused_until_ms = self.weather.now_ms + self.random.randint(at_least_ms, 2_200)
        self.weather.counts["pauses"] += 1

    def _stop_took_too_long(self, node: BrokerNode) -> None:
        self._note_recovery()
        if node.alive and self.weakened in (None, node.id):
            self.weakened = node.id
            node.kill(loses=False)
        elif node.alive:
            self.weather.at(500, lambda: self._stop_took_too_long(node))

    def crash(self, broker_id: int, *, loses: bool) -> None:
        node = self.brokers[broker_id]
        if not node.alive or self.weakened not in (None, broker_id):
            return
        self.weakened = broker_id
        node.kill(loses=loses)
        self.weather.counts["kills"] += 1
        if loses and self.random.random() < 0.2:
            self._lose_disk(broker_id)
        self._restart(broker_id, self.random.randint(50, 1_500))

    def _lose_disk(self, broker_id: int) -> None:
        store = self.stores[broker_id]
        store.disk = VirtualDisk(Now(0, WALL_MS))
        store.directory = bytes([broker_id, store.starts]).ljust(16, b"d")
        store.high_watermarks, store.recovery_points = {}, {}
        self.weather.counts["disks lost"] += 1

    def _restart(self, broker_id: int, delay_ms: int) -> None:
        def again() -> None:
            node = self.brokers[broker_id]
            if node.alive and node.stopping:
                self.weather.at(200, again)
            else:
                self.start(broker_id)

        self.weather.at(delay_ms, again)

    def _note_recovery(self) -> None:
        """Killed, started, and everywhere in sync since then."""
        broker_id = self.weakened
        if broker_id is None:
            return
        node = self.brokers[broker_id]
        registered = self.controller.image.brokers[broker_id]
        if (
            node.alive
            and node.broker.epoch == registered.epoch
            and all(broker_id in partition.isr for partition in self.controller.partitions())
        ):
            self.weakened = None

    def heal(self) -> None:
        self.weather.calm()
        for node in self.brokers.values():
            node.paused_until_ms = 0

    # The end

    def check(self) -> None:
        for index, partition in enumerate(self.controller.partitions()):
            if set(partition.isr) != set(BROKERS):
                raise Violation(f"not served again: partition {index} is {partition}")
            self.checkers.at_the_end([self.brokers[b].replicas[index] for b in BROKERS])
        for producer in self.producers:
            if producer.in_flight is not None:
                raise Violation(f"not served again: producer {producer.id} waits")
