"""One run of a cluster of whole nodes: clients work while a seed's faults happen to the nodes.

The promises under test (`character.py`): with three replicas and min.insync.replicas 2, any one
node at a time may lose what it had not flushed, or its disk; with `headrace.durability=disk` any
number may crash at once. Nothing acknowledged or read is lost, doubled or changed; transactions are
whole; committed offsets do not go back; all nodes agree. A replica that stopped uncleanly does not
lead before it has caught up. When the faults end, everything is served again within a bound.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from headrace.node.consensus.voters import Voter
from headrace.node.metadata.image import MetadataImage
from headrace.node.simulator.checkers import Violation
from headrace.node.simulator.cluster.administrator import Administrator
from headrace.node.simulator.cluster.character import Character, Promise, beyond, character
from headrace.node.simulator.cluster.consumers import Consumers, values_in
from headrace.node.simulator.cluster.faults import Faults
from headrace.node.simulator.cluster.groups import Groups, OffsetChecker
from headrace.node.simulator.cluster.metadata_checker import ClusterChecker
from headrace.node.simulator.cluster.producers import Producers
from headrace.node.simulator.cluster.record_checker import RecordChecker
from headrace.node.simulator.cluster.report import ClusterReport
from headrace.node.simulator.cluster.scripts import OFFSETS, STATE, Place, Scripts
from headrace.node.simulator.cluster.transactions import TransactionalProducers, TransactionChecker
from headrace.node.simulator.cluster.trimmed_topic import TrimmedTopic
from headrace.node.simulator.connections import Died
from headrace.node.simulator.whole_nodes import FOLDER, SECOND_FOLDER, Cluster, Member

PLAIN, EXACT, LEDGER = "orders", "payments", "ledger"  # topics, by who writes to them
TRIMMED = "steps"  # as EXACT, and records are deleted
LEDGER_PARTITIONS = 2
CLASSIC_GROUP, CONSUMER_GROUP = "billing", "shipping"
QUIET_GROUP = "audit-2"  # of four partitions, it shares its own with none of the other groups
LOOK_MS = 200
# In virtual time. A broker's session lasts 9 s, a member's 10 s, a transaction 20 s.
RECOVERY_MS = 60_000


class NotServed(Exception):
    """The faults are over, and something is still not served."""


class ClusterRun:
    def __init__(self, seed: int, drawn: Character | None = None) -> None:
        self.drawn = drawn = character(seed) if drawn is None else drawn
        settings: dict[str, Any] = dict(drawn.settings)
        self.cluster = Cluster(
            3 + (drawn.spare == "both"),
            seed,
            brokers=int(drawn.spare == "broker"),
            voters=3,
            folders=(FOLDER, SECOND_FOLDER) if drawn.two_folders else (FOLDER,),
            **settings,
        )
        self.world = self.cluster.world
        self.chance = self.world.chance
        self.report = ClusterReport()
        self.records = RecordChecker()
        self.transactions = TransactionChecker()
        self.offsets = OffsetChecker()
        self.checker = ClusterChecker()
        self.scripts = Scripts(self.cluster)
        self.producers = Producers(self.scripts, self.records)
        self.consumers = Consumers(self.scripts, self.records)
        self.administrator = Administrator(
            self.scripts, self.report, drawn.actions, joins_by_itself=drawn.joins_by_itself
        )
        self.faults = Faults(
            self.cluster, drawn, self.report, self.administrator, self._newest_image
        )
        self.cluster.on_start.append(self._started)
        self._topics = {PLAIN: drawn.plain, EXACT: drawn.idempotent}
        if drawn.transactional:
            self._topics[LEDGER] = LEDGER_PARTITIONS
        if drawn.trimmed:
            self._topics[TRIMMED] = 1
        self._ledger = TransactionalProducers(
            self.scripts, self.transactions, [(LEDGER, i) for i in range(LEDGER_PARTITIONS)]
        )
        self._known_voters = {(voter.id, voter.directory_id) for voter in self.cluster.voters}
        self._groups = Groups(self.scripts, self.offsets, PLAIN, drawn.plain)

    def run(self) -> ClusterReport:
        with Bugs():
            self._begin()
            for _ in range(self.drawn.count):
                self.faults.blow()
                self._pass(self.chance.randint(500, self.drawn.longest_rest_ms))
            self._end()
        return self._told()

    def _told(self) -> ClusterReport:
        report, counters = self.report, self.cluster.counters
        report.virtual_seconds = self.world.now_ms // 1_000
        report.acknowledged = self.records.acknowledged_count
        report.read = sum(map(len, self.records.seen.values()))
        report.transactions_committed = self.transactions.committed
        report.transactions_aborted = self.transactions.aborted
        report.offsets_committed = self.offsets.commits
        report.elections, report.isr_changes = self.checker.elections, self.checker.isr_changes
        report.truncations = self.checker.truncations
        report.controllers = len(self.checker.controllers)
        report.crashes_with_unflushed_bytes = counters.crashes_with_unflushed_bytes
        report.lost_messages = counters.lost_messages
        report.doubled_messages = counters.duplicated_messages
        report.refusals = self.scripts.refusals
        report.refused_connections = self.cluster.network.refused
        return report

    # The beginning

    def _started(self, member: Member) -> None:
        committed = member.node.controller.on_committed
        committed.append(lambda image: self.checker.image_committed(member, image))

    def _begin(self) -> None:
        cluster, drawn, scripts = self.cluster, self.drawn, self.scripts
        cluster.start()
        cluster.wait_until_ready()
        first = cluster.wait_for_controller()
        for topic, partitions in self._topics.items():
            if partitions:
                self._create(first, topic, partitions)
        if drawn.transactional:
            self._create(first, STATE, int(drawn.settings["transaction_state_log_num_partitions"]))
        members = drawn.classic_members + drawn.consumer_members
        if drawn.transactional or members or drawn.quiet_group:
            self._create(first, OFFSETS, int(drawn.settings["offsets_topic_num_partitions"]))
        cluster.wait(self._in_sync)
        for place in self._places(PLAIN):
            scripts.start(self.producers.plain(place))
            scripts.start(self.consumers.reader(place))
        for place in (*self._places(EXACT), *self._places(TRIMMED)):
            scripts.start(self.producers.idempotent(place))
            scripts.start(self.consumers.reader(place))
        for number in range(drawn.transactional):
            scripts.start(self._ledger.producer(f"teller-{number}"))
            scripts.start(self._ledger.offset_reader(f"teller-{number}"))
        for place in self._places(LEDGER):
            scripts.start(self.consumers.committed_reader(place, self.transactions.read))
        for group, members in self._group_sizes():
            if members:
                scripts.start(self._groups.watcher(group))
        if drawn.quiet_group:
            scripts.start(self._groups.seldom(QUIET_GROUP))
            scripts.start(self._groups.watcher(QUIET_GROUP))
        for _ in range(drawn.classic_members):
            scripts.start(self._groups.classic_member(CLASSIC_GROUP))
        for _ in range(drawn.consumer_members):
            scripts.start(self._groups.consumer_member(CONSUMER_GROUP))
        if drawn.actions:
            named = [t for t, partitions in self._topics.items() if partitions and t != TRIMMED]
            scripts.start(self.administrator.work(named))
        for place in self._places(TRIMMED):
            trimmed = TrimmedTopic(scripts, self.records, self.report, place)
            scripts.start(trimmed.delete_records())
            scripts.start(trimmed.move_replicas())

    def _group_sizes(self) -> tuple[tuple[str, int], ...]:
        drawn = self.drawn
        return (CLASSIC_GROUP, drawn.classic_members), (CONSUMER_GROUP, drawn.consumer_members)

    def _create(self, at: Member, topic: str, partitions: int) -> None:
        answers = self.cluster.create(at, topic, replicas=3, partitions=partitions)
        self.cluster.wait(lambda: answers)

    def _places(self, topic: str) -> list[Place]:
        return [(topic, index) for index in range(self._topics.get(topic, 0))]

    # Time

    def _pass(self, for_ms: int) -> None:
        end_ms = self.world.now_ms + for_ms
        while self.world.now_ms < end_ms:
            self.world.run(min(LOOK_MS, end_ms - self.world.now_ms))
            for member in self.cluster.members.values():
                if member.is_up:
                    self.checker.look(member)
                    self._look_at_leaders(member)
                    self._start_again(member)
            if self.drawn.joins_by_itself:
                self._look_at_voters()

    def _start_again(self, member: Member) -> None:
        """Restart, as `headrace start --brokers` does, a broker that ended because it found no
        controller for a minute, as in Apache Kafka."""
        links = member.node.links
        if links is not None and links.failure is not None:
            self.report.starts_given_up += 1
            member.kill(loses=False)
            self.faults.start_later(member)

    def _look_at_voters(self) -> None:
        """Count the voters that were added: only the nodes add themselves here."""
        voters = {(voter.id, voter.directory_id) for voter in self._voters()}
        self.report.voters_joined += len(voters - self._known_voters)
        self._known_voters = voters or self._known_voters

    def _voters(self) -> tuple[Voter, ...]:
        """Returns the voters as the active controller knows them; none if there is not exactly
        one."""
        active = self.cluster.active()
        host = active[0].node.controller.log.host if len(active) == 1 else None
        return () if host is None else tuple(host.quorum.voters.latest)

    def _look_at_leaders(self, member: Member) -> None:
        for topic in member.node.broker.topics.by_name.values():
            for replica in topic.here():
                if replica.leads:
                    self.records.leads((topic.name, replica.index), replica.epoch, member.id)

    def _newest_image(self) -> MetadataImage | None:
        """Returns the image of the active controller; None unless exactly one is active."""
        active = self.cluster.active()
        return active[0].node.controller.committed_image if len(active) == 1 else None

    def _in_sync(self) -> bool:
        image = self._newest_image()
        return image is not None and all(
            len(partition.isr) == len(partition.replicas)
            and partition.leader >= 0
            and not partition.adding_replicas
            and not partition.removing_replicas
            for topic in image.topics.values()
            for partition in topic.partitions
        )

    # The end

    def _end(self) -> None:
        """End the faults, then check: all nodes return, and every promise holds."""
        self.faults.calm()
        if self.drawn.promise is Promise.BEYOND:
            self._count_losses()
            return
        started_ms = self.world.now_ms
        self._within_bound("all nodes ready and in sync", self._all_is_well)
        plain, before = self._places(PLAIN), self.records.acknowledged_count
        self._within_bound(
            "a record acknowledged", lambda: self.records.acknowledged_count > before + 5
        )
        self.scripts.stopped = True
        self._within_bound(
            "idempotent producers answered", lambda: not any(self.producers.unanswered.values())
        )
        self._within_bound("transactions ended", lambda: not self._ledger.busy)
        self._within_bound("all replicas equal", self._replicas_are_equal)
        self._within_bound("committed transactions read", self.transactions.are_all_read)
        for group, members in self._group_sizes():
            if members:
                self._within_bound(f"{group} at the end", partial(self._is_read, group))
        self.report.slowest_recovery_ms = self.world.now_ms - started_ms
        self._pass(3_000)
        # The administrator's unfinished work, such as a reassignment, is over too.
        self._within_bound("all nodes in sync again", self._all_is_well)
        self._within_bound("all replicas equal again", self._replicas_are_equal)
        self.transactions.finish()
        for member in self.cluster.members.values():
            self.administrator.finish(member.id, member.node.broker.image)
            for place in (*plain, *self._places(EXACT), *self._places(TRIMMED)):
                records = self._records(member, place)
                if records is not None:
                    self.records.finish(place, member.id, records)

    def _within_bound(self, what: str, is_so: Callable[[], bool]) -> None:
        end_ms = self.world.now_ms + RECOVERY_MS
        while not is_so():
            if self.world.now_ms >= end_ms:
                raise NotServed(f"{what}: not within {RECOVERY_MS} ms of the last fault")
            self._pass(LOOK_MS)

    def _all_is_well(self) -> bool:
        members = self.cluster.members.values()
        are_up = all(m.is_up and not m.is_paused and m.node.ready for m in members)
        return are_up and self._in_sync() and self._all_have_joined()

    def _all_have_joined(self) -> bool:
        """Every controller votes, except those that were removed, which do not join again."""
        voters = {(voter.id, voter.directory_id) for voter in self._voters()}
        removed = self.administrator.removed
        keys = [
            (member.id, member.voter.directory_id)
            for member in self.cluster.members.values()
            if member.settings.is_controller
        ]
        return not self.drawn.joins_by_itself or all(
            removed.get(key, False) in (None, key not in voters) for key in keys
        )

    def _is_read(self, group: str) -> bool:
        image = self._newest_image()
        if image is None:
            return False
        ends = {}
        for index, partition in enumerate(image.topics[PLAIN].partitions):
            topic = self.cluster.members[partition.leader].node.broker.topics.by_name[PLAIN]
            replica = topic.replicas[index]
            ends[index] = 0 if replica is None else replica.high_watermark
        return not self._groups.lag(group, ends)

    def _replicas_are_equal(self) -> bool:
        ends: dict[Place, set[int]] = {}
        for member in self.cluster.members.values():
            for topic in member.node.broker.topics.by_name.values():
                for replica in topic.here():
                    place = topic.name, replica.index
                    ends.setdefault(place, set()).add(replica.log.end_offset)
        return all(len(found) == 1 for found in ends.values())

    def _records(self, member: Member, place: Place) -> list[tuple[int, bytes]] | None:
        """All that it has of the partition; None: it has no replica of it."""
        topic = member.node.broker.topics.by_name.get(place[0])
        replica = None if topic is None else topic.replicas[place[1]]
        if replica is None:
            return None
        log, offset = replica.log, replica.log.start_offset
        found: list[tuple[int, bytes]] = []
        while piece := log.read(offset, 1 << 20, up_to=log.end_offset, at_least_one=True):
            found += values_in(piece.file.read(piece.length, piece.position))
            offset = found[-1][0] + 1
        return found

    def _count_losses(self) -> None:
        """Beyond the promise: count what is lost, once all nodes have returned."""
        self._within_bound("all nodes ready and in sync", self._all_is_well)
        self.scripts.stopped = True
        self._pass(5_000)
        self._within_bound("all replicas equal", self._replicas_are_equal)
        for place in self._places(PLAIN):
            records = self._records(self.cluster.members[1], place)
            self.report.lost_records += self.records.lost(place, records or [])


class Bugs(logging.Handler):
    """Fails the run in which a node logs a bug of its own."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self._logger = logging.getLogger("headrace")
        self._before = self._logger.propagate, self._logger.level

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info is not None and record.exc_info[1] is not None:
            raise Died(record.getMessage()) from record.exc_info[1]

    def __enter__(self) -> None:
        """Log lines of nodes about faults made on purpose are not printed."""
        self._logger.propagate = False
        self._logger.setLevel(logging.ERROR)
        self._logger.addHandler(self)

    def __exit__(self, *error: object) -> None:
        self._logger.removeHandler(self)
        self._logger.propagate, level = self._before
        self._logger.setLevel(level)


def run_cluster_seed(seed: int) -> ClusterReport:
    return ClusterRun(seed).run()


def run_beyond_the_promise(seed: int) -> ClusterReport:
    """A loss that a client sees counts as one record; the run ends with it."""
    run = ClusterRun(seed, beyond(seed))
    try:
        return run.run()
    except Violation:
        run.report.lost_records += 1
        return run.report
