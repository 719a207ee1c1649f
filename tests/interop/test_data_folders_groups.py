"""A data folder changes hands: what is kept of groups, their members and their places.

Members live on while the broker under them becomes one of the other kind, and notice nothing.
`test_data_folders_state.py` does the same for transactions, users and groups of other kinds. With
TARGET=apache all nodes are Apache Kafka's, to check the tests themselves.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import ConsumerGroupState, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.interop.brokers import Node
from tests.interop.epochs import after_heartbeats, epochs
from tests.interop.rows import Row, and_back, both_ways, commit, found_places, until
from tests.interop.test_compaction import QUICK, wait_until_clean
from tests.interop.test_groups import PARTITIONS, filled, members, poll_until
from tests.interop.test_transactions import producer_of, transaction
from tests.interop.topics import create_topic

AT_REST = {ConsumerGroupState.STABLE, ConsumerGroupState.EMPTY}


def described(node: Node, *groups: str) -> dict[str, Any]:
    """State, type, assignor, and of each member all but when it came."""
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    found = {}
    for name, future in admin.describe_consumer_groups(list(groups)).items():
        group = future.result(60)
        about = {
            member.member_id: (
                member.client_id,
                member.host,
                member.group_instance_id,
                sorted((p.topic, p.partition) for p in member.assignment.topic_partitions),
            )
            for member in group.members
        }
        found[name] = group.state, group.type, group.partition_assignor, about
    return found


def places(node: Node, group: str, topic: str) -> list[tuple[int, str | None]]:
    """Committed offsets with their notes."""
    wanted = [TopicPartition(topic, index) for index in range(PARTITIONS)]
    with members(node, group, 1) as [asking]:
        return [(place.offset, place.metadata) for place in found_places(asking, wanted)]


def commit_with_notes(consumer: Any, topic: str, offsets: list[int]) -> None:
    noted = [TopicPartition(topic, n, at, metadata=f"note {n}") for n, at in enumerate(offsets)]
    commit(consumer, noted)


@and_back
def test_members_and_places_of_every_kind_of_group_are_found_as_they_were(
    row: tuple[str, ...], tmp_path: Path
) -> None:
    """Nobody joins again or is moved: ids, instances, assignments and epochs are what they were."""
    with Row(row, tmp_path) as nodes, contextlib.ExitStack() as stack:
        topic = filled(nodes.node, "handed-on")
        patient: dict[str, Any] = {"session_timeout_ms": 180_000}

        def joined(group: str, count: int, subscription: str, **settings: Any) -> list[Any]:
            """Members with names, if `group_instance_id` begins one, that share the partitions."""
            named = settings.pop("group_instance_id", None)
            found = []
            for number in range(count):
                own = {"group_instance_id": f"{named}-{number}"} if named else {}
                all_of_it = patient | settings | own | {"client_id": f"{group}-{number}"}
                [one] = stack.enter_context(members(nodes.node, group, 1, **all_of_it))
                one.subscribe([subscription])
                found.append(one)
            share = PARTITIONS // count
            poll_until(found, lambda _: {len(c.assignment()) for c in found} == {share})
            return found

        joined("static", 2, topic, group_instance_id="till")
        [classic] = joined("classic", 1, topic, partition_assignment_strategy="cooperative-sticky")
        [newer, _] = joined("newer", 2, "^handed-on-.*", group_protocol="consumer")
        joined("newer-static", 2, topic, group_protocol="consumer", group_instance_id="desk")
        commit_with_notes(classic, topic, [5, 6, 7, 8])
        commit_with_notes(newer, topic, [9, 9, 9, 9])
        with members(nodes.node, "simple", 1) as [alone]:
            commit_with_notes(alone, topic, [1, 2, 3, 4])
        with members(nodes.node, "left", 1) as [left]:
            left.subscribe([topic])
            poll_until([left], lambda read: bool(read[0]))
            left.commit(asynchronous=False)
        groups = ("static", "classic", "newer", "newer-static", "simple", "left")
        until(
            lambda: {one[0] for one in described(nodes.node, *groups).values()} <= AT_REST,
            "not all have what they shall have",
        )
        before, at = described(nodes.node, *groups), epochs(nodes.node, "newer", "newer-static")
        assert [len(before[name][3]) for name in groups] == [2, 1, 2, 2, 0, 0]
        with_places = ("classic", "newer", "simple", "left")
        kept = {name: places(nodes.node, name, topic) for name in with_places}
        assert (kept["classic"][3], kept["newer"][3]) == ((8, "note 3"), (9, "note 3"))
        for _ in row[1:]:
            node = nodes.hand_on()
            assert after_heartbeats(node, at) == at, "groups are shared out anew"
            with contextlib.suppress(AssertionError):
                until(lambda: described(nodes.node, *groups) == before, "they are not as before")
            assert described(node, *groups) == before
            assert {name: places(node, name, topic) for name in kept} == kept
        stack.close()


@both_ways
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_static_member_comes_back_to_the_other_broker(
    row: tuple[str, ...], protocol: str, tmp_path: Path
) -> None:
    """It has its partitions again, and the other member keeps its own and its id."""
    with Row(row, tmp_path) as nodes, contextlib.ExitStack() as stack:
        topic = filled(nodes.node, "comes-back")
        settings = {"session_timeout_ms": 180_000, "group_protocol": protocol}

        def member(name: str) -> Any:
            own = settings | {"group_instance_id": name}
            [one] = stack.enter_context(members(nodes.node, "till", 1, **own))
            one.subscribe([topic])
            return one

        def by_name(node: Node) -> dict[str, tuple[str, Any]]:
            [(_, _, _, found)] = described(node, "till").values()
            return {about[2]: (member_id, about[3]) for member_id, about in found.items()}

        both = [member("a"), member("b")]
        poll_until(both, lambda _: [len(c.assignment()) for c in both] == [2, 2])
        before = by_name(nodes.node)
        both[0].close()  # as in a restart: a static member does not leave
        node = nodes.hand_on()
        again = member("a")
        poll_until([again, both[1]], lambda _: len(again.assignment()) == 2)
        after = by_name(node)
        assert after["b"] == before["b"]
        assert after["a"][1] == before["a"][1]
        stack.close()


@both_ways
def test_a_compacted_log_of_places_is_read_by_the_other_broker(
    row: tuple[str, ...], tmp_path: Path
) -> None:
    internal = "__consumer_offsets"
    settings = QUICK | {
        "offsets.topic.num.partitions": "1",
        "offsets.topic.segment.bytes": str(1 << 20),
    }
    partitions, rounds = 50, 350
    with Row(row, tmp_path, settings) as nodes:
        node = nodes.node
        topic = create_topic(node.bootstrap, "compacted-places", partitions=partitions)
        transaction(producer_of(node, "in-between"), topic, ["x", "y"], commit=True)
        groups = ["often", "forgotten", "once"]
        with contextlib.ExitStack() as stack:
            often, forgotten, once = [
                stack.enter_context(members(node, group, 1))[0] for group in groups
            ]
            everywhere = [
                TopicPartition(topic, index, 3, metadata="once") for index in range(partitions)
            ]
            commit(once, everywhere)
            commit(forgotten, everywhere)
            for number in range(rounds):
                wanted = [TopicPartition(topic, p, number + p) for p in range(partitions)]
                often.commit(offsets=wanted, asynchronous=False)
                if number == rounds // 2:
                    admin = AdminClient({"bootstrap.servers": node.bootstrap})
                    admin.delete_consumer_groups(["forgotten"])["forgotten"].result(60)
        wait_until_clean(node, internal, 10_000)
        node.stop()  # the next one compacts on
        size = sum(path.stat().st_size for path in node.data.glob(f"{internal}-0/*.log"))
        assert size < 1 << 20, "two thirds of what was written are gone"
        node = nodes.hand_on()
        with contextlib.ExitStack() as stack:
            asking = [stack.enter_context(members(node, group, 1))[0] for group in groups]
            found = [[place.offset for place in found_places(one, everywhere)] for one in asking]
        invalid = confluent_kafka.OFFSET_INVALID
        assert found == [
            [rounds - 1 + index for index in range(partitions)],
            [invalid] * partitions,
            [3] * partitions,
        ]
