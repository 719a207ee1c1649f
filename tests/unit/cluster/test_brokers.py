"""Three brokers and the controllers among them: they join, fall silent, come back and leave."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.node.metadata.image import MetadataImage, PartitionImage
from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages import (
    alter_client_quotas,
    create_topics,
    describe_cluster,
    find_coordinator,
    init_producer_id,
    metadata,
    unregister_broker,
)
from tests.unit.cluster.harness import CLIENTS, CONTROLLERS, FOLDER, Cluster, Member

SESSION_MS = 9_000


class Story:
    def __init__(self, **settings: Any) -> None:
        self.cluster = Cluster(**settings)
        self.cluster.start()
        self.cluster.wait(lambda: all(member.node.ready for member in self.members))

    @property
    def members(self) -> list[Member]:
        return list(self.cluster.members.values())

    @property
    def controller(self) -> Member:
        return self.cluster.wait_for_controller()

    @property
    def others(self) -> list[Member]:
        active = self.controller
        return [member for member in self.members if member is not active]

    @property
    def image(self) -> MetadataImage:
        return self.controller.node.controller.committed_image

    def partition(self, topic: str = "orders") -> PartitionImage:
        return self.image.topics[topic].partitions[0]

    def is_fenced(self, member: Member) -> bool:
        return self.image.brokers[member.id].fenced

    def isolate(self, member: Member) -> None:
        others = [each.id for each in self.members if each is not member]
        self.cluster.network.isolate(member.id, others, sends=False, hears=False)

    def ask(self, at: Member, messages: Any, request: Any, version: int | None = None) -> list[Any]:
        """By the listener of clients; the list gets the answer."""
        answers: list[Any] = []
        at.ask(CLIENTS, messages, request, answers.append, version)
        return answers

    def asked(self, at: Member, messages: Any, request: Any, version: int | None = None) -> Any:
        answers = self.ask(at, messages, request, version)
        self.cluster.wait(lambda: answers)
        return answers[0]

    def create(self, at: Member, *replicas: int, timeout_ms: int = 10_000) -> list[Any]:
        """`orders`, with its replicas on these brokers."""
        assignment = [create_topics.CreatableReplicaAssignment(0, list(replicas))]
        topic = create_topics.CreatableTopic("orders", -1, -1, assignment)
        request = create_topics.CreateTopicsRequest([topic], timeout_ms)
        return self.ask(at, create_topics, request)

    def created(self, *replicas: int) -> None:
        answers = self.create(self.members[0], *replicas)
        self.cluster.wait(lambda: answers)
        assert codes(answers) == [ErrorCode.NONE]


def codes(answers: list[Any]) -> list[int]:
    return [topic.error_code for answer in answers for topic in answer.topics]


def topics_of(answer: Any) -> dict[str, int]:
    return {topic.name: topic.error_code for topic in answer.topics}


def test_three_nodes_register_and_are_unfenced_and_stay() -> None:
    story = Story()
    assert not any(broker.fenced for broker in story.image.brokers.values())
    assert set(story.image.brokers) == {1, 2, 3}
    story.cluster.world.run(3 * SESSION_MS)
    assert set(story.image.controllers) == {1, 2, 3}
    assert not any(broker.fenced for broker in story.image.brokers.values())


def test_a_client_of_any_broker_creates_a_topic_and_finds_it_there_at_once() -> None:
    story = Story()
    for number, member in enumerate(story.members):
        name = f"topic-{number}"
        request = create_topics.CreateTopicsRequest(
            [create_topics.CreatableTopic(name, 3, 3)], 9_000
        )
        assert topics_of(story.asked(member, create_topics, request)) == {name: 0}
        found = story.asked(member, metadata, metadata.MetadataRequest([topic(name)], False))
        partitions = found.topics[0].partitions
        assert [len(each.isr_nodes) for each in partitions] == [3, 3, 3]
        assert {each.error_code for each in partitions} == {0}


def topic(name: str) -> metadata.MetadataRequestTopic:
    return metadata.MetadataRequestTopic(name=name)


def test_a_topic_is_made_by_being_asked_for_at_a_broker_that_is_not_the_controller() -> None:
    story = Story()
    [member, *_] = story.others
    request = metadata.MetadataRequest([topic("orders")], True)
    [found] = story.asked(member, metadata, request).topics
    assert (found.error_code, len(found.partitions)) == (0, 1)


def test_coordinators_and_producer_ids_come_from_a_controller_elsewhere() -> None:
    story = Story()
    idempotent = init_producer_id.InitProducerIdRequest(None, 60_000)
    given: set[int] = set()
    for member in story.members:
        request = find_coordinator.FindCoordinatorRequest(coordinator_keys=["billing"])
        [found] = story.asked(member, find_coordinator, request).coordinators
        assert found.error_code == 0
        for _ in range(2):
            answer = story.asked(member, init_producer_id, idempotent)
            assert answer.error_code == 0
            given.add(answer.producer_id)
    assert len(given) == 6, "nobody has the id of another"


def test_a_silent_broker_is_fenced_its_leaders_move_and_it_comes_back() -> None:
    story = Story()
    silent, other = story.others
    story.created(silent.id, other.id)
    assert story.partition().leader == silent.id
    story.isolate(silent)
    story.cluster.wait(lambda: story.is_fenced(silent), for_ms=SESSION_MS + 2_000)
    assert story.partition().leader == other.id
    story.cluster.network.heal()
    story.cluster.wait(lambda: not story.is_fenced(silent), for_ms=5_000)
    story.cluster.wait(lambda: silent.node.broker.image.offset == story.image.offset)


def test_a_broker_that_leaves_hands_over_first_and_is_let_in_at_once_when_it_returns() -> None:
    story = Story()
    leaving, other = story.others
    story.created(leaving.id, other.id)
    epoch = story.image.brokers[leaving.id].epoch
    leaving.stop()
    story.cluster.wait(lambda: leaving.node.stopped, for_ms=SESSION_MS)
    assert story.partition().leader == other.id and story.is_fenced(leaving)
    leaving.is_up = False
    leaving.start()
    story.cluster.wait(lambda: leaving.node.ready, for_ms=3_000)
    assert story.image.brokers[leaving.id].epoch > epoch


def test_the_active_controller_leaves_too() -> None:
    story = Story()
    first = story.controller
    other = story.others[0]
    story.created(first.id, other.id)
    first.stop()
    story.cluster.wait(lambda: first.node.stopped, for_ms=SESSION_MS)
    first.is_up = False
    story.cluster.wait(lambda: story.controller is not first, for_ms=5_000)
    # The new one has it in its log, and knows that it is committed when its first record is.
    story.cluster.wait(lambda: story.is_fenced(first), for_ms=100)
    assert story.partition().leader == other.id


def test_a_killed_broker_does_not_wait_for_its_old_session_when_it_returns() -> None:
    story = Story()
    killed, other = story.others
    story.created(killed.id, other.id)
    story.cluster.world.run(3_000)
    epoch = story.image.brokers[killed.id].epoch
    killed.kill()
    killed.start()
    story.cluster.wait(lambda: killed.node.ready, for_ms=1_500)
    assert story.image.brokers[killed.id].epoch > epoch
    assert story.partition().leader == other.id


@pytest.mark.parametrize("kills", [True, False])
def test_the_controller_is_lost_during_a_creation_and_the_client_gets_one_true_answer(
    kills: bool,
) -> None:
    story = Story()
    first = story.controller
    asked_at, _ = story.others
    if kills:
        answers = story.create(asked_at, 1, 2, 3)
        story.cluster.world.run(2)  # the envelope is on its way
        first.kill()
    else:
        story.isolate(first)
        answers = story.create(asked_at, 1, 2, 3)
    story.cluster.wait(lambda: answers, for_ms=11_000)
    assert len(answers) == 1
    # It may be made by the first controller and be found by the second.
    [code] = codes(answers)
    assert code in (
        ErrorCode.NONE,
        ErrorCode.TOPIC_ALREADY_EXISTS,
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    )
    there = code != ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert ("orders" in asked_at.node.broker.image.topics) == there
    story.cluster.world.run(5_000)
    assert len(answers) == 1


def test_a_client_of_a_deposed_controller_hears_from_the_next_one() -> None:
    story = Story()
    first = story.controller
    others = [member.id for member in story.others]
    story.isolate(first)
    answers = story.create(first, *others)
    story.cluster.wait(lambda: not first.node.controller.is_active, for_ms=8_000)
    assert answers == [], "nobody knows yet"
    story.cluster.network.heal()
    story.cluster.wait(lambda: answers)
    assert codes(answers) == [ErrorCode.NONE]
    assert story.partition().replicas == tuple(others)


def test_without_a_majority_the_client_is_told_when_its_time_is_up() -> None:
    story = Story()
    left, *gone = story.others + [story.controller]
    for member in gone:
        member.kill()
    answers = story.create(left, 1, timeout_ms=3_000)
    story.cluster.wait(lambda: answers, for_ms=4_000)
    assert codes(answers) == [ErrorCode.REQUEST_TIMED_OUT]


def test_a_broker_that_an_operator_gives_up_by_mistake_registers_again() -> None:
    story = Story()
    given_up, asked_at = story.others
    request = unregister_broker.UnregisterBrokerRequest(given_up.id)
    assert story.asked(asked_at, unregister_broker, request).error_code == 0
    assert given_up.id not in story.image.brokers
    story.cluster.wait(
        lambda: given_up.id in story.image.brokers and not story.is_fenced(given_up), for_ms=6_000
    )


def test_who_is_the_controller_depends_on_who_asks() -> None:
    story = Story()
    story.cluster.wait(lambda: set(story.image.controllers) == {1, 2, 3})
    story.cluster.world.run(1_000)
    for member in story.members:
        request = describe_cluster.DescribeClusterRequest()
        answer = story.asked(member, describe_cluster, request)
        assert answer.controller_id == member.id, "any broker hands on what is for the controller"
        assert {each.broker_id for each in answer.brokers} == {1, 2, 3}
        answers: list[Any] = []
        request = describe_cluster.DescribeClusterRequest(endpoint_type=2)
        member.ask(CONTROLLERS, describe_cluster, request, answers.append)
        assert answers[0].controller_id == story.controller.id
        assert [(each.broker_id, each.host) for each in answers[0].brokers] == [
            (each, f"node{each}") for each in (1, 2, 3)
        ]


def test_a_quota_of_changes_holds_at_whichever_broker_they_are_asked_for() -> None:
    story = Story()
    [member, *_] = story.others
    entity = alter_client_quotas.EntityData("user", "ANONYMOUS")
    limit = alter_client_quotas.OpData("controller_mutation_rate", 0.1, False)
    entry = alter_client_quotas.RequestEntryData([entity], [limit])
    request = alter_client_quotas.AlterClientQuotasRequest([entry], False)
    [result] = story.asked(member, alter_client_quotas, request).entries
    assert result.error_code == 0

    def create(name: str, partitions: int) -> Any:
        topic = create_topics.CreatableTopic(name, partitions, 1)
        request = create_topics.CreateTopicsRequest([topic], 5_000)
        return story.asked(member, create_topics, request)

    assert codes([create("first", 30)]) == [0]
    throttled = create("second", 1)
    assert codes([throttled]) == [ErrorCode.THROTTLING_QUOTA_EXCEEDED]
    assert throttled.throttle_time_ms > 0 and "second" not in story.image.topics


def test_a_voter_answers_its_quorum_while_it_opens_its_logs() -> None:
    """Thousands of logs take seconds after a kill. The quorum of two must not stop meanwhile."""
    story = Story(nodes=3, seed=2)
    story.created(1, 2, 3)
    back, noted = story.others[0], f"{FOLDER}/replication-offset-checkpoint"
    story.cluster.wait(lambda: back.disk.exists(noted))
    high_watermarks = back.disk.read_file(noted)
    back.kill(loses=False)
    story.cluster.wait(lambda: story.is_fenced(back))
    back.start()
    goes_on = back.node.work
    back.node.work = lambda is_over: False  # type: ignore[method-assign]  # no log is opened yet
    story.cluster.wait(lambda: back.node.controller.has_caught_up)
    assert back.node.partitions.count == 0
    assert back.node.links is not None and back.node.links.membership is None
    story.controller.kill(loses=False)  # now every election needs the vote of this one
    assert story.controller.node.controller.is_active
    story.cluster.world.run(10_000)
    assert back.disk.read_file(noted) == high_watermarks, "what is not loaded is not forgotten"
    back.node.work = goes_on  # type: ignore[method-assign]
    story.cluster.wait(lambda: back.node.ready)
    assert back.node.partitions.count == 1
