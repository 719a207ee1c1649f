"""A data folder changes hands: what coordinators keep in it (members, places, transactions, groups
of kinds that Headrace does not serve) and what the controller keeps of users and limits.

`test_data_folders.py` does the same for records and topics, `test_groups.py` for a consumer that
reads on, `test_authorization.py` for access control entries. With TARGET=apache all nodes are
Apache Kafka's, to check the tests themselves.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.cli.dump.internal_topics import OTHER_GROUPS
from headrace.client import Admin
from headrace.client.transactional_ids import TransactionDescription
from headrace.protocol import record_batch
from tests.interop.brokers import TARGET, Node, make_node
from tests.interop.ecosystem import EcosystemSession, properties
from tests.interop.java_session import JavaSession
from tests.interop.test_compaction import QUICK, wait_until_clean
from tests.interop.test_groups import PARTITIONS, filled, members, poll_until
from tests.interop.test_quotas import configs
from tests.interop.test_transactions import producer_of, read, transaction
from tests.interop.topics import create_topic

pytestmark = pytest.mark.timeout(400)
TOOLS = "org.apache.kafka.tools"
WITHIN_S = 60.0
both_ways = pytest.mark.parametrize(
    "row", [("headrace", "apache"), ("apache", "headrace")], ids="-".join
)
and_back = pytest.mark.parametrize(
    "row", [("headrace", "apache", "headrace"), ("apache", "headrace", "apache")], ids="-".join
)


class Row:
    """Nodes that run one after the other on one folder, at one address."""

    def __init__(
        self, kinds: tuple[str, ...], folder: Path, settings: dict[str, str] | None = None
    ) -> None:
        self._nodes = [
            make_node(kind if TARGET == "headrace" else TARGET, folder / str(step), settings)
            for step, kind in enumerate(kinds)
        ]
        self._at = 0
        self._nodes[0].start()

    @property
    def node(self) -> Node:
        return self._nodes[self._at]

    def hand_on(self) -> Node:
        before = self.node
        before.stop()
        self._at += 1
        self.node.take_over(before)
        self.node.start()
        return self.node

    def __enter__(self) -> Row:
        return self

    def __exit__(self, *_: object) -> None:
        self.node.kill()


def until(true: Callable[[], object], what: str) -> None:
    """Apache Kafka answers requests before its coordinators have read their logs."""
    deadline = time.monotonic() + WITHIN_S
    while True:
        with contextlib.suppress(confluent_kafka.KafkaException):
            if true():
                return
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


def found_places(consumer: Any, wanted: list[TopicPartition]) -> list[TopicPartition]:
    found: list[TopicPartition] = []
    until(lambda: found.extend(consumer.committed(wanted, timeout=10)) or found, "no places")
    return found


# ---- groups


def described(node: Node, *groups: str) -> dict[str, Any]:
    """State, type, assignor, and of each member all but when it came."""
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    found = {}
    for name, future in admin.describe_consumer_groups(list(groups)).items():
        group = future.result(30)
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
    commit(
        consumer,
        [
            TopicPartition(topic, index, offset, metadata=f"note {index}")
            for index, offset in enumerate(offsets)
        ],
    )


def commit(consumer: Any, offsets: list[TopicPartition]) -> None:
    until(lambda: consumer.commit(offsets=offsets, asynchronous=False), "no commit")


@and_back
def test_members_and_places_of_every_kind_of_group_are_found_as_they_were(
    row: tuple[str, ...], tmp_path: Path
) -> None:
    """Nobody has to join again: ids, assignments and instances are what they were."""
    with Row(row, tmp_path) as nodes, contextlib.ExitStack() as stack:
        topic = filled(nodes.node, "handed-on")
        patient: dict[str, Any] = {"session_timeout_ms": 45_000}

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
        joined("newer", 2, "^handed-on-.*", group_protocol="consumer")
        joined("newer-static", 2, topic, group_protocol="consumer", group_instance_id="desk")
        commit_with_notes(classic, topic, [5, 6, 7, 8])
        with members(nodes.node, "simple", 1) as [alone]:
            commit_with_notes(alone, topic, [1, 2, 3, 4])
        with members(nodes.node, "left", 1) as [left]:
            left.subscribe([topic])
            poll_until([left], lambda read: bool(read[0]))
            left.commit(asynchronous=False)
        groups = ("static", "classic", "newer", "newer-static", "simple", "left")
        before = described(nodes.node, *groups)
        assert [len(before[name][3]) for name in groups] == [2, 1, 2, 2, 0, 0]
        kept = {name: places(nodes.node, name, topic) for name in ("classic", "simple", "left")}
        assert kept["classic"][3] == (8, "note 3")
        for _ in row[1:]:
            node = nodes.hand_on()
            # Groups of the newer protocol are shared out once more, to the same end.
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
        settings = {"session_timeout_ms": 45_000, "group_protocol": protocol}

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
                    admin.delete_consumer_groups(["forgotten"])["forgotten"].result(30)
        wait_until_clean(node, internal, 10_000)
        node = nodes.hand_on()
        size = sum(path.stat().st_size for path in node.data.glob(f"{internal}-0/*.log"))
        assert size < 1 << 20, "two thirds of what was written are gone"
        with contextlib.ExitStack() as stack:
            asking = [stack.enter_context(members(node, group, 1))[0] for group in groups]
            found = [[place.offset for place in found_places(one, everywhere)] for one in asking]
        invalid = confluent_kafka.OFFSET_INVALID
        assert found == [
            [rounds - 1 + index for index in range(partitions)],
            [invalid] * partitions,
            [3] * partitions,
        ]


# ---- transactions


def state_of(node: Node, transactional_id: str) -> TransactionDescription:
    found = Admin(node.bootstrap).transactions.describe(transactional_id)
    found.coordinator = ""
    return found


@both_ways
def test_open_transactions_end_at_the_other_broker(
    row: tuple[str, ...], tmp_path: Path, java: JavaSession
) -> None:
    """One is committed by its producer, with the offsets it holds; a forgotten one is aborted by
    its time-out; identities and epochs go on.
    """
    quick = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}
    patient = {"message.timeout.ms": 60_000, "transaction.timeout.ms": 60_000}
    with Row(row, tmp_path, quick) as nodes, contextlib.ExitStack() as stack:
        node = nodes.node
        topic = create_topic(node.bootstrap, "open", partitions=2)
        transaction(producer_of(node, "done"), topic, ["aborted"], commit=False)
        transaction(producer_of(node, "done"), topic, ["done"], commit=True)
        perform(java, node, topic, "java")
        [reader] = stack.enter_context(
            members(node, "copies", 1, isolation_level="read_uncommitted")
        )
        [careful] = stack.enter_context(
            members(node, "copies", 1, isolation_level="read_committed")
        )
        place = [TopicPartition(topic, 1, 1)]
        commit(reader, place)
        copier = producer_of(node, "copier", **patient)
        copier.begin_transaction()
        copier.produce(topic, b"copied", partition=1)
        further = [TopicPartition(topic, 1, 2, metadata="by the copier")]
        copier.send_offsets_to_transaction(further, reader.consumer_group_metadata(), 30)
        assert copier.flush(30) == 0
        late = producer_of(node, "late", **dict.fromkeys(patient, 10_000))
        late.begin_transaction()
        late.produce(topic, b"late", partition=0)
        assert late.flush(30) == 0
        before = {name: state_of(node, name) for name in ("done", "copier", "java")}
        assert before["copier"].state == "Ongoing"

        node = nodes.hand_on()
        assert {name: state_of(node, name) for name in before} == before
        assert found_places(reader, place)[0].offset == 1
        with pytest.raises(confluent_kafka.KafkaException):  # it waits for the copier
            careful.committed(place, 1.5)
        until(lambda: state_of(node, "late").state == "CompleteAbort", "it is not aborted by time")
        with pytest.raises(confluent_kafka.KafkaException):
            late.commit_transaction(30)
        copier.commit_transaction(30)
        [now] = found_places(careful, place)
        assert (now.offset, now.metadata) == (2, "by the copier")
        assert set(read(node, topic)) >= {"done", "copied"}
        assert not {"aborted", "late"} & set(read(node, topic))

        transaction(producer_of(node, "done"), topic, ["goes on"], commit=True)
        perform(java, node, topic, "java")
        after = {name: state_of(node, name) for name in before}
        for name, state in after.items():
            assert state.producer_id == before[name].producer_id
        assert after["done"].producer_epoch == before["done"].producer_epoch + 1
        assert after["java"].producer_epoch > before["java"].producer_epoch + 1  # KIP-890
        assert "goes on" in read(node, topic)
        stack.close()


def perform(java: JavaSession, node: Node, topic: str, transactional_id: str) -> None:
    """Some transactions of Apache's own producer, which bumps its epoch in each (KIP-890)."""
    java.run(
        f"{TOOLS}.ProducerPerformance",
        *("--topic", topic, "--num-records", "40", "--record-size", "10"),
        *("--throughput", "400", "--transaction-duration-ms", "20"),
        *("--transactional-id", transactional_id),
        *("--producer-props", f"bootstrap.servers={node.bootstrap}"),
    )


