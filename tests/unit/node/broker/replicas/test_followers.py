"""A node that leads for another broker: its follower is played by raw requests."""

from headrace.node.controller.handlers import broker_heartbeat, broker_registration
from headrace.node.metadata.features import SUPPORTED_FEATURES
from headrace.node.serving.api import Call
from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages import (
    create_topics,
    delete_records,
    fetch,
    list_offsets,
    produce,
)
from headrace.wire.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from headrace.wire.protocol.messages.broker_registration import BrokerRegistrationRequest, Feature
from tests.unit.node.broker.rig import WAITS, Rig, values_in

FOLLOWER = 2


class Leading(Rig):
    """Broker 2 is registered and alive; `orders` has a replica on both."""

    def __init__(self, folder, **settings):
        super().__init__(folder, **settings)
        self.tell(
            broker_registration,
            BrokerRegistrationRequest(
                FOLLOWER,
                self.node.controller.image.cluster_id,
                b"incarnation".ljust(16),
                [],
                [Feature(name, *levels) for name, levels in SUPPORTED_FEATURES.items()],
                None,
                False,
                [b"folder".ljust(16)],
            ),
        )
        self.follower_epoch = self.node.controller.image.brokers[FOLLOWER].epoch
        self.beat()
        replicas = create_topics.CreatableReplicaAssignment(0, [1, FOLLOWER])
        topic = create_topics.CreatableTopic("orders", -1, -1, [replicas])
        request = create_topics.CreateTopicsRequest([topic], 1000)
        [result] = self.ask(create_topics, request).topics
        assert result.error_code == 0, result.error_message
        self.topic_id = result.topic_id

    def tell(self, handler, request):
        controller = self.node.controller
        handler.handle(controller, request, Call(self.now, 4, memoryview(b""), None, 1))
        self.until_idle()

    def beat(self):
        offset = self.node.controller.image.offset
        self.tell(broker_heartbeat, BrokerHeartbeatRequest(FOLLOWER, self.follower_epoch, offset))

    def pass_time(self, milliseconds):
        """While broker 2 is heard of."""
        for _ in range(0, milliseconds, 1_000):
            self.advance(1_000)
            self.beat()

    @property
    def partition(self):
        return self.node.controller.committed_image.topics["orders"].partitions[0]

    @property
    def replica(self):
        return self.node.broker.topics.by_name["orders"].replicas[0]

    def follow(self, offset, *, last_epoch=-1, leader_epoch=0, max_wait_ms=0, session=None):
        wanted = fetch.FetchPartition(0, leader_epoch, offset, last_epoch, 0, 1_000_000)
        request = fetch.FetchRequest(
            replica_state=fetch.ReplicaState(FOLLOWER, self.follower_epoch),
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            topics=[fetch.FetchTopic("", self.topic_id, [wanted])],
        )
        answer = self.ask(fetch, request, version=17, session=session)
        return answer if answer == WAITS else answer.responses[0].partitions[0]


def test_acks_all_is_answered_when_the_follower_asks_for_what_comes_next(tmp_path):
    rig = Leading(tmp_path)
    assert rig.partition.isr == (1, FOLLOWER)
    producer = rig.connect()
    assert rig.produce("orders", "a", "b", session=producer) == WAITS
    assert rig.fetch("orders").records == b"", "nobody reads what is not committed"
    found = rig.follow(0)
    assert values_in(found.records) == [b"a", b"b"] and found.high_watermark == 0
    assert not producer.outbox
    assert rig.follow(2).high_watermark == 2
    answer = rig.answer_on(producer, produce, 12).responses[0].partition_responses[0]
    assert (answer.error_code, answer.base_offset) == (0, 0)
    assert values_in(rig.fetch("orders").records) == [b"a", b"b"]


def test_a_follower_that_waits_is_answered_by_the_next_record(tmp_path):
    rig = Leading(tmp_path)
    waiting = rig.connect()
    assert rig.follow(0, max_wait_ms=500, session=waiting) == WAITS
    assert rig.produce("orders", "a", acks=1).error_code == 0
    answer = rig.answer_on(waiting, fetch, 17)
    assert values_in(answer.responses[0].partitions[0].records) == [b"a"]


