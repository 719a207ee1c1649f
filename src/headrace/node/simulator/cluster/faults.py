"""The faults of a run: what happens to nodes, disks, clocks and the network, within the promise.

A stop that was not clean counts as a loss, whatever the disk has kept: the node cannot know. Such a
node is `recovering` until it is in sync again everywhere. Without flushes the promise covers one
recovering node at a time; with them any number, but none while a disk is lost.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from headrace.node.metadata.image import MetadataImage
from headrace.node.simulator.cluster.administrator import Administrator
from headrace.node.simulator.cluster.character import Blow, Character, Promise
from headrace.node.simulator.cluster.report import ClusterReport
from headrace.node.simulator.cluster.scripts import CLIENT_ID, OFFSETS
from headrace.node.simulator.whole_nodes import FLUSH_MS, SECOND_FOLDER, Cluster, Member

LONGEST_DOWN_MS = 20_000
LONGEST_PAUSE_MS = 25_000
LARGEST_JUMP_MS = 3_600_000
# Power goes before one of so many changes of a disk, or at the end of this time.
MOST_CHANGES = 60
POWER_IS_OUT_AFTER_MS = 1_000
SLOW_FLUSHES_MS = ((1, 50), (20, 200), (1, 1, 1_000))


class Faults:
    def __init__(
        self,
        cluster: Cluster,
        drawn: Character,
        report: ClusterReport,
        administrator: Administrator,
        newest_image: Callable[[], MetadataImage | None],
    ) -> None:
        self.cluster = cluster
        self.world, self.chance = cluster.world, cluster.world.chance
        self.network = cluster.network
        self.network.doubled = frozenset(cluster.members)
        self.drawn = drawn
        self.report = report
        self.administrator = administrator
        self.newest_image = newest_image
        self.recovering: set[int] = set()
        self._without_disk: set[int] = set()  # of the recovering ones
        self._with_broken_folder: set[int] = set()  # of those
        self._stopping: set[int] = set()
        self._losing_power: set[int] = set()
        self._disks = 0  # lost so far
        self._blows: dict[Blow, Callable[[], None]] = {
            Blow.CRASH: self._crash,
            Blow.POWER_CUT: self._power_cut,
            Blow.KILL: self._kill,
            Blow.STOP: self._stop,
            Blow.PAUSE: self._pause,
            Blow.LOSE_DISK: self._lose_disk,
            Blow.CUT: self._cut,
            Blow.CUT_ONE_WAY: self._cut_one_way,
            Blow.CUT_PAIR: self._cut_pair,
            Blow.HEAL: self.network.heal,
            Blow.WEATHER: self._weather,
            Blow.CLOCK: self._jump,
            Blow.SLOW_DISK: self._slow_disk,
            Blow.CUT_COORDINATOR: self._cut_coordinator,
            Blow.REFUSE: self._refuse,
            Blow.BREAK_FOLDER: self._break_folder,
            Blow.FILL_DISK: self._fill_disk,
            Blow.DELETE_SEGMENT: self._delete_segment,
            Blow.DAMAGE_LEADER: self._damage_leader,
            Blow.CUT_POWER: self._cut_power,
        }

    def blow(self) -> None:
        self.note_recovered()
        self._blows[self.chance.choice(self.drawn.blows)]()

    def calm(self) -> None:
        """No fault from now on: everything is repaired and started."""
        self.network.calm()
        for member in self.cluster.members.values():
            member.flush_ms = (FLUSH_MS,)
            self._mend_folder(member)
            member.disk.is_full = False
            member.disk.before_change = None
        self._losing_power.clear()

    # Possible losses

    def note_recovered(self) -> None:
        """Nodes that are in sync again everywhere may be lost again."""
        image = self.newest_image()
        for node_id in list(self.recovering):
            if node_id in self._with_broken_folder | self._losing_power:
                continue
            if image is not None and self._is_in_sync(node_id, image):
                self.recovering.discard(node_id)
                self._without_disk.discard(node_id)

    def _is_in_sync(self, node_id: int, image: MetadataImage) -> bool:
        member = self.cluster.members[node_id]
        if not member.is_up or not member.node.ready:
            return False
        host = member.node.controller.log.host.quorum
        votes = any(voter.id == node_id for voter in host.voters.latest)
        if member.id <= 3 and not votes:
            return False  # its disk was lost, and it is to be added again
        here = member.node.links
        broker = image.brokers.get(node_id)
        if broker is None or here is None or here.membership is None or broker.fenced:
            return False
        if broker.incarnation_id != member.node.member.presented.incarnation_id:
            return False
        return all(
            node_id in partition.isr
            for topic in image.topics.values()
            for partition in topic.partitions
            if node_id in partition.replicas
        )

    def _up(self) -> list[Member]:
        busy = self._stopping | self._losing_power
        return [m for m in self.cluster.members.values() if m.is_up and m.id not in busy]

    def _victim(self, *, loses_disk: bool = False) -> Member | None:
        """Returns a member whose loss is within the promise."""
        self.note_recovered()
        up = self._up()
        if not up:
            return None
        victim = self.chance.choice(up)
        is_covered = self.recovering <= {victim.id}
        if self.drawn.promise is Promise.FLUSHED and not loses_disk:
            is_covered = self._without_disk <= {victim.id}
        if not is_covered:
            return None
        self.recovering.add(victim.id)
        return victim

    def start_later(self, member: Member) -> None:
        life = member.life

        def start() -> None:
            if member.life == life and not member.is_up:
                member.disk.is_full = False  # else it would refuse to start
                member.start()

        self.world.at(self.chance.choice((100, 2_000, LONGEST_DOWN_MS)), start)

    # Nodes

    def _crash(self) -> None:
        victim = self._victim()
        if victim is not None:
            self.report.crashes += 1
            victim.kill()
            self.start_later(victim)

    def _kill(self) -> None:
        victim = self._victim()
        if victim is not None:
            self.report.kills += 1
            victim.kill(loses=False)
            self.start_later(victim)

    def _power_cut(self) -> None:
        self.note_recovered()
        if self._without_disk:
            return
        self.report.power_cuts += 1
        for member in self._up():
            self.report.crashes += 1
            self.recovering.add(member.id)
            member.kill()
            self.start_later(member)

    def _cut_power(self) -> None:
        """One, two or all machines lose power, each in the middle of what it writes."""
        self.note_recovered()
        up = self._up()
        if self._without_disk or not up:
            return
        victims = self.chance.sample(up, min(self.chance.choice((1, 2, len(up))), len(up)))
        self.report.cuts_of_one += len(victims) == 1
        self.report.cuts_of_two += len(victims) == 2
        self.report.cuts_of_three += len(victims) > 2
        for victim in victims:
            self.recovering.add(victim.id)
            self._losing_power.add(victim.id)
            victim.cut_power_before(self.chance.randint(1, MOST_CHANGES))
            self.world.at(POWER_IS_OUT_AFTER_MS, partial(self._power_is_out, victim, victim.life))

    def _power_is_out(self, victim: Member, life: int) -> None:
        is_due = victim.id in self._losing_power
        self._losing_power.discard(victim.id)
        if victim.life != life or (victim.is_up and not is_due):
            return
        if victim.is_up:
            victim.kill()
        self.report.crashes += 1
        self.start_later(victim)

    def _stop(self) -> None:
        up = self._up()
        if not up:
            return
        member = self.chance.choice(up)
        if member.disk.is_full:
            return  # it would end as after a kill
        self.report.stops += 1
        self._stopping.add(member.id)
        member.stop()

        def start_again() -> None:
            if member.is_stopped:
                self._stopping.discard(member.id)
                member.start()
            else:
                self.world.at(500, start_again)

        self.world.at(self.chance.randint(500, 10_000), start_again)

    def _pause(self) -> None:
        up = self._up()
        if up:
            self.report.pauses += 1
            self.chance.choice(up).pause(self.chance.choice((50, 3_000, LONGEST_PAUSE_MS)))

    def _lose_disk(self) -> None:
        victim = self._victim(loses_disk=True)
        if victim is None:
            return
        self.report.lost_disks += 1
        self._without_disk.add(victim.id)
        self._disks += 1
        old = victim.voter
        victim.kill()
        victim.lose_disk(bytes([victim.id]) * 8 + self._disks.to_bytes(8, "big"))
        self.start_later(victim)
        if victim.id <= 3 and not self.drawn.joins_by_itself:
            self.administrator.scripts.start(self.administrator.replace_voter(victim, old))

    # Clocks and disks

    def _break_folder(self) -> None:
        """The node runs without the folder until an operator replaces the cable or the disk, and
        restarts it."""
        victim = self._victim(loses_disk=True)
        if victim is None:
            return
        self.report.broken_folders += 1
        self._without_disk.add(victim.id)
        self._with_broken_folder.add(victim.id)
        victim.disk.broken.add(SECOND_FOLDER)
        mended_after_ms = self.chance.choice((1_000, 5_000, LONGEST_DOWN_MS))
        self.world.at(mended_after_ms, lambda: self._mend_folder(victim))

    def _mend_folder(self, member: Member) -> None:
        if member.id not in self._with_broken_folder:
            return
        self._with_broken_folder.discard(member.id)
        member.disk.broken.clear()
        if member.id in self._stopping:
            return
        if member.is_up:
            member.kill(loses=False)
            self.start_later(member)
        if self.chance.random() < 0.4:
            self.report.replaced_folders += 1
            self._disks += 1
            number = self._disks.to_bytes(8, "big")
            member.replace_folder(SECOND_FOLDER, bytes([64 + member.id]) * 8 + number)

    def _fill_disk(self) -> None:
        """The disk is full until an operator frees space. Nothing that was written is lost, so any
        number of disks may be full."""
        member = self.chance.choice(list(self.cluster.members.values()))
        if not member.is_up or member.id in self._stopping or member.disk.is_full:
            return
        self.report.full_disks += 1
        member.disk.is_full = True

        def make_room() -> None:
            member.disk.is_full = False

        self.world.at(self.chance.choice((1_000, 5_000, LONGEST_DOWN_MS)), make_room)

    def _delete_segment(self) -> None:
        """While the node is down; its process was killed, so it is not trusted when it returns."""
        victim = self._victim(loses_disk=True)
        if victim is None:
            return
        self._without_disk.add(victim.id)
        self.report.kills += 1
        victim.kill(loses=False)
        if paths := closed_segments(victim):
            self.report.deleted_segments += 1
            stem = self.chance.choice(paths).removesuffix(".log")
            for suffix in (".log", ".index", ".timeindex"):
                victim.disk.remove(stem + suffix)
        self.start_later(victim)

    def _damage_leader(self) -> None:
        """A bit of a closed segment flips, and the scrub or a reader finds it."""
        victim = self._victim(loses_disk=True)
        if victim is None:
            return
        self._without_disk.add(victim.id)
        found = [
            (replica, segment)
            for topic in victim.node.broker.topics.by_name.values()
            for replica in topic.here()
            if replica.leads
            for segment in replica.log.segments.items[:-1]
            if segment.size and segment.base_offset >= replica.log.start_offset
        ]
        if not found:
            return
        self.report.damaged_leaders += 1
        _, segment = self.chance.choice(found)
        file = segment.open_file()
        position = self.chance.randrange(segment.size)
        byte = file.read(1, position)[0] ^ (1 << self.chance.randrange(8))
        victim.disk.open(segment.path).write_at(bytes([byte]), position)
        segment.look_for_damage()

    def _jump(self) -> None:
        self.report.clock_jumps += 1
        member = self.chance.choice(list(self.cluster.members.values()))
        member.clock.error_ms = self.chance.randint(-LARGEST_JUMP_MS, LARGEST_JUMP_MS)

    def _slow_disk(self) -> None:
        self.report.slow_disks += 1
        member = self.chance.choice(list(self.cluster.members.values()))
        member.flush_ms = self.chance.choice(SLOW_FLUSHES_MS)

    # The network

    def _cut(self) -> None:
        self.report.cuts += 1
        self._isolate(sends=False, hears=False)

    def _cut_one_way(self) -> None:
        self.report.one_way_cuts += 1
        sends = self.chance.random() < 0.5
        self._isolate(sends=sends, hears=not sends)

    def _isolate(self, *, sends: bool, hears: bool) -> None:
        """One node from all others, and sometimes from clients too."""
        if self.chance.random() < 0.5:
            self.network.heal()
        node = self.chance.choice(list(self.cluster.members))
        others = [*self.cluster.members]
        if self.chance.random() < 0.3:
            others.append(CLIENT_ID)
        self.network.isolate(node, others, sends=sends, hears=hears)

    def _cut_coordinator(self) -> None:
        image = self.newest_image()
        topic = None if image is None else image.topics.get(OFFSETS)
        leader = -1 if topic is None else topic.partitions[0].leader
        if leader >= 0:
            self.report.cuts += 1
            self.network.heal()
            self.network.isolate(leader, self.cluster.members, sends=False, hears=False)

    def _cut_pair(self) -> None:
        self.report.cuts += 1
        first, second = self.chance.sample(list(self.cluster.members), 2)
        self.network.cut(first, second)
        self.network.cut(second, first)

    def _refuse(self) -> None:
        """A firewall refuses connections to a node, which is alive."""
        self.report.firewalls += 1
        if self.chance.random() < 0.5:
            self.network.heal()
        node = self.chance.choice(list(self.cluster.members))
        others = [*self.cluster.members]
        if self.chance.random() < 0.3:
            others.append(CLIENT_ID)
        self.network.wall_off(node, others, both_ways=self.chance.random() < 0.7)

    def _weather(self) -> None:
        network = self.network
        network.loss = self.chance.choice((0.0, 0.01, 0.1))
        network.duplication = self.chance.choice((0.0, 0.01, 0.1))
        network.delays_ms = self.chance.choice(((1, 2), (1, 5, 50), (1, 200)))


def closed_segments(member: Member) -> list[str]:
    """The files of a member that is down, of all partitions but those of the metadata."""
    found = []
    for folder in member.cluster.folders:
        for name in member.disk.list(folder):
            logs = [each for each in member.disk.list(f"{folder}/{name}") if each.endswith(".log")]
            if not name.startswith("__cluster_metadata"):
                found += [f"{folder}/{name}/{each}" for each in logs[:-1]]
    return found
