"""Streams groups that ask for too much: refused in a sentence, or done in parts."""

from types import SimpleNamespace
from typing import Any

import pytest

from headrace.node.broker.handlers import streams_group_heartbeat as handler
from headrace.node.coordination.group.streams import internal_topics
from headrace.node.coordination.group.streams.internal_topics import InternalTopic, configure
from headrace.node.coordination.group.streams.topology import topology_of
from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages import streams_group_heartbeat as messages
from headrace.wire.protocol.messages.streams_group_heartbeat import (
    CopartitionGroup,
    Subtopology,
    TaskIds,
    TopicInfo,
)
from tests.unit.node.broker.groups.test_streams_groups import (
    BAD_PARTITIONS,
    INTERNAL,
    NO_INTERNAL,
    StreamsRig,
    word_count,
)

E = ErrorCode
LINKS = 300


class Counted(list[str]):
    """A list that counts how often it is read."""

    reads = 0

    def __iter__(self):
        Counted.reads += 1
        return super().__iter__()


@pytest.fixture
def rig(tmp_path):
    rig = StreamsRig(tmp_path / "data")
    rig.create("lines", 2)
    return rig


@pytest.mark.parametrize(
    ("subtopologies", "why"),
    [
        ([Subtopology(str(n), ["lines"]) for n in range(1_001)], "1001 subtopologies"),
        ([Subtopology("0", ["lines"] * 10_001)], "names 10001 topics"),
        (
            [Subtopology("0", ["lines"], copartition_groups=[CopartitionGroup([0] * 10_000)])],
            "names 10002 topics",
        ),
        ([Subtopology("0" * 250, ["lines"])], "an id of more than 249"),
        ([Subtopology("0", [f"/{n}" for n in range(500)])], "/2 and 497 additional topics"),
    ],
)
def test_too_large_topologies_are_refused(rig, subtopologies, why):
    answer = rig.enter("anna", messages.Topology(0, subtopologies))
    assert answer.error_code == E.STREAMS_INVALID_TOPOLOGY
    assert why in answer.error_message and len(answer.error_message) < 200


def test_too_long_reports_are_refused(rig):
    rig.enter("anna")
    tasks = [TaskIds("0", list(range(20_001)))]
    assert rig.beat("anna", owned=(tasks, [])).error_code == E.INVALID_REQUEST
    tags = [messages.KeyValue(str(n), "") for n in range(101)]
    assert rig.enter("anna", client_tags=tags).error_code == E.INVALID_REQUEST
    assert rig.settle("anna") == {"anna": {"0": [0, 1], "1": [0, 1]}}, "nothing has changed"


def test_a_group_has_a_limited_number_of_tasks(rig, monkeypatch):
    monkeypatch.setattr(internal_topics, "MOST_TASKS", 3)
    answer = rig.enter("anna")
    assert rig.statuses(answer) == [BAD_PARTITIONS]
    assert "has 4 tasks" in answer.status[0].status_detail
    assert not set(INTERNAL) & rig.node.broker.image.topics.keys()


def test_many_internal_topics_are_created_over_several_heartbeats(rig, monkeypatch):
    monkeypatch.setattr(handler, "MOST_TOPICS_AT_ONCE", 1)
    assert rig.statuses(rig.enter("anna")) == [NO_INTERNAL]
    assert INTERNAL[0] not in rig.node.broker.image.topics, "the first by name is the changelog"
    rig.advance(1_000)
    assert rig.statuses(rig.beat("anna")) == [NO_INTERNAL]
    assert rig.settle("anna") == {"anna": {"0": [0, 1], "1": [0, 1]}}


def test_topics_with_many_partitions_are_created_one_by_one():
    topics = [InternalTopic(name, 1_500, -1, {}) for name in "abc"]
    assert handler.first_of(tuple(topics)) == topics[:1]
    small = [InternalTopic(str(n), 20, -1, {}) for n in range(300)]
    assert handler.first_of(tuple(small)) == small[:100]


def test_a_long_chain_of_repartition_topics_is_read_a_few_times_per_link():
    """The last subtopology comes first: each round over all of them would solve one link."""
    chain = [
        Subtopology(
            str(n),
            repartition_sink_topics=Counted([f"r{n}"]),
            repartition_source_topics=[TopicInfo(f"r{n + 1}")],
        )
        for n in range(LINKS)
    ]
    first = Subtopology("first", ["lines"], repartition_sink_topics=[f"r{LINKS}"])
    last = Subtopology("last", repartition_source_topics=[TopicInfo("r0")])
    topology = topology_of(messages.Topology(0, [*chain, first, last]))
    Counted.reads = 0
    image: Any = SimpleNamespace(topics={"lines": SimpleNamespace(partitions=[None] * 3)})
    configured = configure(topology, image)
    assert {topic.partitions for topic in configured.missing} == {3}
    assert len(configured.missing) == LINKS + 1
    assert Counted.reads <= 5 * LINKS


def test_topologies_with_a_loop_are_refused(rig):
    loop = [
        Subtopology(
            name, repartition_sink_topics=[name], repartition_source_topics=[TopicInfo(other)]
        )
        for name, other in (("a", "b"), ("b", "a"))
    ]
    answer = rig.enter("anna", messages.Topology(0, [Subtopology("0", ["lines"]), *loop]))
    assert answer.error_code == E.STREAMS_INVALID_TOPOLOGY and "loops" in answer.error_message


def test_what_clients_name_may_have_any_characters(rig):
    odd = "\x1b[31m\n\0"
    topology = word_count()
    topology.subtopologies[0].subtopology_id = odd
    rig.enter("anna", topology, process=odd, rack_id=odd)
    assert rig.settle("anna") == {"anna": {odd: [0, 1], "1": [0, 1]}}
    assert rig.describe().members[0].rack_id == odd