# ---- kinds of groups that Headrace does not serve


def foreign_records(data: Path) -> dict[bytes, bytes | None]:
    """The last value of each key in the log of groups that is of another kind."""
    found: dict[bytes, bytes | None] = {}
    for path in sorted(data.glob("__consumer_offsets-*/*.log")):
        log = path.read_bytes()
        for position, header in record_batch.headers_in(log):
            if header.is_control:
                continue
            for record in record_batch.walk(log[position : position + header.size], 1 << 20):
                assert record.key is not None
                if OTHER_GROUPS.decode(record.key, None) is not None:
                    found[record.key] = record.value
    return found


@pytest.fixture(scope="module")
def streams(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EcosystemSession]:
    with EcosystemSession(tmp_path_factory.mktemp("streams-classes")) as session:
        yield session


def test_share_and_streams_groups_wait_for_apache_to_come_back(
    tmp_path: Path, streams: EcosystemSession
) -> None:
    settings = {"offsets.topic.num.partitions": "1", "share.coordinator.state.topic.min.isr": "1"}
    with Row(("apache", "headrace", "apache"), tmp_path, settings) as nodes:
        node = nodes.node
        topic = create_topic(node.bootstrap, "shared")
        put(node, topic, range(20))
        share_from_the_start(streams, node)
        assert shared(streams, node, topic, 8) == list(range(8))
        run_a_streams_application(streams, node, tmp_path)
        listed = [one for one in groups_of(streams, node) if one[1] in ("Share", "Streams")]
        assert len(listed) == 2
        before = foreign_records(node.data)
        assert len(before) > 5

        node = nodes.hand_on()
        put(node, topic, range(20, 25))
        with members(node, "ours", 1) as [consumer]:
            consumer.subscribe([topic])
            poll_until([consumer], lambda read: len(read[0]) == 25)
            consumer.commit(asynchronous=False)
        assert "ours" in {name for name, _ in groups_of(streams, node)}
        for protocol in ("classic", "consumer"):  # else Apache could not load this partition
            with members(node, "sharing", 1, group_protocol=protocol) as [intruder]:
                intruder.subscribe([topic])
                until(lambda one=intruder: is_refused(one), "the name of a share group is free")  # type: ignore[misc]

        node = nodes.hand_on()
        assert foreign_records(node.data) == before
        until(lambda: set(groups_of(streams, nodes.node)) >= set(listed), "groups are missing")
        assert shared(streams, node, topic, 17) == list(range(8, 25))