def test_a_follower_that_stays_away_leaves_the_isr_and_comes_back(tmp_path):
    rig = Leading(tmp_path)
    rig.follow(0)
    assert rig.produce("orders", "early", acks=1).error_code == 0
    rig.pass_time(46_000)
    assert rig.partition.isr == (1,)
    assert rig.replica.high_watermark == 1
    assert rig.produce("orders", "alone").error_code == 0
    found = rig.follow(0)
    assert values_in(found.records) == [b"early", b"alone"]
    rig.follow(2, last_epoch=0)
    rig.advance(100)
    assert rig.partition.isr == (1, FOLLOWER)
    assert rig.produce("orders", "again") == WAITS


def test_below_the_minimum_acks_all_is_refused(tmp_path):
    rig = Leading(tmp_path)
    rig.alter(2, "orders", min_insync_replicas=2)
    rig.pass_time(46_000)
    rig.produce("orders", "a", acks=1)
    rig.pass_time(46_000)
    assert rig.partition.isr == (1,)
    assert rig.produce("orders", "b").error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert rig.produce("orders", "b", acks=1).error_code == 0


def test_a_follower_of_another_time_is_refused(tmp_path):
    rig = Leading(tmp_path)
    assert rig.follow(0, leader_epoch=1).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    rig.follower_epoch -= 1
    assert rig.follow(0).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert rig.partition.isr == (1, FOLLOWER)


def test_a_log_that_parts_from_the_leaders_is_told_where(tmp_path):
    rig = Leading(tmp_path)
    rig.produce("orders", "a", acks=1)
    answer = rig.follow(5, last_epoch=0)
    assert (answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset) == (0, 1)
    assert answer.records == b""


def test_a_follower_is_told_where_the_log_ends_and_a_client_what_is_committed(tmp_path):
    rig = Leading(tmp_path)
    rig.produce("orders", "a", acks=1)

    def latest(replica_id):
        part = list_offsets.ListOffsetsPartition(0, 0, -1)
        request = list_offsets.ListOffsetsRequest(
            replica_id, 0, [list_offsets.ListOffsetsTopic("orders", [part])]
        )
        return rig.ask(list_offsets, request).topics[0].partitions[0].offset

    assert (latest(FOLLOWER), latest(-1)) == (1, 0)


def test_what_is_committed_is_remembered_over_a_restart(tmp_path):
    rig = Leading(tmp_path)
    rig.produce("orders", "a", acks=1)
    rig.follow(1)
    rig.produce("orders", "b", acks=1)
    assert rig.replica.high_watermark == 1
    rig.stop()
    again = Rig(tmp_path)
    replica = again.node.broker.topics.by_name["orders"].replicas[0]
    assert replica.log.end_offset == 2
    assert replica.high_watermark in (1, 2), "broker 2 is fenced: what follows is decided anew"


def test_a_throttled_follower_waits_for_its_rate_until_it_is_in_sync(tmp_path):
    rig = Leading(tmp_path)
    rig.follow(0)
    rig.pass_time(46_000)
    rig.produce("orders", "x" * 2_000, acks=1)
    rig.pass_time(46_000)
    assert rig.partition.isr == (1,)
    rig.produce("orders", "y" * 2_000, acks=1)
    rig.alter(2, "orders", leader_replication_throttled_replicas="0:1")
    rig.alter(4, "1", leader_replication_throttled_rate="1000")
    assert rig.follow(0).records, "the first is above the rate, which nobody could know"
    held_back = rig.follow(1, last_epoch=0)
    assert not held_back.records and held_back.high_watermark == 2
    rig.pass_time(12_000)
    assert rig.follow(1, last_epoch=0).records
    assert not rig.follow(1, last_epoch=0).records
    rig.follow(2, last_epoch=0)
    rig.advance(100)
    assert rig.partition.isr == (1, FOLLOWER)
    rig.produce("orders", "z", acks=1)
    assert rig.follow(2, last_epoch=0).records, "acks=all waits for it"


def test_records_that_all_replicas_have_deleted_are_not_waited_for(tmp_path):
    rig = Leading(tmp_path)
    rig.produce("orders", "a", "b", acks=1)
    rig.follow(0)
    rig.follow(2, last_epoch=0)

    def deleted(before):
        part = delete_records.DeleteRecordsPartition(0, before)
        topic = delete_records.DeleteRecordsTopic("orders", [part])
        request = delete_records.DeleteRecordsRequest([topic], 10_000)
        return rig.ask(delete_records, request, version=2)

    answer = deleted(before=0)
    assert answer != WAITS, "the follower begins at 0 as well"
    assert answer.topics[0].partitions[0].low_watermark == 0
    assert deleted(before=1) == WAITS, "it has not heard of that"
