"""Brokers that replicate, each a whole node on its own disk, on virtual time and a virtual network.

Node 0 is only the controller: it decides by its own rules and has no replicas. The others follow
its image, beat to it and ask it by a port of their own; their fetches travel as Kafka's bytes.
"""

from functools import partial

from headrace.environment import Now
from headrace.node.assembly.controller_at_hand import ControllerAtHand
from headrace.node.controller.handlers import broker_heartbeat, broker_registration
from headrace.node.metadata.features import SUPPORTED_FEATURES
from headrace.node.serving.api import Call
from headrace.node.simulator.counters import Counters
from headrace.node.simulator.network import Network
from headrace.node.simulator.peers import VirtualPeers
from headrace.node.simulator.world import World
from headrace.wire.protocol.framing import decode_response
from headrace.wire.protocol.messages import create_topics, produce
from headrace.wire.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from headrace.wire.protocol.messages.broker_registration import (
    BrokerRegistrationRequest,
    Feature,
    Listener,
)
from headrace.wire.protocol.record_batch import headers_in, walk
from tests.unit.node.broker.rig import WAITS, Rig, read_piece

CONTROLLER = 100
TICK_MS = 100
BEAT_MS = 500


class ReplicatingBroker(Rig):
    """One member; `serve` is how its peers reach it."""

    is_up = True

    def __init__(self, cluster, node_id, folder, **settings):
        self.id = node_id
        self.cluster = cluster
        self.asked = []  # by peers: session, messages, version, whom to tell
        super().__init__(folder, node_id=node_id, now=cluster.now, **settings)
        self._due_ms = {}

    def serve(self, messages, request, answered):
        version = messages.VERSIONS.stop - 1
        session = self.send(messages, request, version=version)
        self.asked.append((session, messages, version, answered))
        self.until_idle()

    def until_idle(self):
        super().until_idle()
        self.answer_peers()

    def answer_peers(self):
        waiting, self.asked = self.asked, []
        for each in waiting:
            session, messages, version, answered = each
            if not session.outbox:
                self.asked.append(each)
                continue
            frame = b"".join(read_piece(piece) for piece in session.outbox)
            self.sessions.remove(session)
            answered(decode_response(messages, version, memoryview(frame)[4:])[1])

    def tick(self):
        for number, (period_ms, do) in enumerate(self.node.timers()):
            if self.now.monotonic_ms >= self._due_ms.setdefault(number, period_ms):
                self._due_ms[number] = self.now.monotonic_ms + period_ms
                do()
        self.until_idle()

    def replica(self, topic="orders", index=0):
        return self.node.broker.topics.by_name[topic].replicas[index]

    def values(self, topic="orders", index=0):
        """All that its log has, committed or not."""
        log = self.replica(topic, index).log
        found, offset = [], log.start_offset
        while piece := log.read(offset, 1 << 20, up_to=log.end_offset, at_least_one=True):
            for position, header in headers_in(data := read_piece(piece)):
                offset = header.last_offset + 1
                if not header.is_control:
                    batch = data[position : position + header.size]
                    found += [record.value.decode() for record in walk(batch, 1 << 20)]
        return found


class Port(ControllerAtHand):
    """The controller elsewhere: its answers take a moment, and do not come where it is cut off."""

    def __init__(self, cluster, node_id):
        controller = cluster.controller.node
        super().__init__(controller.controller, node_id, controller.purgatory)
        self._cluster, self._id = cluster, node_id

    def alter_partition(self, request, answered, now):
        cluster, inner, is_open = self._cluster, super().alter_partition, True

        def finish(response):
            nonlocal is_open
            if is_open:
                is_open = False
                answered(response)
                cluster.members[self._id].until_idle()

        def arrives():
            inner(
                request,
                lambda response: cluster.network.carry(
                    CONTROLLER, self._id, lambda: finish(response)
                ),
                cluster.now,
            )
            cluster.controller.until_idle()

        cluster.network.carry(self._id, CONTROLLER, arrives)
        cluster.world.at(2_000, lambda: finish(None))