def is_refused(consumer: Any) -> bool:
    message = consumer.poll(0.2)
    return message is not None and message.error() is not None


def put(node: Node, topic: str, numbers: range) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": node.bootstrap})
    for number in numbers:
        producer.produce(topic, b"%d" % number)
    assert producer.flush(30) == 0


def share_from_the_start(java: JavaSession, node: Node) -> None:
    who = ("--entity-type", "groups", "--entity-name", "sharing")
    configs(java, node, *who, "--alter", "--add-config", "share.auto.offset.reset=earliest")


def shared(java: JavaSession, node: Node, topic: str, count: int) -> list[int]:
    """What a member of the share group gets, one run of Apache's console tool."""
    printed = java.run(
        f"{TOOLS}.consumer.ConsoleShareConsumer",
        *("--bootstrap-server", node.bootstrap, "--topic", topic, "--group", "sharing"),
        *("--max-messages", str(count), "--timeout-ms", "30000"),
    )
    return sorted(int(line) for line in printed.split())


def groups_of(java: JavaSession, node: Node) -> list[tuple[str, str]]:
    """Name and type of every group, as Apache's tool lists them."""
    printed = java.run(f"{TOOLS}.GroupsCommand", "--bootstrap-server", node.bootstrap, "--list")
    return re.findall(r"^(\S+)\s+(Classic|Consumer|Share|Streams)\b", printed, re.MULTILINE)


