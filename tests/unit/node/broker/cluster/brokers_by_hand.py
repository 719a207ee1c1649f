"""Several whole brokers in one process, on one clock; the test writes their metadata by hand.

They speak with each other by Kafka's bytes, and replicate for themselves. What a controller would
do (who leads, who is fenced) is the test's part, so that a story can put any two events in any
order. Clients ask `Brokers`, which finds the broker that leads, as a client with fresh metadata.
"""

from dataclasses import replace
from typing import Any

from headrace.environment import Now
from headrace.node.metadata.image import (
    NO_LEADER,
    BrokerImage,
    Endpoint,
    PartitionImage,
    TopicImage,
)
from headrace.wire.protocol.java_hash import partition_for_group
from tests.unit.node.broker.rig import START_MS, WAITS, Randomness, Rig, read_piece
from tests.unit.node.broker.transactions.transaction_rig import (
    TransactionalProducer,
    TransactionRig,
)

OFFSETS, STATE = "__consumer_offsets", "__transaction_state"
FIRST_PORT = 9_000


class Wire:
    """`environment.Peers` of one broker."""

    def __init__(self, brokers, source):
        self.brokers = brokers
        self.source = source

    def ask(self, to, lane, messages, request, answered, *, timeout_ms, newest=None):
        version = messages.VERSIONS[-1] if newest is None else newest
        target = to.port - FIRST_PORT
        self.brokers.asked.append((self.source, target, messages, version, request, answered))


