"""Partitions that this broker does not lead, or not any more: who asks is sent on, nothing is lost.

The metadata are changed as a controller of several brokers would; the other brokers are not there.
"""

from dataclasses import replace

import pytest

from headrace.node.metadata.image import BrokerImage, Endpoint
from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages import (
    fetch,
    find_coordinator,
    offset_commit,
    offset_fetch,
    produce,
)
from tests.unit.node.broker.folders.filling_disk import make_room_for_rigs
from tests.unit.node.broker.rig import WAITS, Rig, fetch_request, only_partition, values_in

HERE, THERE = 1, 2


@pytest.fixture
def rig(tmp_path):
    rig = Rig(tmp_path / "node", offsets_topic_num_partitions=1)
    rig.create("orders", partitions=2)
    return rig


def change(rig, topic, index=0, **fields):
    """The partition as another image has it, one leader epoch on."""
    broker = rig.node.broker
    endpoint = Endpoint("PLAINTEXT", "there", 9092)
    other = BrokerImage(THERE, 1, bytes(16), (endpoint,), {}, None, False, False, ())
    image = broker.image
    found = image.topics[topic]
    before = found.partitions[index]
    after = before._replace(
        leader_epoch=before.leader_epoch + 1, partition_epoch=before.partition_epoch + 1, **fields
    )
    partitions = (*found.partitions[:index], after, *found.partitions[index + 1 :])
    changed = found._replace(partitions=partitions)
    broker.image_changed(
        replace(
            image,
            brokers={**image.brokers, THERE: other},
            topics={**image.topics, topic: changed},
            topics_by_id={**image.topics_by_id, found.id: changed},
        )
    )
    rig.until_idle()


BOTH = {"replicas": (HERE, THERE), "directories": (bytes(16), bytes(16))}


def test_a_partition_that_moved_away_is_not_written_here(rig):
    assert rig.produce("orders", "one").error_code == ErrorCode.NONE
    change(rig, "orders", leader=THERE, isr=(HERE, THERE), **BOTH)
    assert rig.produce("orders", "two").error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert rig.produce("orders", "two", partition=1).error_code == ErrorCode.NONE
    assert values_in(rig.fetch("orders").records) == [b"one"], "any replica may be read (KIP-392)"
    before_racks = rig.ask(fetch, fetch_request("orders", 0), version=10)
    assert only_partition(before_racks).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    change(rig, "orders", leader=HERE, isr=(HERE,), **BOTH)
    answer = rig.produce("orders", "two")
    assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 1)


def test_a_start_whose_id_another_one_has_taken_fetches_by_its_own_epoch(rig):
    """Without an epoch its fetches would pass for those of the other, which lacks what it has."""
    broker = rig.node.broker
    me = broker.image.brokers[HERE]
    broker.incarnation_id = me.incarnation_id
    another = replace(me, incarnation_id=b"another".ljust(16), epoch=me.epoch + 10)
    broker.image_changed(replace(broker.image, brokers={HERE: another}))
    assert broker.this.epoch == me.epoch


def test_who_has_no_room_to_note_its_epoch_leads_as_soon_as_it_has(tmp_path, monkeypatch, caplog):
    room = make_room_for_rigs(monkeypatch)
    rig = Rig(tmp_path / "node")
    rig.create("orders", partitions=2)
    for index in (0, 1):
        change(rig, "orders", index, leader=THERE, isr=(HERE, THERE), **BOTH)
    room.refuses_files = True
    for index in (0, 1):
        change(rig, "orders", index, leader=HERE, isr=(HERE, THERE), **BOTH)
    for index in (0, 1):
        answer = rig.produce("orders", "early", partition=index, acks=1)
        assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert "No space left" in caplog.text
    room.refuses_files = False
    rig.node.broker.open_what_had_no_room()
    rig.until_idle()
    for index in (0, 1):
        answer = rig.produce("orders", "one", partition=index, acks=1)
        assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 0)
    assert not rig.node.broker.unopened


def test_acks_all_waits_for_the_others_and_is_refused_when_they_take_over(rig):
    change(rig, "orders", leader=HERE, isr=(HERE, THERE), **BOTH)
    session = rig.connect()
    assert rig.produce("orders", "one", session=session) == WAITS
    assert rig.produce("orders", "two", acks=1).error_code == ErrorCode.NONE
    change(rig, "orders", leader=THERE, isr=(THERE,), **BOTH)
    answer = rig.answer_on(session, produce, 12).responses[0].partition_responses[0]
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER and answer.base_offset == -1


def test_a_replica_that_moved_to_others_leaves_no_files(rig):
    change(rig, "orders", leader=THERE, isr=(THERE,), replicas=(THERE,), directories=(bytes(16),))
    assert rig.produce("orders", "one").error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    names = [path.name for path in rig.folder.iterdir()]
    assert "orders-0" not in names and "orders-1" in names
    unknown = rig.produce("orders", "one", partition=2)
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def commit(rig, offset, session=None):
    partition = offset_commit.OffsetCommitRequestPartition(0, offset)
    topic = offset_commit.OffsetCommitRequestTopic("orders", partitions=[partition])
    request = offset_commit.OffsetCommitRequest("billing", topics=[topic])
    answer = rig.ask(offset_commit, request, version=8, session=session)
    return answer if answer == WAITS else answer.topics[0].partitions[0].error_code


def committed(rig):
    group = offset_fetch.OffsetFetchRequestGroup("billing", topics=None)
    request = offset_fetch.OffsetFetchRequest(groups=[group])
    found = rig.ask(offset_fetch, request, version=8).groups[0]
    return found.error_code or found.topics[0].partitions[0].committed_offset


def coordinator(rig):
    request = find_coordinator.FindCoordinatorRequest(coordinator_keys=["billing"])
    (found,) = rig.ask(find_coordinator, request).coordinators
    return found.node_id


def test_a_group_goes_with_the_leader_of_its_partition_and_comes_back(rig):
    assert coordinator(rig) == HERE
    assert commit(rig, 5) == ErrorCode.NONE
    change(rig, "__consumer_offsets", leader=THERE, isr=(HERE, THERE), **BOTH)
    assert coordinator(rig) == THERE
    assert commit(rig, 6) == ErrorCode.NOT_COORDINATOR
    assert committed(rig) == ErrorCode.NOT_COORDINATOR
    change(rig, "__consumer_offsets", leader=HERE, isr=(HERE,), **BOTH)
    assert committed(rig) == 5, "loaded again from its log"
    assert commit(rig, 7) == ErrorCode.NONE and committed(rig) == 7


@pytest.mark.parametrize("recognized", [False, True])
def test_a_commit_that_waits_for_others_is_not_confirmed_when_they_take_over(rig, recognized):
    session = rig.connect()
    assert coordinator(rig) == HERE
    if recognized:
        assert commit(rig, 4, session) == ErrorCode.NONE
    change(rig, "__consumer_offsets", leader=HERE, isr=(HERE, THERE), **BOTH)
    assert commit(rig, 5, session) == WAITS
    change(rig, "__consumer_offsets", leader=THERE, isr=(THERE,), **BOTH)
    answer = rig.answer_on(session, offset_commit, 8)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NOT_COORDINATOR
