"""A process that has ended is told from one that is silent: its host refuses connections to it."""

from __future__ import annotations

from headrace.environment import Address
from headrace.node.controller.members.broker_heartbeats import (
    FOUND_WITHIN_MS,
    LATE_AFTER_MS,
    BrokerSessions,
)
from headrace.node.metadata.image import BrokerImage, MetadataImage
from headrace.wire.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from tests.unit.cluster.harness import Member
from tests.unit.cluster.test_brokers import SESSION_MS, Story


def refusing(story: Story) -> Story:
    """Hosts say when nobody listens, as real ones do."""

    def is_refused(address: Address) -> bool:
        door = story.cluster.find(address)
        return door is None or not door.is_up

    for member in story.members:
        member.node.attend_to_refusals(is_refused)
    return story


def leads(story: Story, member: Member) -> bool:
    return story.partition().leader == member.id


def test_a_killed_broker_is_fenced_long_before_its_session_ends() -> None:
    story = refusing(Story())
    killed, other = story.others
    story.created(killed.id, other.id)
    killed.kill()
    story.cluster.wait(lambda: leads(story, other), for_ms=LATE_AFTER_MS + 1_500)


def test_the_death_of_the_controller_costs_neither_its_time_nor_its_brokers_session() -> None:
    story = refusing(Story())
    killed, (other, _) = story.controller, story.others
    story.created(killed.id, other.id)
    killed.kill()
    story.cluster.wait(lambda: story.cluster.active(), for_ms=4_000)
    story.cluster.wait(lambda: leads(story, other), for_ms=FOUND_WITHIN_MS + 2_500)


def test_a_broker_that_is_only_silent_keeps_its_session() -> None:
    story = refusing(Story())
    silent, other = story.others
    story.created(silent.id, other.id)
    story.isolate(silent)
    story.cluster.world.run(SESSION_MS - 3_000)
    assert not story.is_fenced(silent)
    story.cluster.wait(lambda: leads(story, other), for_ms=SESSION_MS)


def test_the_silence_of_a_controller_counts_for_its_broker() -> None:
    story = Story()
    silent, (other, _) = story.controller, story.others
    story.created(silent.id, other.id)
    story.isolate(silent)
    story.cluster.wait(
        lambda: other.node.broker.image.topics["orders"].partitions[0].leader == other.id,
        for_ms=SESSION_MS + 1_500,  # not what the election took as well
    )


def brokers(*numbers: int) -> MetadataImage:
    return MetadataImage(
        "cluster",
        brokers={
            number: BrokerImage(number, 10, bytes(16), (), {}, None, False, False, ())
            for number in numbers
        },
    )


def test_whoever_hangs_up_is_suspected_until_it_is_heard_of_again() -> None:
    image, sessions = brokers(1, 2), BrokerSessions()
    sessions.begin(image, 0)
    line, another = object(), object()

    def beat(now_ms: int) -> None:
        request = BrokerHeartbeatRequest(2, 10, 20)
        sessions.heartbeat(image, request, end_offset=21, min_in_sync_replicas=1, now_ms=now_ms)
        sessions.heard_over(2, line)

    def suspected(now_ms: int) -> list[int]:
        return [broker.id for broker in sessions.suspects(image, now_ms)]

    assert suspected(FOUND_WITHIN_MS) == [1, 2], "nobody was heard of yet"
    beat(400)
    sessions.hung_up(another)
    assert suspected(500) == [1]
    sessions.hung_up(line)
    assert suspected(500) == [1, 2]
    beat(600)
    assert suspected(700) == [1]
    assert suspected(600 + LATE_AFTER_MS) == [1, 2]
    assert sessions.expired(image, 700) is None, "a suspect is not fenced for that"
