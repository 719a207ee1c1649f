"""A quorum of nodes as they really are: the host, Kafka's bytes, and files on a disk.

`quorum_cluster.py` runs the machine alone, on a log in memory, and many more seeds for that. Here
a crash is a power cut of a `VirtualDisk`, and a start recovers the log as a real one does. Voters
are fixed and no snapshots are taken.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from headrace.environment import Address
from headrace.node.consensus.batches import metadata_batch
from headrace.node.consensus.metadata_recovery import prepare_log
from headrace.node.consensus.quorum.machine import Quorum, Timeouts
from headrace.node.consensus.quorum.messages import ReplicaKey
from headrace.node.consensus.quorum.roles import Leader
from headrace.node.consensus.quorum.voter_history import VoterHistory
from headrace.node.consensus.quorum.wire.names import Names
from headrace.node.consensus.quorum_files import QuorumFiles, QuorumStateFile
from headrace.node.consensus.quorum_host import QuorumHost
from headrace.node.consensus.voters import Voter, VoterEndpoint
from headrace.node.simulator.checkers import QuorumChecker
from headrace.node.simulator.counters import Counters
from headrace.node.simulator.disk import VirtualDisk
from headrace.node.simulator.memory_log import StoredBatch
from headrace.node.simulator.network import Network
from headrace.node.simulator.peers import VirtualPeers
from headrace.node.simulator.world import World
from headrace.node.storage.durability.open_files import OpenFiles
from headrace.node.storage.durability.unwritten import Unwritten
from headrace.node.storage.log_settings import LogSettings
from headrace.node.storage.partition_log import PartitionLog
from headrace.wire.protocol.messages.producer_ids_record import ProducerIdsRecord
from headrace.wire.protocol.record_batch import headers_in

FOLDER = "__cluster_metadata-0"
METADATA_VERSION = 30
NAMES = Names("a-simulated-cluster", "CONTROLLER")
READ_ALL = 1 << 30


class QuorumNodes:
    """The cluster: its nodes, their network, and what all of them promised."""

    def __init__(self, world: World, *, voters: int = 3, timeouts: Timeouts | None = None) -> None:
        self.world = world
        self.timeouts = timeouts or Timeouts()
        self.counters = Counters()
        self.network = Network(world, self.counters)
        self.checker = QuorumChecker()
        self.flush_ms: tuple[int, ...] = (1,)
        self.down_ms = 400
        self.voters = tuple(
            Voter(n, bytes([n]) * 16, (VoterEndpoint("CONTROLLER", f"node{n}", n),))
            for n in range(1, voters + 1)
        )
        self.nodes = {voter.id: QuorumNode(self, voter) for voter in self.voters}
        self.appends = 0
        for node in self.nodes.values():
            node.start()

    def find(self, address: Address) -> QuorumNode | None:
        return self.nodes.get(address.port)

    def append(self) -> None:
        for node in self.nodes.values():
            node.append()

    def power_cut(self) -> None:
        self.counters.power_cuts += 1
        for node in self.nodes.values():
            node.crash()


class QuorumNode:
    def __init__(self, cluster: QuorumNodes, voter: Voter) -> None:
        self.id = voter.id
        self.host: QuorumHost | None = None  # None: it is down
        self._cluster = cluster
        self._world = cluster.world
        self._voter = voter
        self._disk = VirtualDisk(cluster.world.now)
        self._disk.make_folder(FOLDER)  # as formatting leaves it
        self._disk.flush_folder("")
        self._life = 0
        self._applied = 0
        self._unanswered: list[StoredBatch] = []
        self._wants_flush: list[Any] = []
        self._is_flushing = False
        self._wakes_at_ms: int | None = None

    @property
    def is_up(self) -> bool:
        return self.host is not None

    # Life and death

    def start(self) -> None:
        self._life += 1
        self._applied = 0
        world, cluster, life = self._world, self._cluster, self._life
        self._log = self._open_log()
        self._files = QuorumFiles(self._disk, FOLDER, self._log)
        quorum = Quorum(
            ReplicaKey(self.id, self._voter.directory_id),
            self._voter.endpoints,
            log=self._files,
            state_file=QuorumStateFile(self._disk, FOLDER),
            voters=self._files.load_voters(VoterHistory(cluster.voters, kraft_version=1)),
            timeouts=cluster.timeouts,
            chance=world.chance.randrange,
        )
        self.host = QuorumHost(
            quorum,
            self._files,
            peers=VirtualPeers(
                world,
                cluster.network,
                self.id,
                find=cluster.find,
                is_alive=lambda: self.is_up and self._life == life,
                end_turn=self._end_turn,
            ),
            names=NAMES,
            listener=self,
            wants_flush=self._wants_flush,
            now=lambda: world.now,
        )
        self.host.start()
        self._end_turn()

    def _open_log(self) -> PartitionLog:
        wall_ms = self._world.now.wall_ms
        opening = prepare_log(self._disk, FOLDER, clean=False, wall_ms=wall_ms)
        return PartitionLog.open(
            OpenFiles(self._disk),
            FOLDER,
            LogSettings(retention_ms=-1),
            now_wall_ms=wall_ms,
            start_offset=opening.start_offset,
            recovery_point=opening.recovery_point,
            unwritten=Unwritten(),
            wants_flush=[],
        )

    def crash(self) -> None:
        """Cut the power of the node's machine; the node restarts after a while."""
        if self.host is None:
            return
        self._cluster.counters.crashes += 1
        if self._files.flushed_offset < self._files.end_offset:
            self._cluster.counters.crashes_with_unflushed_bytes += 1
        self._disk = self._disk.power_cut(self._world.chance, self._world.now)
        self.host = None
        self._unanswered.clear()
        self._wants_flush.clear()
        self._is_flushing = False
        self._wakes_at_ms = None
        away_ms = self._world.chance.randint(1, self._cluster.down_ms)
        self._world.at(away_ms, self.start)

    # Arguments of the host

    def serve(self, messages: ModuleType, request: Any, answered: Callable[[Any], None]) -> None:
        assert self.host is not None
        self.host.receive(messages, request, answered)
        self._end_turn()

    def _end_turn(self) -> None:
        """Begin the flush that is wanted and see to the next wake-up, as a node's loop does."""
        host = self.host
        if host is None:
            return
        if self._wants_flush and not self._is_flushing:
            self._wants_flush.clear()
            self._flush(host)
        wake_ms = host.quorum.next_ms(self._world.now_ms)
        if self._wakes_at_ms is None or wake_ms < self._wakes_at_ms:
            self._wakes_at_ms = wake_ms
            self._later(wake_ms - self._world.now_ms, lambda: self._wake(host, wake_ms))

    def _wake(self, host: QuorumHost, wake_ms: int) -> None:
        if self._wakes_at_ms == wake_ms:
            self._wakes_at_ms = None
            host.tick()

    def _flush(self, host: QuorumHost) -> None:
        flush = host.flush_target()
        if flush is None:
            return
        self._is_flushing = True

        def done() -> None:
            flush.run(self._disk)
            self._is_flushing = False
            if not host.flushed(flush):
                self._wants_flush.append(host)

        self._later(self._world.chance.choice(self._cluster.flush_ms), done)

    def _later(self, delay_ms: int, do: Callable[[], None]) -> None:
        life = self._life

        def run() -> None:
            if self.is_up and self._life == life:
                do()
                self._end_turn()

        self._world.at(delay_ms, run)

    # MetadataListener

    def elected(self, epoch: int) -> None:
        self._cluster.counters.elections += 1
        self._cluster.checker.elected(self.id, epoch)

    def deposed(self, epoch: int) -> None:
        self._unanswered.clear()

    def truncated(self, to_offset: int) -> None:
        self._cluster.counters.truncations += 1

    def snapshot_installed(self, end_offset: int) -> None:
        raise AssertionError("nobody takes snapshots here")

    def committed(self, high_watermark: int) -> None:
        self._cluster.counters.commits += 1
        batches = self._batches_from(self._applied)
        self._applied = self._cluster.checker.committed(
            self.id, batches, self._applied, high_watermark
        )
        while self._unanswered and self._unanswered[0].end_offset <= high_watermark:
            self._cluster.counters.acknowledged += 1
            self._cluster.checker.acknowledge(self._unanswered.pop(0))

    def _batches_from(self, offset: int) -> list[StoredBatch]:
        data = self._files.read(offset, READ_ALL)
        return [
            StoredBatch(
                header.base_offset,
                header.last_offset + 1,
                header.leader_epoch,
                data[at : at + header.size],
            )
            for at, header in headers_in(data)
        ]

    # A client

    def append(self) -> None:
        """Append a record if this node believes to lead."""
        host = self.host
        if host is None or not isinstance(host.quorum.role, Leader):
            return
        self._cluster.appends += 1
        batch = metadata_batch(
            [ProducerIdsRecord(broker_id=self.id, next_producer_id=self._cluster.appends)],
            base_offset=self._files.end_offset,
            epoch=host.quorum.epoch,
            wall_ms=self._world.now.wall_ms,
            metadata_version=METADATA_VERSION,
        )
        end_offset = self._files.end_offset
        self._unanswered.append(StoredBatch(end_offset, end_offset + 1, host.quorum.epoch, batch))
        host.append(batch)
        self._end_turn()
