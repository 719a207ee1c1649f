"""Share groups on a whole node: members, their partitions' state, offsets, deletion, features."""

from typing import Any

import pytest

from headrace.node.coordination.share.state_key import SharePartitionKey
from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages import (
    alter_share_group_offsets,
    api_versions,
    consumer_group_heartbeat,
    delete_groups,
    delete_share_group_offsets,
    describe_groups,
    describe_share_group_offsets,
    list_groups,
    read_share_group_state,
    share_group_describe,
    share_group_heartbeat,
    update_features,
    write_share_group_state,
)
from tests.unit.node.broker.groups.group_rig import GroupRig

E = ErrorCode
OF_SHARE_GROUPS = {76, 77, 78, 79, 83, 84, 85, 86, 87, 90, 91, 92}
GROUP = "workers"
ANNA, BERT, CARL = ("anna-0123456789abcdef", "bert-0123456789abcdef", "carl-0123456789abcdef")


class ShareRig(GroupRig):
    def __init__(self, folder, **settings):
        super().__init__(folder, **{"share_coordinator_state_topic_num_partitions": 3, **settings})
        self.level(1)
        self.find(GROUP)

    def level(self, level):
        key = update_features.FeatureUpdateKey("share.version", level, upgrade_type=1 + (not level))
        request = update_features.UpdateFeaturesRequest(10_000, [key])
        return self.ask(update_features, request, version=1).error_code

    def beat(self, member, epoch=0, topics=None, group=GROUP, rack=None):
        request = share_group_heartbeat.ShareGroupHeartbeatRequest(
            group, member, epoch, rack, topics
        )
        return self.ask(share_group_heartbeat, request)

    def settle(self, *members, topics=("orders",)):
        """Members join and beat until all have the same epoch; what each has."""
        epochs = {}
        for member in members:
            epochs[member] = self.beat(member, 0, list(topics)).member_epoch
        for _ in range(4):
            self.advance(1_100)
            for member in members:
                epochs[member] = self.beat(member, epochs[member]).member_epoch
        assert len(set(epochs.values())) == 1
        return {member: partitions_of(self.beat(member, epochs[member], list(topics)))
                for member in members}  # fmt: skip

    def describe(self, group=GROUP):
        request = share_group_describe.ShareGroupDescribeRequest([group])
        return self.ask(share_group_describe, request).groups[0]

    def offsets(self, *topics, group=GROUP):
        wanted = [
            describe_share_group_offsets.DescribeShareGroupOffsetsRequestTopic(topic, [0])
            for topic in topics
        ]
        one = describe_share_group_offsets.DescribeShareGroupOffsetsRequestGroup(
            group, wanted or None
        )
        request = describe_share_group_offsets.DescribeShareGroupOffsetsRequest([one])
        return self.ask(describe_share_group_offsets, request, version=1).groups[0]

    def set_offset(self, offset, topic="orders", partition=0, group=GROUP):
        part = alter_share_group_offsets.AlterShareGroupOffsetsRequestPartition(partition, offset)
        one = alter_share_group_offsets.AlterShareGroupOffsetsRequestTopic(topic, [part])
        request = alter_share_group_offsets.AlterShareGroupOffsetsRequest(group, [one])
        return self.ask(alter_share_group_offsets, request)

    def forget(self, *topics, group=GROUP):
        wanted = [
            delete_share_group_offsets.DeleteShareGroupOffsetsRequestTopic(topic)
            for topic in topics
        ]
        request = delete_share_group_offsets.DeleteShareGroupOffsetsRequest(group, wanted)
        return self.ask(delete_share_group_offsets, request)

    def delete_group(self, group=GROUP):
        answer = self.ask(delete_groups, delete_groups.DeleteGroupsRequest([group]), version=2)
        return answer.results[0].error_code

    def read_state(self, partition=0, epoch=7):
        part = read_share_group_state.PartitionData(partition, epoch)
        topic = read_share_group_state.ReadStateData(self.ids["orders"], [part])
        request = read_share_group_state.ReadShareGroupStateRequest(GROUP, [topic])
        return self.ask(read_share_group_state, request).results[0].partitions[0]

    def write_state(self, state_epoch, *, start, batches=(), partition=0, epoch=7):
        data = write_share_group_state.PartitionData(
            partition, state_epoch, epoch, start, 0,
            [write_share_group_state.StateBatch(*batch) for batch in batches],
        )  # fmt: skip
        topic = write_share_group_state.WriteStateData(self.ids["orders"], [data])
        request = write_share_group_state.WriteShareGroupStateRequest(GROUP, [topic])
        return self.ask(write_share_group_state, request, version=1).results[0].partitions[0]


def partitions_of(answer):
    return sorted(index for part in answer.assignment.topic_partitions for index in part.partitions)


