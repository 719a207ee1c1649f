"""A cluster of whole nodes in one process: virtual time, a virtual network, disks in memory.

Nodes speak to each other in Kafka's bytes through their own `dispatch`, so what travels is what
travels between processes. A kill is a power cut without warning, or the death of the process alone;
a pause stops the process (SIGSTOP) while its connections stay open. Events of a node within one
millisecond are one turn of its loop. Nothing here sleeps.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from headrace.environment import Address, FileSlice, Now
from headrace.node.assembly.node import Node
from headrace.node.assembly.node_settings import NodeSettings
from headrace.node.broker.cluster.endpoint import Endpoint
from headrace.node.broker.folders.identity import Identity, write_identity
from headrace.node.broker.records.lost_acknowledgements import take_back
from headrace.node.consensus.first_files import new_cluster_records, write_first_files
from headrace.node.consensus.voters import Voter, VoterEndpoint
from headrace.node.metadata.configs import broker_values
from headrace.node.serving.api import ClosesConnection
from headrace.node.serving.session import Piece, Session
from headrace.node.simulator.connections import Connections, Died, frame_of
from headrace.node.simulator.counters import Counters
from headrace.node.simulator.disk import VirtualDisk
from headrace.node.simulator.network import Network
from headrace.node.simulator.world import WALL_START_MS, World
from headrace.wire.protocol.framing import decode_response
from headrace.wire.protocol.messages import create_topics
from headrace.wire.protocol.uuids import ZERO_ID

FOLDER = "/data"
SECOND_FOLDER = "/second"
CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
CLIENTS, CONTROLLERS = "PLAINTEXT", "CONTROLLER"
CLIENT_PORT, CONTROLLER_PORT = 9092, 9093
FLUSH_MS = 1
LINES = 500  # of each other node: more than it asks between two heartbeats
MOST_TURNS = 1_000  # in a row that something moves: more is a loop without end


class PowerIsOut(BaseException):
    """A machine loses power in the middle of what its node does; no handler of the node sees it."""


class Clock(Now):
    """A node's view of the world's time. Its wall clock may be wrong, and jump."""

    __slots__ = ("_world", "error_ms")

    def __init__(self, world: World) -> None:
        self._world = world
        self.error_ms = 0

    @property
    def monotonic_ms(self) -> int:  # type: ignore[override]
        return self._world.now_ms

    @property
    def wall_ms(self) -> int:  # type: ignore[override]
        return WALL_START_MS + self._world.now_ms + self.error_ms


def voter(node_id: int) -> Voter:
    point = VoterEndpoint(CONTROLLERS, f"node{node_id}", CONTROLLER_PORT)
    return Voter(node_id, bytes([node_id]) * 16, (point,))


class Member:
    """One node's machine: it can be killed and started again on what its disk has kept."""

    def __init__(self, cluster: Cluster, node_id: int, settings: NodeSettings) -> None:
        self.id = node_id
        self.cluster = cluster
        self.settings = settings
        self.node: Node
        self.is_up = False
        self.has_power = True  # of its machine; without, connections are not refused
        self.life = 0  # how often it was started
        self.clock = Clock(cluster.world)
        self.flush_ms: tuple[int, ...] = (FLUSH_MS,)  # one of them for each flush
        self._asked: list[tuple[Session, Callable[[bytes | None], None]]] = []
        # By node: its recent sessions with the controller here.
        self._lines: dict[int, deque[Session]] = {}
        self._purgatory_wakes_ms: int | None = None
        self._turns_at_ms = -1  # a turn is due at this moment
        self._paused_until_ms = 0
        self.voter = voter(node_id)
        self.disk = self._new_disk()

    def _new_disk(self) -> VirtualDisk:
        disk = VirtualDisk(self.clock)
        for folder in self.cluster.folders:
            disk.make_folder(folder)
        disk.flush_folder("/")
        return disk

    def lose_disk(self, directory_id: bytes) -> None:
        """While it is down; the operator formats a new folder."""
        self.voter = replace(self.voter, directory_id=directory_id)
        self.disk = self._new_disk()
        self.format(())

    def replace_folder(self, folder: str, directory_id: bytes) -> None:
        """While it is down; the operator formats a new disk for one of its data folders."""
        self.disk.remove_folder(folder)
        self.disk.make_folder(folder)
        self.disk.flush_folder("/")
        write_identity(self.disk, folder, Identity(CLUSTER_ID, self.id, directory_id))

    def format(self, voters: tuple[Voter, ...]) -> None:
        wall_ms = self.clock.wall_ms
        records = new_cluster_records()
        write_first_files(self.disk, FOLDER, voters=voters, records=records, wall_ms=wall_ms)
        first = self.voter.directory_id
        for number, folder in enumerate(self.cluster.folders):
            directory_id = bytes([first[0] ^ (number << 4)]) + first[1:]
            write_identity(self.disk, folder, Identity(CLUSTER_ID, self.id, directory_id))

    def start(self) -> None:
        self.life += 1
        self.is_up = self.has_power = True
        self._purgatory_wakes_ms = None
        self._paused_until_ms = 0
        self._lines.clear()
        life, world = self.life, self.cluster.world
        connections = Connections(
            world,
            self.cluster.network,
            self.id,
            find=self.cluster.find,
            enter=lambda do: self._enter(do, life),
        )
        self.node = Node(
            self.disk,
            self.settings,
            self.clock,
            randomness=world.chance.randbytes,
            submit=self._submit,
            space=lambda _: (1_000_000, 500_000),
            open_files=1_000,
            peers=connections,
        )
        self.node.attend_to_refusals(connections.refuses)
        for started in self.cluster.on_start:
            started(self)
        self.node.join(lambda at_ms, do: self.later(at_ms - world.now_ms, do))
        for period_ms, do in self.node.timers():
            self._every(period_ms, do)
        self.turn()

    def kill(self, *, loses: bool = True) -> None:
        """`loses`: kill it with its machine, so that bytes which were not flushed are gone, and its
        peers do not notice. Otherwise the process alone ends, and its connections are closed."""
        self.is_up = False
        self.has_power = not loses
        asked, self._asked = self._asked, []
        if loses:
            counters = self.cluster.counters
            counters.crashes_with_unflushed_bytes += not self.disk.is_flushed()
            self.disk = self.disk.power_cut(self.cluster.world.chance, self.clock)
            return
        for _, answered in asked:
            answered(None)
        self._hang_up()

    def cut_power_before(self, change: int) -> None:
        """Kill it with its machine before it changes its disk so many times more."""
        left = change

        def before_change() -> None:
            nonlocal left
            left -= 1
            if left <= 0:
                raise PowerIsOut

        self.disk.before_change = before_change

    def _with_power(self, do: Callable[[], None]) -> None:
        try:
            do()
        except PowerIsOut:
            self.kill()

    def _hang_up(self) -> None:
        """The process has ended: its connections are closed."""
        for other in self.cluster.members.values():
            if other is not self:
                self.cluster.network.carry(self.id, other.id, partial(other.hung_up, self.id))

    def hung_up(self, source: int) -> None:
        """Connections of another node have ended here."""
        lines = self._lines.pop(source, ())

        def tell() -> None:
            for line in lines:
                self.node.controller.sessions.hung_up(line)

        self._enter(tell, self.life)

    def pause(self, for_ms: int) -> None:
        self._paused_until_ms = self.cluster.world.now_ms + for_ms

    @property
    def is_paused(self) -> bool:
        return self.cluster.world.now_ms < self._paused_until_ms

    def stop(self) -> None:
        """Stop as an operator does: the node leaves its cluster first, which takes a while
        (`is_stopped`)."""
        self.node.stop()
        self._with_power(self.turn)

    @property
    def is_stopped(self) -> bool:
        return self.life > 0 and self.node.stopped

    # The loop

    def later(self, delay_ms: int, do: Callable[[], None]) -> None:
        life = self.life
        self.cluster.world.at(max(delay_ms, 0), lambda: self._enter(do, life))

    def _enter(self, do: Callable[[], None], life: int) -> None:
        """In this start of the process, when it runs; its loop turns once for each moment."""
        if not self.is_up or self.life != life:
            return
        world = self.cluster.world
        if world.now_ms < self._paused_until_ms:
            world.at(self._paused_until_ms - world.now_ms, lambda: self._enter(do, life))
            return
        self._with_power(do)
        self._turn_soon()

    def _turn_soon(self) -> None:
        world, life = self.cluster.world, self.life
        if self._turns_at_ms == world.now_ms:
            return
        self._turns_at_ms = world.now_ms

        def turn() -> None:
            self._turns_at_ms = -1
            if self.is_up and self.life == life:
                self._with_power(self.turn)

        world.at(0, turn)

    def _every(self, period_ms: int, do: Callable[[], None]) -> None:
        def again() -> None:
            self.later(period_ms, again)
            do()

        self.later(period_ms, again)

    def _submit(self, work: Callable[[], None], done: Callable[[OSError | None], None]) -> None:
        def run() -> None:
            problem = None
            try:
                work()
            except OSError as refused:
                problem = refused
            done(problem)

        self.later(self.cluster.world.chance.choice(self.flush_ms), run)

    def turn(self) -> None:
        """Until nothing moves any more, as a node's loop has it."""
        node = self.node
        for _ in range(MOST_TURNS):
            more = node.work(lambda: False)
            node.purgatory.expire(self.clock.monotonic_ms)
            node.purgatory.try_woken()
            if not node.end_turn():
                self._take_back_lost()
                continue
            if not self._answer() and not more and not node.purgatory.woken:
                break
        else:
            raise AssertionError("a turn that does not end")
        assert node.failure is None, node.failure
        if node.stopped:
            self.is_up = False
            self._asked.clear()
            self._hang_up()
            return
        self._wake_for_purgatory()

    def _take_back_lost(self) -> None:
        """As in the server: a connection whose answers rest on lost records may be closed."""
        lost, self.node.lost = self.node.lost, []
        for session in take_back([session for session, _ in self._asked], lost):
            self.node.dispatch.forget(session)

    def _wake_for_purgatory(self) -> None:
        wake_ms = self.node.purgatory.next_deadline_ms()
        if wake_ms is None:
            return
        if self._purgatory_wakes_ms is not None and self._purgatory_wakes_ms <= wake_ms:
            return  # it wakes up before, and looks again
        self._purgatory_wakes_ms = wake_ms

        def wake() -> None:
            if self._purgatory_wakes_ms == wake_ms:
                self._purgatory_wakes_ms = None

        self.later(wake_ms - self.clock.monotonic_ms, wake)

    # Requests

    def ask(
        self,
        listener: str,
        messages: Any,
        request: Any,
        answered: Callable[[Any], None],
        version: int | None = None,
    ) -> None:
        """Send a request on a connection of its own; a closed connection gives no answer."""
        version = messages.VERSIONS[-1] if version is None else version

        def decode(frame: bytes | None) -> None:
            if frame is not None:
                answered(decode_response(messages, version, memoryview(frame)[4:])[1])

        def serve() -> None:
            self._feed(listener, frame_of(messages, version, request), decode)
            self.turn()

        self._with_power(serve)

    def serve(
        self,
        listener: str,
        frame: bytes,
        answered: Callable[[bytes | None], None],
        source: int,
    ) -> None:
        """In the next turn; `answered` gets the frame of the answer, or None at the end of the
        connection."""
        life = self.life
        self._enter(lambda: self._feed(listener, frame, answered, source), life)

    def _feed(
        self,
        listener: str,
        frame: bytes,
        answered: Callable[[bytes | None], None],
        source: int | None = None,
    ) -> None:
        session = Session("127.0.0.1", listener)
        if source is not None and listener == CONTROLLERS:
            self._lines.setdefault(source, deque(maxlen=LINES)).append(session)
        data = bytearray(frame)
        try:
            self.node.dispatch.feed(session, memoryview(data), len(data))
        except ClosesConnection as refused:
            if refused.__cause__ is not None:
                raise Died(f"node {self.id} has a bug") from refused
            answered(None)
            return
        self._asked.append((session, answered))

    def _answer(self) -> bool:
        """Returns whether any request was answered."""
        ready = [each for each in self._asked if each[0].outbox]
        if not ready:
            return False
        self._asked = [each for each in self._asked if not each[0].outbox]
        for session, answered in ready:
            answered(self._sent(session))
        return True

    def _sent(self, session: Session) -> bytes | None:
        """Returns the bytes to send. As in the server, a reply that cannot be read ends the
        connection (None) and is reported to FolderFailures."""
        sent = b""
        for piece in session.outbox:
            try:
                sent += _read(piece)
            except OSError as problem:
                path = piece.file.path if isinstance(piece, FileSlice) else None
                self.node.durability.folder_failures.met(path, problem)
                return None
        return sent


