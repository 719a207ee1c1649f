"""Streams groups on a whole node: topology, internal topics, tasks, statuses, offsets, the end."""

from typing import Any

import pytest

from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages import (
    api_versions,
    consumer_group_describe,
    delete_groups,
    describe_groups,
    list_groups,
    offset_fetch,
    streams_group_describe,
    update_features,
)
from headrace.wire.protocol.messages import streams_group_heartbeat as messages
from tests.unit.node.broker.groups.group_rig import GroupRig

E = ErrorCode
GROUP = "app"
(STALE, NO_SOURCE, BAD_PARTITIONS, NO_INTERNAL, SHUTDOWN, DELAYED) = range(6)
SOON = {"group_streams_initial_rebalance_delay_ms": 0}
INTERNAL = ("app-counts-repartition", "app-counts-changelog")


def word_count(epoch=0, *, source="lines", partitions=0):
    """Two subtopologies, with a repartition topic between them and a store with a changelog."""
    repartition = messages.TopicInfo(
        "app-counts-repartition", partitions, 0, [messages.KeyValue("cleanup.policy", "delete")]
    )
    changelog = messages.TopicInfo(
        "app-counts-changelog", 0, 0, [messages.KeyValue("cleanup.policy", "compact")]
    )
    return messages.Topology(
        epoch,
        [
            messages.Subtopology("0", [source], repartition_sink_topics=[repartition.name]),
            messages.Subtopology(
                "1", state_changelog_topics=[changelog], repartition_source_topics=[repartition]
            ),
        ],
    )


def tasks_of(parts):
    return {part.subtopology_id: part.partitions for part in parts or ()}


class StreamsRig(GroupRig):
    def __init__(self, folder, **settings):
        super().__init__(folder, **(SOON | settings))
        self.find(GROUP)
        self.known: dict[str, Any] = {}  # what each member has, as it would report it

    def enter(self, member, topology=None, *, process=None, **more):
        request = messages.StreamsGroupHeartbeatRequest(
            GROUP,
            member,
            0,
            0,
            rebalance_timeout_ms=20_000,
            topology=topology or word_count(),
            process_id=process or f"process of {member}",
            active_tasks=[],
            standby_tasks=[],
            warmup_tasks=[],
            **more,
        )
        return self.heard(member, self.ask(messages, request))

    def beat(self, member, epoch=None, *, owned=None, **more):
        """The member says that it has what it was told to have."""
        last = self.known[member]
        active, standby = owned or (last.active_tasks, last.standby_tasks)
        request = messages.StreamsGroupHeartbeatRequest(
            GROUP,
            member,
            last.member_epoch if epoch is None else epoch,
            active_tasks=active or [],
            standby_tasks=standby or [],
            warmup_tasks=[],
            **more,
        )
        return self.heard(member, self.ask(messages, request))

    def heard(self, member, answer):
        last = self.known.get(member)
        if not answer.error_code:
            if last is not None and answer.active_tasks is None:
                answer.active_tasks, answer.standby_tasks = last.active_tasks, last.standby_tasks
            self.known[member] = answer
        return answer

    def settle(self, *members):
        for _ in range(6):
            self.advance(1_100)
            for member in members:
                assert self.beat(member).error_code == 0
        return {member: tasks_of(self.known[member].active_tasks) for member in members}

    def describe(self):
        request = streams_group_describe.StreamsGroupDescribeRequest([GROUP])
        return self.ask(streams_group_describe, request).groups[0]

    def statuses(self, answer):
        return [status.status_code for status in answer.status]

    def fetch_offsets(self, member, epoch):
        wanted = offset_fetch.OffsetFetchRequestTopics("lines", bytes(16), [0])
        group = offset_fetch.OffsetFetchRequestGroup(GROUP, member, epoch, [wanted])
        request = offset_fetch.OffsetFetchRequest(groups=[group])
        return self.ask(offset_fetch, request, version=9).groups[0].error_code


@pytest.fixture
def rig(tmp_path):
    rig = StreamsRig(tmp_path / "data")
    rig.create("lines", 2)
    return rig