@pytest.fixture
def rig(tmp_path):
    rig = ShareRig(tmp_path / "data")
    rig.ids = {"orders": rig.create("orders", 4)}
    return rig


def test_the_apis_are_listed_while_the_level_says_so(tmp_path):
    rig: Any = GroupRig(tmp_path / "data")

    def listed():
        request = api_versions.ApiVersionsRequest("java", "4.3.1")
        answer = rig.ask(api_versions, request, version=4)
        return OF_SHARE_GROUPS & {one.api_key for one in answer.api_keys}

    assert listed() == OF_SHARE_GROUPS, "as in each new folder"
    assert ShareRig.level(rig, 0) == E.NONE
    assert not listed()
    assert ShareRig.beat(rig, ANNA, 0, ["orders"]).error_code == E.UNSUPPORTED_VERSION
    assert ShareRig.level(rig, 1) == E.NONE
    assert listed() == OF_SHARE_GROUPS


def test_a_member_gets_its_partitions_when_they_have_a_state(rig):
    first = rig.beat(ANNA, 0, ["orders"])
    assert (first.error_code, first.member_epoch) == (0, 2)
    assert first.heartbeat_interval_ms < 1_000 and not partitions_of(first)
    rig.advance(1_000)
    second = rig.beat(ANNA, first.member_epoch)
    assert partitions_of(second) == [0, 1, 2, 3]
    assert second.heartbeat_interval_ms == 5_000
    third = rig.beat(ANNA, second.member_epoch)
    assert third.assignment is None and third.member_epoch == second.member_epoch
    assert rig.read_state().start_offset == -1  # the partition's leader resolves it


def test_members_share_partitions_when_they_are_more(rig):
    rig.create("one", 1)
    found = rig.settle(ANNA, BERT, CARL, topics=["one"])
    assert found == {ANNA: [0], BERT: [0], CARL: [0]}


def test_partitions_are_spread_and_come_back_when_a_member_leaves_or_is_silent(rig):
    found = rig.settle(ANNA, BERT)
    assert sorted(map(len, found.values())) == [2, 2]
    assert sorted(found[ANNA] + found[BERT]) == [0, 1, 2, 3]
    left = rig.beat(BERT, -1)
    assert (left.error_code, left.member_epoch) == (0, -1)
    rig.advance(1_100)
    epoch = rig.describe().members[0].member_epoch
    assert partitions_of(rig.beat(ANNA, epoch)) == [0, 1, 2, 3]
    rig.advance(46_000)  # the session time-out
    assert rig.describe().group_state == "Empty"
    assert rig.beat(ANNA, epoch).error_code == E.UNKNOWN_MEMBER_ID


def test_a_member_may_be_one_answer_behind_and_no_more(rig):
    first = rig.beat(ANNA, 0, ["orders"]).member_epoch
    rig.advance(1_000)
    second = rig.beat(ANNA, first).member_epoch
    assert second > first and rig.beat(ANNA, first).member_epoch == second
    assert rig.beat(ANNA, second + 1).error_code == E.FENCED_MEMBER_EPOCH
    assert rig.beat(ANNA, first - 1).error_code == E.FENCED_MEMBER_EPOCH
    assert rig.beat(BERT, 1).error_code == E.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("member", "epoch", "topics", "rack"),
    [
        ("", 0, ["orders"], None),
        ("x" * 37, 0, ["orders"], None),
        (ANNA, -2, ["orders"], None),
        (ANNA, 0, None, None),
        (ANNA, 0, [], None),
        (ANNA, 0, ["orders"], ""),
    ],
)
def test_bad_heartbeats(rig, member, epoch, topics, rack):
    assert rig.beat(member, epoch, topics, rack=rack).error_code == E.INVALID_REQUEST


def test_a_group_of_another_kind_keeps_its_name(rig):
    rig.commit("plain", "orders", 5)
    assert rig.beat(ANNA, 0, ["orders"], group="plain").error_code == E.GROUP_ID_NOT_FOUND
    rig.settle(ANNA)
    assert rig.join(GROUP).error_code == E.INCONSISTENT_GROUP_PROTOCOL
    request = consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(GROUP, "me-0123456789abcde")
    request.rebalance_timeout_ms, request.topic_partitions = 1_000, []
    request.subscribed_topic_names = ["orders"]
    answer = rig.ask(consumer_group_heartbeat, request, version=1)
    assert answer.error_code == E.GROUP_ID_NOT_FOUND
    described = rig.ask(describe_groups, describe_groups.DescribeGroupsRequest([GROUP]), version=6)
    assert described.groups[0].error_code == E.GROUP_ID_NOT_FOUND
    listed = rig.ask(list_groups, list_groups.ListGroupsRequest([], ["share"]), version=5)
    [group] = listed.groups
    assert (group.group_id, group.protocol_type, group.group_state, group.group_type) == (
        GROUP, "share", "Stable", "share",
    )  # fmt: skip


