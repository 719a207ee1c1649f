"""One run of a cluster of whole nodes: clients work while a seed's faults happen to the nodes.

The promise under test: with three replicas and min.insync.replicas 2, any one node at a time may
lose what it had not flushed, be cut off or be stopped, and nothing acknowledged or read is lost,
doubled or changed. A node is killed only while all replicas are in sync: two losses at once are
beyond the promise. When the faults end, everything is in sync again and served within a bound.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from headrace.protocol.errors import ErrorCode
from headrace.simulator.cluster_clients import Clients, values_in
from headrace.simulator.replica_checker import ReplicaChecker
from headrace.simulator.whole_nodes import Cluster, Member

TOPIC, PARTITIONS = "orders", 3
BLOWS = 12
RECOVERY_MS = 120_000  # in virtual time
PATIENCE_MS = 30_000
SETTINGS = {"default_replication_factor": 3, "min_insync_replicas": 2}
DURABLE = {"headrace_durability": "disk"}


@dataclass(slots=True)
class ClusterReport:
    """What happened; a set of seeds in which something never happened has not tested it."""

    acknowledged: int = 0
    read: int = 0
    kills: int = 0
    stops: int = 0
    cuts: int = 0
    leader_changes: int = 0
    controller_changes: int = 0
    topics_made: int = 0
    lost_messages: int = 0
    refusals: dict[str, int] = field(default_factory=dict)


class NotServed(Exception):
    """The faults are over, and something is still not served."""


class ClusterRun:
    def __init__(self, seed: int) -> None:
        is_durable = seed % 3 == 0
        self.cluster = Cluster(3, seed, **(SETTINGS | DURABLE if is_durable else SETTINGS))
        self.world = self.cluster.world
        self.chance = self.world.chance
        self.checker = ReplicaChecker()
        self.clients = Clients(self.cluster, self.checker, TOPIC, PARTITIONS)
        self.report = ClusterReport()
        self._made: set[str] = set()
        self._seen_epochs: set[tuple[int, int]] = set()
        self._seen_controllers: set[int] = set()

    def run(self) -> ClusterReport:
        cluster = self.cluster
        cluster.start()
        cluster.wait_until_ready()
        first = cluster.wait_for_controller()
        answers = cluster.create(first, TOPIC, replicas=3, partitions=PARTITIONS)
        cluster.wait(lambda: answers)
        cluster.wait(self._in_sync)
        self.clients.start()
        for _ in range(BLOWS):
            self._blow()
            self._pass(self.chance.randint(500, 15_000))
        self._end()
        report, clients = self.report, self.clients
        report.acknowledged, report.read = clients.acknowledged, clients.read
        report.leader_changes = max(len(self._seen_epochs) - PARTITIONS, 0)
        report.controller_changes = max(len(self._seen_controllers) - 1, 0)
        report.lost_messages = cluster.counters.lost_messages
        report.refusals = clients.refusals
        return report

    # Faults

    def _blow(self) -> None:
        blow = self.chance.choice(
            (self._kill, self._kill, self._stop, self._cut, self._cut_one_way, self._weather,
             self._heal, self._make_topic)
        )  # fmt: skip
        blow()

    def _victim(self) -> Member | None:
        """Somebody whose loss is within the promise, if all is in sync soon."""
        members = list(self.cluster.members.values())
        self.cluster.network.heal()
        end_ms = self.world.now_ms + PATIENCE_MS
        while not self._all_is_well():
            if self.world.now_ms >= end_ms:
                return None
            self._pass(200)
        return self.chance.choice(members)

    def _kill(self) -> None:
        victim = self._victim()
        if victim is not None:
            self.report.kills += 1
            victim.kill()
            self.world.at(self.chance.randint(100, 20_000), victim.start)

    def _stop(self) -> None:
        victim = self._victim()
        if victim is None:
            return
        self.report.stops += 1
        victim.stop()

        def start_again() -> None:
            if victim.is_stopped:
                victim.start()
            else:
                self.world.at(500, start_again)

        self.world.at(self.chance.randint(500, 10_000), start_again)

    def _cut(self) -> None:
        self._isolate(sends=False, hears=False)

    def _cut_one_way(self) -> None:
        self._isolate(sends=self.chance.random() < 0.5, hears=False)

    def _isolate(self, *, sends: bool, hears: bool) -> None:
        self.report.cuts += 1
        self.cluster.network.heal()
        node = self.chance.choice(list(self.cluster.members))
        self.cluster.network.isolate(node, self.cluster.members, sends=sends, hears=hears)

    def _weather(self) -> None:
        network = self.cluster.network
        network.loss = self.chance.choice((0.0, 0.01, 0.1))
        network.duplication = 0.0  # a connection delivers once or not at all
        network.delays_ms = self.chance.choice(((1, 2), (1, 5, 50), (1, 200)))

    def _heal(self) -> None:
        self.cluster.network.heal()

    def _make_topic(self) -> None:
        up = [m for m in self.cluster.members.values() if m.is_up]
        if not up:
            return
        name = f"topic-{len(self._made)}-{self.world.now_ms}"
        answers = self.cluster.create(self.chance.choice(up), name, replicas=3)

        def look() -> None:
            if answers and answers[0].topics[0].error_code == ErrorCode.NONE:
                self._made.add(name)
                self.report.topics_made += 1

        self.world.at(6_000, look)

    # Time

    def _pass(self, for_ms: int) -> None:
        end_ms = self.world.now_ms + for_ms
        while self.world.now_ms < end_ms:
            self.world.run(min(200, end_ms - self.world.now_ms))
            self._look()

    def _look(self) -> None:
        for member in self.cluster.members.values():
            if not member.is_up:
                continue
            controller = member.node.controller
            if controller.is_active:
                self._seen_controllers.add(controller.log.epoch)
            topic = member.node.broker.topics.by_name.get(TOPIC)
            for replica in () if topic is None else topic.here():
                if replica.leads:
                    place = TOPIC, replica.index
                    self.checker.leads(place, replica.epoch, member.id)
                    self._seen_epochs.add((replica.index, replica.epoch))

    def _in_sync(self) -> bool:
        """By the word of the one active controller."""
        active = self.cluster.active()
        if len(active) != 1:
            return False
        image = active[0].node.controller.committed_image
        return TOPIC in image.topics and all(
            len(partition.isr) == 3 and partition.leader >= 0
            for topic in image.topics.values()
            for partition in topic.partitions
        )

    # The end

    def _end(self) -> None:
        """Calm: everything comes back, and is what it was promised to be."""
        cluster = self.cluster
        cluster.network.calm()
        self._within_bound("all nodes ready and in sync", self._all_is_well)
        before = self.clients.acknowledged
        self._within_bound("a record acknowledged", lambda: self.clients.acknowledged > before + 5)
        self.clients.stopped = True
        self._pass(5_000)
        self._within_bound("all replicas equal", self._replicas_are_equal)
        for member in cluster.members.values():
            for place in self.clients.places:
                self.checker.finish(place, member.id, self._records(member, place[1]))
            missing = self._made - set(member.node.broker.image.topics)
            if missing:
                raise NotServed(f"node {member.id} does not know {missing}, which were made")

    def _within_bound(self, what: str, is_so: Callable[[], bool]) -> None:
        end_ms = self.world.now_ms + RECOVERY_MS
        while not is_so():
            if self.world.now_ms >= end_ms:
                raise NotServed(f"{what}: not within {RECOVERY_MS} ms of the last fault")
            self._pass(200)

    def _all_is_well(self) -> bool:
        members = self.cluster.members.values()
        return all(m.is_up and m.node.ready for m in members) and self._in_sync()

    def _replicas_are_equal(self) -> bool:
        topics = [m.node.broker.topics.by_name[TOPIC] for m in self.cluster.members.values()]
        ends = {tuple(replica.log.end_offset for replica in topic.here()) for topic in topics}
        return len(ends) == 1

    def _records(self, member: Member, index: int) -> list[tuple[int, bytes]]:
        replica = member.node.broker.topics.by_name[TOPIC].replicas[index]
        assert replica is not None
        log, found, offset = replica.log, [], replica.log.start_offset
        while piece := log.read(offset, 1 << 20, up_to=log.end_offset, at_least_one=True):
            found += values_in(piece.file.read(piece.length, piece.position))
            offset = found[-1][0] + 1
        return found


def run_cluster_seed(seed: int) -> ClusterReport:
    return ClusterRun(seed).run()