def test_internal_topics_are_created_with_their_settings(rig):
    first = rig.enter("anna")
    assert (first.error_code, first.member_epoch) == (0, 2)
    assert rig.statuses(first) == [NO_INTERNAL] and first.active_tasks == []
    assert "app-counts-changelog, app-counts-repartition" in first.status[0].status_detail
    assert first.heartbeat_interval_ms == 1_000, "the topics exist by then"
    image = rig.node.broker.image
    assert [len(image.topics[name].partitions) for name in INTERNAL] == [2, 2]
    assert image.configs[2, INTERNAL[1]] == {"cleanup.policy": "compact"}
    assert rig.settle("anna") == {"anna": {"0": [0, 1], "1": [0, 1]}}
    assert rig.statuses(rig.beat("anna")) == [] and rig.describe().group_state == "Stable"


def test_the_reason_is_told_if_they_cannot_be_created(rig):
    topology = word_count()
    topology.subtopologies[1].state_changelog_topics[0].replication_factor = 3
    [status] = rig.enter("anna", topology).status
    assert status.status_code == NO_INTERNAL
    assert "; Creation failed: app-counts-changelog (" in status.status_detail


def test_a_second_instance_gets_half_after_the_first_has_given_it_up(rig):
    rig.enter("anna")
    rig.settle("anna")
    assert rig.enter("bert").active_tasks == [], "anna has all tasks still"
    rig.advance(1_100)
    rig.beat("bert")
    asked = rig.beat("anna", owned=(rig.known["anna"].active_tasks, []))
    assert sum(map(len, tasks_of(asked.active_tasks).values())) == 2
    both = rig.settle("anna", "bert")
    assert sorted(n for tasks in both.values() for part in tasks.values() for n in part) == [
        0, 0, 1, 1,
    ]  # fmt: skip
    assert rig.known["anna"].member_epoch == rig.known["bert"].member_epoch


def test_tasks_of_a_silent_member_move_when_its_session_is_over(rig):
    rig.enter("anna")
    rig.enter("bert")
    rig.settle("anna", "bert")
    for _ in range(12):
        rig.advance(5_000)
        assert rig.beat("anna").error_code == 0
    assert rig.settle("anna") == {"anna": {"0": [0, 1], "1": [0, 1]}}
    assert rig.beat("bert").error_code == E.UNKNOWN_MEMBER_ID


def test_a_member_that_does_not_give_up_is_removed_after_its_rebalance_timeout(rig):
    rig.enter("anna")
    rig.settle("anna")
    had = (rig.known["anna"].active_tasks, [])
    rig.enter("bert")
    for _ in range(24):
        rig.advance(1_000)
        rig.beat("bert")
        if rig.beat("anna", owned=had).error_code:
            break
    assert rig.beat("anna", owned=had).error_code == E.UNKNOWN_MEMBER_ID


def test_standbys_follow_the_groups_setting(rig):
    rig.enter("anna")
    rig.enter("bert")
    rig.settle("anna", "bert")
    rig.alter(32, GROUP, streams_num_standby_replicas="1")
    active = rig.settle("anna", "bert")
    standby = {member: tasks_of(rig.known[member].standby_tasks) for member in active}
    assert standby["anna"].get("1") == active["bert"].get("1")
    assert standby["bert"].get("1") == active["anna"].get("1")
    assert not any("0" in tasks for tasks in standby.values()), "it has no state"


def test_a_missing_source_is_told_and_found_when_it_is_created(rig):
    answer = rig.enter("anna", word_count(source="pages"))
    assert rig.statuses(answer) == [NO_SOURCE] and "pages" in answer.status[0].status_detail
    assert rig.describe().group_state == "NotReady"
    rig.create("pages", 3)
    assert rig.settle("anna") == {"anna": {"0": [0, 1, 2], "1": [0, 1, 2]}}


def test_topics_that_do_not_fit_are_told(rig):
    rig.create("app-counts-repartition", 5)
    answer = rig.enter("anna")
    assert rig.statuses(answer) == [BAD_PARTITIONS]
    assert "expected 2, found 5" in answer.status[0].status_detail


def test_an_older_topology_is_stale_and_a_newer_one_refused(rig):
    rig.enter("anna", word_count(3))
    assert STALE in rig.statuses(rig.enter("bert", word_count(2)))
    refused = rig.enter("carl", word_count(4))
    assert refused.error_code == E.INVALID_REQUEST
    assert "not supported yet" in refused.error_message