class ReplicatingCluster:
    def __init__(self, folder, brokers=3, *, racks=False, compaction=None, **settings):
        """`compaction` gives each broker's runner."""
        self.world = World(1)
        self.now = Now(0, self.world.now.wall_ms)
        self.network = Network(self.world, Counters())
        self.controller = Rig(
            folder / "controller", node_id=CONTROLLER, now=self.now, min_insync_replicas=1
        )
        self.members = {}
        for node_id in range(1, brokers + 1):
            if racks:
                settings["broker_rack"] = f"r{node_id}"
            runner = compaction and compaction(node_id)
            self._join(folder, node_id, compaction=runner, **settings)
        self.controller.node.controller.on_committed.append(self._spread)
        self.every(TICK_MS, self._tick)
        self.every(BEAT_MS, self._beat)
        self._spread(self.controller.node.controller.committed_image)
        self.run(1_000)

    # Time

    def run(self, milliseconds):
        """Events in their order; the clock that all nodes share goes with them."""
        self.world.at(milliseconds, lambda: None)
        until_ms = self.world.now_ms + milliseconds
        while self.world.now_ms < until_ms:
            self.world.run(1)
            self._set_clock()

    def run_until(self, holds, within_ms=30_000):
        for _ in range(0, within_ms, 10):
            if holds():
                return
            self.run(10)
        raise AssertionError("it has not come to pass")

    def every(self, period_ms, do):
        def again():
            self._set_clock()
            do()
            self.world.at(period_ms, again)

        self.world.at(period_ms, again)

    def _set_clock(self):
        self.now.monotonic_ms, self.now.wall_ms = self.world.now_ms, self.world.now.wall_ms

    def _tick(self):
        for period_ms, do in self.controller.node.timers():
            if self.now.monotonic_ms % max(period_ms, TICK_MS) == 0:
                do()
        self.controller.until_idle()
        for member in self.members.values():
            member.tick()

    # Members

    def _join(self, folder, node_id, **settings):
        member = ReplicatingBroker(self, node_id, folder / str(node_id), **settings)
        own = member.node.controller.on_committed
        own.remove(member.node.broker.image_changed)
        broker = member.node.broker
        broker.controller = Port(self, node_id)
        broker.replica_fetching.peers = VirtualPeers(
            self.world,
            self.network,
            node_id,
            find=lambda address: self.members.get(address.port),
            is_alive=lambda: True,
            end_turn=member.until_idle,
        )
        self.members[node_id] = member
        listener = Listener("PLAINTEXT", f"broker{node_id}", node_id, 0)
        self._tell(
            broker_registration,
            BrokerRegistrationRequest(
                node_id,
                self.controller.node.controller.image.cluster_id,
                bytes([node_id]).rjust(16, b"i"),
                [listener],
                [Feature(name, *levels) for name, levels in SUPPORTED_FEATURES.items()],
                settings.get("broker_rack"),
                False,
                [bytes([node_id]).rjust(16, b"f")],
            ),
        )
        self._beat()

    def _tell(self, handler, request):
        controller = self.controller.node.controller
        handler.handle(controller, request, Call(self.now, 4, memoryview(b""), None, 1))
        self.controller.until_idle()

    def _beat(self):
        image = self.controller.node.controller.image
        for node_id in self.members:
            epoch = image.brokers[node_id].epoch
            request = BrokerHeartbeatRequest(node_id, epoch, image.offset)
            self.network.carry(node_id, CONTROLLER, partial(self._tell, broker_heartbeat, request))

    def _spread(self, image):
        """A committed image reaches every broker that is not cut off; none goes back."""
        for member in self.members.values():

            def arrives(member=member):
                broker = member.node.broker
                if image.offset > broker.image.offset or broker.image.brokers.keys() == {member.id}:
                    broker.image_changed(image)
                    member.until_idle()

            self.network.carry(CONTROLLER, member.id, arrives)

    def cut(self, node_id):
        """Nothing comes from it, nothing reaches it."""
        self.network.isolate(node_id, [*self.members, CONTROLLER], sends=False, hears=False)

    def heal(self):
        self.network.heal()
        self._spread(self.controller.node.controller.committed_image)

    # What most stories need

    def create(self, name="orders", replicas=((1, 2, 3),), **configs):
        assignments = [
            create_topics.CreatableReplicaAssignment(index, list(each))
            for index, each in enumerate(replicas)
        ]
        topic = create_topics.CreatableTopic(name, -1, -1, assignments)
        topic.configs = [
            create_topics.CreatableTopicConfig(key.replace("_", "."), str(value))
            for key, value in configs.items()
        ]
        request = create_topics.CreateTopicsRequest([topic], 1_000)
        [result] = self.controller.ask(create_topics, request).topics
        assert result.error_code == 0, result.error_message
        self.run(1_000)

    def partition(self, topic="orders", index=0):
        return self.controller.node.controller.committed_image.topics[topic].partitions[index]

    def leader(self, topic="orders", index=0):
        return self.members[self.partition(topic, index).leader]

    def produce(self, *values, topic="orders", index=0, **options):
        """To the leader, with acks=all; the answer when it is there."""
        leader = self.leader(topic, index)
        session = leader.connect()
        answer = leader.produce(topic, *values, partition=index, session=session, **options)
        if answer != WAITS:
            return answer
        self.run_until(lambda: session.outbox, 5_000)
        return leader.answer_on(session, produce, 12).responses[0].partition_responses[0]

    def followers(self, topic="orders", index=0):
        found = self.partition(topic, index)
        return [self.members[each] for each in found.replicas if each != found.leader]