def run_a_streams_application(java: JavaSession, node: Node, folder: Path) -> None:
    """Apache's own test program, as a group of the streams protocol (KIP-1071)."""
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    names = ("brokerCompatibilitySourceTopic", "brokerCompatibilitySinkTopic")
    for created in admin.create_topics([NewTopic(name, 1, 1) for name in names]).values():
        created.result(20)
    settings = {
        "bootstrap.servers": node.bootstrap,
        "state.dir": str(folder),
        "group.protocol": "streams",
    }
    path = properties(folder / "streams.properties", settings)
    program = "org.apache.kafka.streams.tests.BrokerCompatibilityTest"
    assert "close Kafka Streams" in java.run(program, path, "at_least_once")


# ---- users and limits


@and_back
def test_users_quotas_and_settings_of_groups_are_handed_on(
    row: tuple[str, ...], tmp_path: Path, java: JavaSession
) -> None:
    """Each node shows what the ones before were told, and is told something itself."""

    def everything(node: Node) -> list[str]:
        told = []
        for kind in ("users", "clients", "ips", "groups"):
            told += configs(java, node, "--entity-type", kind, "--describe").splitlines()
        told += configs(
            java, node, "--entity-type", "brokers", "--entity-default", "--describe"
        ).splitlines()
        # Apache Kafka tells the two kinds of passwords in any order.
        return sorted(" ".join(sorted(line.replace(",", " ").split())) for line in told)

    with Row(row, tmp_path) as nodes:
        before: list[str] = []
        for step in range(len(row)):
            node = nodes.hand_on() if step else nodes.node
            if step:
                assert everything(node) == before
            for kind, name, given in (
                ("users", f"ann-{step}", "SCRAM-SHA-256=[iterations=8192,password=secret]"),
                ("users", f"ann-{step}", "SCRAM-SHA-512=[iterations=4096,password=other]"),
                ("users", f"bob-{step}", "producer_byte_rate=1024"),
                ("clients", f"web-{step}", "consumer_byte_rate=2048"),
                ("ips", f"10.0.0.{step}", "connection_creation_rate=9"),
                ("groups", f"late-{step}", "consumer.session.timeout.ms=50000"),
            ):
                who = ("--entity-type", kind, "--entity-name", name)
                configs(java, node, *who, "--alter", "--add-config", given)
            everybody = ("--entity-type", "brokers", "--entity-default")
            configs(java, node, *everybody, "--alter", "--add-config", f"message.max.bytes={step}9")
            before = everything(node)
            assert len([line for line in before if f"-{step}" in line]) >= 4, before