def test_a_member_may_ask_all_to_stop(rig):
    rig.enter("anna")
    rig.enter("bert")
    rig.settle("anna", "bert")
    assert SHUTDOWN in rig.statuses(rig.beat("anna", shutdown_application=True))
    assert SHUTDOWN in rig.statuses(rig.beat("bert"))
    for member in ("anna", "bert"):
        assert rig.beat(member, -1).error_code == 0
    assert SHUTDOWN not in rig.statuses(rig.enter("carl")), "an empty group begins again"


def test_the_first_assignment_waits_for_further_members(tmp_path):
    rig = StreamsRig(tmp_path / "data", group_streams_initial_rebalance_delay_ms=3_000)
    rig.create("lines", 2)
    assert rig.statuses(rig.enter("anna")) == [DELAYED, NO_INTERNAL]
    rig.advance(1_000)
    rig.enter("anna")
    assert DELAYED in rig.statuses(rig.enter("bert"))
    rig.advance(2_100)
    for member in ("anna", "bert"):
        assert rig.enter(member).error_code == 0
    both = rig.settle("anna", "bert")
    assert sorted(sum(map(len, tasks.values())) for tasks in both.values()) == [2, 2]


def test_a_wrong_epoch_is_fenced(rig):
    rig.enter("anna")
    rig.settle("anna")
    epoch = rig.known["anna"].member_epoch
    assert rig.beat("anna", epoch + 1).error_code == E.FENCED_MEMBER_EPOCH
    assert rig.beat("anna", 1).error_code == E.FENCED_MEMBER_EPOCH
    assert rig.beat("anna", epoch).error_code == 0


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"instance_id": "one"}, E.INVALID_REQUEST),
        ({"rack_id": ""}, E.INVALID_REQUEST),
        ({"member_epoch": -2}, E.INVALID_REQUEST),
        ({"member_epoch": -3}, E.INVALID_REQUEST),
        ({"member_id": ""}, E.INVALID_REQUEST),
        ({"topology": None}, E.INVALID_REQUEST),
        ({"rebalance_timeout_ms": -1}, E.INVALID_REQUEST),
        ({"active_tasks": [messages.TaskIds("0", [0])]}, E.INVALID_REQUEST),
        ({"standby_tasks": None}, E.INVALID_REQUEST),
        ({"warmup_tasks": [messages.TaskIds("1", [0])]}, E.INVALID_REQUEST),
        ({"task_offsets": []}, E.INVALID_REQUEST),
        ({"topology": word_count(source="__consumer_offsets")}, E.STREAMS_INVALID_TOPOLOGY),
        ({"topology": word_count(source="a/b")}, E.STREAMS_INVALID_TOPOLOGY),
        ({"topology": word_count(partitions=-1)}, E.STREAMS_INVALID_TOPOLOGY),
        ({"topology": word_count(-1)}, E.STREAMS_INVALID_TOPOLOGY_EPOCH),
        ({"topology": messages.Topology(0, [messages.Subtopology("0")])},
         E.STREAMS_INVALID_TOPOLOGY),
    ],
)  # fmt: skip
def test_requests_that_make_no_sense_are_refused(rig, change, code):
    request = messages.StreamsGroupHeartbeatRequest(
        GROUP, "anna", 0, 0, rebalance_timeout_ms=1_000, topology=word_count(), process_id="p",
        active_tasks=[], standby_tasks=[], warmup_tasks=[],
    )  # fmt: skip
    for name, value in change.items():
        setattr(request, name, value)
    answer = rig.ask(messages, request)
    assert answer.error_code == code and answer.error_message