def test_a_start_finds_members_and_states(rig, tmp_path):
    rig.settle(ANNA)
    state = rig.read_state()
    rig.write_state(state.state_epoch, start=3, batches=[(3, 4, 2, 1)])
    before = rig.describe()
    rig.stop()
    again: Any = GroupRig(rig.folder, now=rig.now, share_coordinator_state_topic_num_partitions=3)
    again.ids = rig.ids
    assert ShareRig.describe(again) == before
    found = ShareRig.read_state(again)
    assert (found.start_offset, len(found.state_batches)) == (3, 1)
    assert partitions_of(
        ShareRig.beat(again, ANNA, before.members[0].member_epoch, ["orders"])
    ) == [0, 1, 2, 3]


def test_offsets_are_described_set_and_forgotten(rig):
    assert rig.offsets().topics == []
    rig.settle(ANNA)
    rig.produce("orders", *["x"] * 10)
    state = rig.read_state()
    rig.write_state(state.state_epoch, start=4)
    part = rig.offsets("orders").topics[0].partitions[0]
    assert (part.start_offset, part.lag, part.error_code) == (4, 6, 0)
    assert rig.set_offset(2).error_code == E.NON_EMPTY_GROUP
    assert rig.forget("orders").error_code == E.NON_EMPTY_GROUP
    rig.beat(ANNA, -1)
    answer = rig.set_offset(2)
    assert answer.error_code == 0 and answer.responses[0].partitions[0].error_code == 0
    assert rig.offsets("orders").topics[0].partitions[0].start_offset == 2
    assert rig.write_state(state.state_epoch, start=9).error_code == E.FENCED_STATE_EPOCH
    missing = rig.set_offset(2, partition=9).responses[0].partitions[0]
    assert missing.error_code == E.UNKNOWN_TOPIC_OR_PARTITION
    assert rig.forget("orders").responses[0].error_code == 0
    assert rig.forget("orders").responses[0].error_code == E.UNKNOWN_TOPIC_OR_PARTITION
    assert rig.offsets().topics == []
    assert rig.read_state().error_code == E.INVALID_REQUEST


def test_offsets_of_a_group_that_is_not_there_yet_can_be_set(rig):
    rig.settle(ANNA)  # the topic of the states is made
    assert rig.set_offset(7, group="new").responses[0].partitions[0].error_code == 0
    [topic] = rig.offsets(group="new").topics
    assert [part.start_offset for part in topic.partitions] == [7]


def test_a_group_is_deleted_with_its_states(rig):
    rig.settle(ANNA)
    assert rig.delete_group() == E.NON_EMPTY_GROUP
    rig.beat(ANNA, -1)
    assert rig.read_state().error_code == 0
    assert rig.delete_group() == 0
    assert rig.describe().error_code == E.GROUP_ID_NOT_FOUND
    assert rig.read_state().error_code == E.INVALID_REQUEST
    assert rig.delete_group() == E.GROUP_ID_NOT_FOUND


def test_the_state_of_a_deleted_topic_goes(rig):
    rig.settle(ANNA)
    coordinator = rig.node.broker.share_states.here
    key = SharePartitionKey(GROUP, rig.ids["orders"], 0)
    assert key in coordinator.shard_of(key.text).machine.states
    rig.delete("orders")
    assert key not in coordinator.shard_of(key.text).machine.states
    group = rig.node.broker.groups.shard_of(GROUP).machine.share.groups[GROUP]
    assert not any(group.shared)


def test_settings_of_a_group_hold_within_the_brokers_bounds(rig):
    settings = rig.node.broker.groups.share_settings(GROUP)
    assert (settings.offset_reset, settings.delivery_limit) == ("latest", 5)
    rig.alter(32, GROUP, share_auto_offset_reset="by_duration:P1DT2H0.5S")
    settings = rig.node.broker.groups.share_settings(GROUP)
    assert settings.offset_reset == "by_duration"
    assert settings.offset_reset_ms == 26 * 3_600_000 + 500


def test_old_records_of_the_state_are_deleted(rig):
    rig.settle(ANNA)
    state = rig.read_state()
    for number in range(1_600):
        rig.write_state(state.state_epoch, start=number)
    coordinator = rig.node.broker.share_states.here
    key = SharePartitionKey(GROUP, rig.ids["orders"], 0)
    journal = coordinator.shard_of(key.text).journal
    assert journal.start_offset == 0
    rig.advance(300_000)
    assert journal.start_offset > 1_000
    assert rig.read_state().start_offset == 1_599