class Door:
    """A listener of a member, as its peers find it."""

    def __init__(self, member: Member, listener: str) -> None:
        self.id = member.id
        self._member = member
        self._listener = listener

    @property
    def is_up(self) -> bool:
        return self._member.is_up

    @property
    def is_refusing(self) -> bool:
        return self._member.has_power and not self._member.is_up

    def serve(self, frame: bytes, answered: Callable[[bytes | None], None], source: int) -> None:
        self._member.serve(self._listener, frame, answered, source)


class Cluster:
    """Nodes 1 to `nodes` are broker and controller, then come `controllers` and `brokers` that are
    only one of both. `folders`: the data folders of each node, `FOLDER` first. `static`: voters are
    configured, kraft.version is 0. `voters`: only so many of the first controllers vote from the
    beginning."""

    def __init__(
        self,
        nodes: int = 3,
        seed: int = 1,
        *,
        controllers: int = 0,
        brokers: int = 0,
        static: bool = False,
        voters: int | None = None,
        folders: tuple[str, ...] = (FOLDER,),
        **settings: Any,
    ) -> None:
        count = nodes + controllers if voters is None else voters
        self.voters = tuple(map(voter, range(1, count + 1)))
        self.static = static
        self.folders = folders  # of each node; the first has the metadata
        self._both, self._first_broker = nodes, nodes + controllers + 1
        self.world = World(seed)
        self.counters = Counters()
        self.network = Network(self.world, self.counters)
        self.on_start: list[Callable[[Member], None]] = []  # a node was made, and has not joined
        self.given = {name.replace("_", "."): str(value) for name, value in settings.items()}
        self.members = {
            node_id: Member(self, node_id, self.settings_of(node_id))
            for node_id in range(1, nodes + controllers + brokers + 1)
        }

    def start(self) -> None:
        for member in self.members.values():
            is_voter = member.id in {each.id for each in self.voters} and not self.static
            member.format(self.voters if is_voter else ())
            member.start()

    def settings_of(self, node_id: int) -> NodeSettings:
        given = self.given | {"node.id": str(node_id), "log.dirs": ",".join(self.folders)}
        host = f"node{node_id}"
        settings = NodeSettings(
            node_id=node_id,
            folder=FOLDER,
            log_dirs=self.folders,
            values=broker_values(given, {}),
            given=given,
            endpoints={CLIENTS: Endpoint(host, CLIENT_PORT)},
            controller_endpoint=voter(node_id).endpoints[0],
            controllers={CONTROLLERS: Endpoint(host, CONTROLLER_PORT)},
        )
        settings.is_controller = node_id < self._first_broker
        settings.is_broker = node_id <= self._both or not settings.is_controller
        if not settings.is_controller:
            settings.controllers = {}
        if self.static:
            settings.static_voters = tuple(replace(v, directory_id=ZERO_ID) for v in self.voters)
        else:
            settings.bootstrap = tuple(v.endpoints[0] for v in self.voters)
        return settings

    def find(self, address: Address) -> Door | None:
        member = self.members.get(int(address.host.removeprefix("node")))
        listener = CONTROLLERS if address.port == CONTROLLER_PORT else CLIENTS
        return None if member is None else Door(member, listener)

    # For stories

    def active(self) -> list[Member]:
        """Returns the nodes that believe to be the active controller."""
        return [m for m in self.members.values() if m.is_up and m.node.controller.is_active]

    def wait(self, until: Callable[[], Any], for_ms: int = 60_000) -> Any:
        """Let time pass until it is so; fails if it takes longer."""
        end_ms = self.world.now_ms + for_ms
        while not (found := until()):
            assert self.world.now_ms < end_ms, f"not within {for_ms} ms"
            self.world.run(10)
        return found

    def wait_for_controller(self) -> Member:
        def found() -> Member | None:
            active = self.active()
            if len(active) != 1 or active[0].node.controller.committed_image.offset < 0:
                return None
            return active[0]

        member: Member = self.wait(found)
        return member

    def wait_until_ready(self) -> None:
        self.wait(lambda: all(m.node.ready for m in self.members.values() if m.is_up))

    def create(self, at: Member, name: str, replicas: int = -1, partitions: int = 1) -> list[Any]:
        """Create a topic as a client of `at`; the list gets the answer."""
        topic = create_topics.CreatableTopic(name, partitions, replicas)
        answers: list[Any] = []
        request = create_topics.CreateTopicsRequest([topic], 5_000)
        at.ask(CLIENTS, create_topics, request, answers.append)
        return answers


def _read(piece: Piece) -> bytes:
    if isinstance(piece, FileSlice):
        return piece.file.read(piece.length, piece.position)
    return bytes(piece)