def test_members_and_old_epochs_may_commit_what_they_had(rig):
    rig.enter("anna")
    rig.settle("anna")
    epoch = rig.known["anna"].member_epoch
    assert rig.commit(GROUP, "lines", 5, member=("anna", epoch)) == 0
    assert rig.commit(GROUP, "lines", 6, member=("anna", epoch + 1)) == E.STALE_MEMBER_EPOCH
    assert rig.commit(GROUP, "lines", 6, member=("bert", epoch)) == E.UNKNOWN_MEMBER_ID
    assert rig.commit(GROUP, "lines", 6) == E.UNKNOWN_MEMBER_ID, "without a member's name"
    assert rig.committed(GROUP, "lines") == 5
    assert rig.fetch_offsets("anna", epoch) == 0
    assert rig.fetch_offsets("anna", epoch - 1) == E.STALE_MEMBER_EPOCH
    assert rig.fetch_offsets("bert", epoch) == E.UNKNOWN_MEMBER_ID
    rig.enter("bert")
    rig.settle("anna", "bert")
    kept = tasks_of(rig.known["anna"].active_tasks).get("0", [])
    for partition in (0, 1):
        code = rig.commit(GROUP, "lines", 7, partition=partition, member=("anna", epoch))
        assert code == (0 if partition in kept else E.STALE_MEMBER_EPOCH)


def test_it_is_listed_described_and_deleted_as_what_it_is(rig):
    rig.enter("anna")
    rig.settle("anna")
    rig.commit(GROUP, "lines", 5, member=("anna", rig.known["anna"].member_epoch))
    [listed] = rig.ask(list_groups, list_groups.ListGroupsRequest(), version=5).groups
    assert (listed.group_id, listed.group_type, listed.protocol_type) == (GROUP, *["streams"] * 2)
    found = rig.describe()
    assert [topic.partitions for topic in found.topology.subtopologies[1].state_changelog_topics]
    [member] = found.members
    assert tasks_of(member.assignment.active_tasks) == {"0": [0, 1], "1": [0, 1]}
    assert tasks_of(member.target_assignment.active_tasks) == {"0": [0, 1], "1": [0, 1]}
    for api, request in (
        (describe_groups, describe_groups.DescribeGroupsRequest([GROUP])),
        (consumer_group_describe, consumer_group_describe.ConsumerGroupDescribeRequest([GROUP])),
    ):
        assert rig.ask(api, request).groups[0].error_code == E.GROUP_ID_NOT_FOUND
    gone = delete_groups.DeleteGroupsRequest([GROUP])
    assert rig.ask(delete_groups, gone).results[0].error_code == E.NON_EMPTY_GROUP
    rig.beat("anna", -1)
    assert rig.describe().group_state == "Empty"
    assert rig.ask(delete_groups, gone).results[0].error_code == 0
    assert rig.describe().error_code == E.GROUP_ID_NOT_FOUND
    assert rig.committed(GROUP, "lines") == -1


def test_members_go_on_after_a_restart(rig):
    rig.enter("anna")
    rig.enter("bert")
    before = rig.settle("anna", "bert")
    epoch = rig.known["anna"].member_epoch
    rig.stop()
    again = StreamsRig(rig.folder)
    again.known = rig.known
    assert again.settle("anna", "bert") == before
    assert again.known["anna"].member_epoch == epoch, "nothing was assigned again"


def test_an_empty_group_and_an_empty_classic_one_make_room_for_each_other(rig):
    rig.enter("anna")
    rig.settle("anna")
    assert rig.join(GROUP).error_code == E.INCONSISTENT_GROUP_PROTOCOL
    rig.commit(GROUP, "lines", 5, member=("anna", rig.known["anna"].member_epoch))
    rig.beat("anna", -1)
    member_id, _ = rig.stable_group(GROUP)
    assert rig.enter("anna").error_code == E.GROUP_ID_NOT_FOUND
    rig.leave(GROUP, member_id)
    assert rig.enter("anna").error_code == 0
    assert rig.committed(GROUP, "lines") == 5


def test_a_cluster_that_does_not_announce_them_refuses_them(rig):
    def keys():
        answer = rig.ask(api_versions, api_versions.ApiVersionsRequest("rig", "1"), version=3)
        return {one.api_key for one in answer.api_keys}

    assert {88, 89} <= keys()
    lower = update_features.FeatureUpdateKey("streams.version", 0, upgrade_type=2)
    rig.ask(update_features, update_features.UpdateFeaturesRequest(10_000, [lower]), version=1)
    assert not {88, 89} & keys()
    assert rig.enter("anna").error_code == E.UNSUPPORTED_VERSION
    assert rig.describe().error_code == E.UNSUPPORTED_VERSION