class Brokers:
    """Numbers 1 to `count`. `down`: connections to it are refused. `mute`: it reads requests, and
    its answers do not come back before it is taken out of the set. `stopped`: it does nothing at
    all, and nobody is told."""

    def __init__(self, folder, count=3, **settings):
        self.now = Now(1_000, START_MS)
        self.down, self.mute, self.stopped = set(), set(), set()
        self.asked, self.answers = [], []
        folder.mkdir(exist_ok=True)
        chance = Randomness()
        self.rigs = {
            number: Rig(
                folder / str(number),
                now=self.now,
                node_id=number,
                randomness=chance,
                group_initial_rebalance_delay_ms=0,
                **settings,
            )
            for number in range(1, count + 1)
        }
        for number, rig in self.rigs.items():
            broker = rig.node.broker
            rig.node.controller.on_committed.remove(broker.image_changed)
            broker.replica_fetching.peers = Wire(self, number)
            broker.producer_ids = self.broker(1).producer_ids  # nobody else has these ids
        self.image = replace(
            self.broker(1).image,
            brokers={
                number: BrokerImage(
                    number,
                    number,
                    bytes(16),
                    (Endpoint("PLAINTEXT", "here", FIRST_PORT + number),),
                    {},
                    None,
                    False,
                    False,
                    (),
                )
                for number in self.rigs
            },
        )
        self._tell()

    def broker(self, number):
        return self.rigs[number].node.broker

    # the metadata

    def create(self, name, *replicas_of_partitions):
        """Each partition by its replicas, of which the first leads."""
        partitions = tuple(
            PartitionImage(replicas, replicas, replicas[0], 0, 0, (bytes(16),) * len(replicas))
            for replicas in replicas_of_partitions
        )
        self._change(TopicImage(name, name.encode().ljust(16)[:16], partitions))

    def lead(self, name, index, leader, isr=None):
        """Another broker leads, or nobody."""
        topic = self.image.topics[name]
        before = topic.partitions[index]
        after = before._replace(
            leader=leader,
            isr=before.isr if isr is None else isr,
            leader_epoch=before.leader_epoch + 1,
            partition_epoch=before.partition_epoch + 1,
        )
        self._change(
            topic._replace(
                partitions=(*topic.partitions[:index], after, *topic.partitions[index + 1 :])
            )
        )

    def delete(self, name):
        topics = {each: topic for each, topic in self.image.topics.items() if each != name}
        by_id = {topic.id: topic for topic in topics.values()}
        self.image = replace(self.image, topics=topics, topics_by_id=by_id)
        self._tell()

    def die(self, number, *, silently=False):
        """It is fenced; the next replica in sync leads what it led. `silently`: its connections
        stay open, as those of a machine that is cut off."""
        (self.stopped if silently else self.down).add(number)
        self._fence(number, True)
        for topic in list(self.image.topics.values()):
            for index, partition in enumerate(topic.partitions):
                if number in partition.isr:
                    left = tuple(each for each in partition.isr if each != number)
                    leader = partition.leader
                    if leader == number:
                        leader = left[0] if left else NO_LEADER
                    self.lead(topic.name, index, leader, left or partition.isr)

    def _fence(self, number, fenced):
        brokers = dict(self.image.brokers)
        brokers[number] = replace(brokers[number], fenced=fenced)
        self.image = replace(self.image, brokers=brokers)

    def _change(self, topic):
        self.image = replace(
            self.image,
            topics={**self.image.topics, topic.name: topic},
            topics_by_id={**self.image.topics_by_id, topic.id: topic},
        )
        self._tell()

    def _tell(self):
        self.image = replace(self.image, offset=self.image.offset + 1)
        for number, rig in self.rigs.items():
            if number not in self.down | self.stopped:
                rig.node.broker.image_changed(self.image)
        self.until_idle()

    # time

    def until_idle(self):
        while True:
            for rig in self.rigs.values():
                rig.until_idle()
            if not self._deliver():
                return

    def _deliver(self):
        asked, self.asked = self.asked, []
        for source, target, messages, version, request, answered in asked:
            if target in self.down or source in self.down:
                answered(None)
                continue
            if target in self.stopped:
                continue
            session = self.rigs[target].send(messages, request, version=version)
            self.answers.append((target, session, messages, version, answered))
        for rig in self.rigs.values():
            rig.until_idle()
        left, came = [], 0
        for each in self.answers:
            target, session, messages, version, answered = each
            if target in self.down:
                answered(None)
                came += 1
            elif session.outbox and target not in self.mute | self.stopped:
                answered(self.rigs[target].answer_on(session, messages, version))
                came += 1
            else:
                left.append(each)
        self.answers = left
        return bool(asked) or bool(came)

    def advance(self, milliseconds):
        for _ in range(0, milliseconds, 100):
            self.now.monotonic_ms += 100
            self.now.wall_ms += 100
            for number, rig in self.rigs.items():
                if number not in self.down | self.stopped:
                    rig.node.broker.tick()
            self.until_idle()

    # clients

    def leader_of(self, messages, request):
        return leader_of(self.image, messages, request)

    def leader(self, topic, index):
        return self.image.topics[topic].partitions[index].leader

    def ask(self, messages, request, *, version=None, session=None, to=None):
        """The answer of the broker that leads, or of `to`; WAITS if it waits for what does not
        come."""
        version = messages.VERSIONS[-1] if version is None else version
        rig = self.rigs[to or self.leader_of(messages, request)]
        session = rig.send(messages, request, version=version, session=session)
        self.until_idle()
        if not session.outbox:
            return WAITS if session.line else None
        return rig.answer_on(session, messages, version)

    def producer(self, transactional_id="t", **how):
        producer = TransactionalProducer(self, transactional_id, **how)
        assert producer.init() == 0
        return producer

    def log_of(self, number, topic, index):
        replica = self.broker(number).topics.by_name[topic].replicas[index]
        found = replica.log.read(0, 1 << 20, up_to=replica.log.end_offset, at_least_one=True)
        return b"" if found is None else read_piece(found)

    committed: Any = TransactionRig.committed
    committed_records: Any = TransactionRig.committed_records
    fetch_committed: Any = TransactionRig.fetch_committed
    describe: Any = TransactionRig.describe
    offset_of: Any = TransactionRig.offset_of


# Whom a client asks, by the metadata


def leader_of(image, messages, request):
    name = messages.__name__.rsplit(".", 1)[-1]
    if name == "produce":
        data = request.topic_data[0]
        return image.topics[data.name].partitions[data.partition_data[0].index].leader
    if name == "fetch":
        topic = request.topics[0]
        return image.topics[topic.topic].partitions[topic.partitions[0].partition].leader
    if name == "offset_fetch":
        return coordinator_of(image, OFFSETS, request.groups[0].group_id)
    if hasattr(request, "group_id") and name != "add_offsets_to_txn":
        return coordinator_of(image, OFFSETS, request.group_id)
    if name == "add_partitions_to_txn":
        return coordinator_of(image, STATE, request.v3_and_below_transactional_id)
    if name == "describe_transactions":
        return coordinator_of(image, STATE, request.transactional_ids[0])
    return coordinator_of(image, STATE, request.transactional_id)


def coordinator_of(image, topic, key):
    partitions = image.topics[topic].partitions
    return partitions[partition_for_group(key, len(partitions))].leader
