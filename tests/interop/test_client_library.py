"""headrace.client on both brokers: groups of each protocol, transactions, administration."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from headrace.client import (
    Admin,
    AsyncConsumer,
    AsyncProducer,
    ClientError,
    Consumer,
    DeliveryFailed,
    Fenced,
    LoginRefused,
    Misuse,
    PollTooSlow,
    Producer,
    TopicPartition,
    TransactionAborted,
)
from headrace.client.connection import ClientSettings
from headrace.client.wire import Wire
from tests.interop.brokers import ApacheNode, Node, make_node
from tests.patience import until

_names = (f"name-{number}" for number in itertools.count())

# How each group protocol is asked for; heartbeats often, so that rebalances are heard of soon.
PROTOCOLS: dict[str, dict[str, Any]] = {
    "eager": {"partition.assignment.strategy": "range,roundrobin", "heartbeat.interval.ms": 200},
    "cooperative": {
        "partition.assignment.strategy": "cooperative-sticky",
        "heartbeat.interval.ms": 200,
    },
    "kip-848": {"group.protocol": "consumer"},
}


@pytest.fixture(scope="module", params=["headrace", "apache"])
def at(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    settings = {"group.consumer.heartbeat.interval.ms": "200"}
    settings |= {"group.consumer.min.heartbeat.interval.ms": "200"}
    settings |= {"group.min.session.timeout.ms": "500"}
    settings |= {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "100"}
    folder = tmp_path_factory.mktemp(request.param)
    node: Node = make_node(request.param, folder, settings)
    with node:
        yield node.bootstrap


def new_topic(at: str, *, records: int = 0, partitions: int = 1) -> str:
    topic = next(_names)
    Admin(at).topics.create(topic, partitions=partitions, replication=1)
    with Producer(at) as producer:
        for number in range(records):
            producer.send(topic, str(number), partition=number % partitions)
    return topic


def committed_values(at: str, topic: str, count: int) -> list[bytes | None]:
    """So many values that a read_committed reader sees, and that no more follow."""
    with Consumer(at) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        found = [record.value for record in islice(consumer, count)]
        assert consumer.poll(0.3) is None
        return found


# ---- groups


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_members_share_partitions_and_go_on_where_others_stopped(at: str, protocol: str) -> None:
    topic, group = new_topic(at, records=40, partitions=4), next(_names)
    told: list[tuple[str, int]] = []

    def member() -> Consumer:
        return Consumer(
            at,
            topics=[topic],
            group=group,
            settings=PROTOCOLS[protocol],
            on_assigned=lambda places: told.append(("assigned", len(places))),
            on_revoked=lambda places: told.append(("revoked", len(places))),
        )

    first = member()
    seen = [(r.partition, r.offset) for r in islice(first, 20)]
    first.commit()
    assert told[0][0] == "assigned"
    second = member()
    while not (len(first.assignment()) == len(second.assignment()) == 2):
        seen += [(r.partition, r.offset) for r in (*first.batch(timeout_s=0.05),)]
        if seen[20:]:
            with contextlib.suppress(ClientError):  # between two generations: with the next records
                first.commit()
        seen += [(r.partition, r.offset) for r in (*second.batch(timeout_s=0.05),)]
    assert ("revoked", 2 if protocol != "eager" else 4) in told
    first.close()

    def committed() -> dict[TopicPartition, int | None]:
        with contextlib.suppress(ClientError):  # as a commit
            return second.committed()
        return {}

    all_of_it = {TopicPartition(topic, n): 10 for n in range(4)}
    while len(set(seen)) < 40 or committed() != all_of_it:
        seen += [(r.partition, r.offset) for r in second.batch(timeout_s=0.2)]
        with contextlib.suppress(ClientError):
            second.commit()
    second.close()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_seek_inside_on_assigned_is_where_reading_begins(at: str, protocol: str) -> None:
    topic = new_topic(at, records=10)
    place = TopicPartition(topic, 0)

    def to_the_seventh(places: list[TopicPartition]) -> None:
        for one in places:
            consumer.seek(one, 7)

    consumer: Consumer = Consumer(
        at,
        topics=[topic],
        group=next(_names),
        settings=PROTOCOLS[protocol],
        on_assigned=to_the_seventh,
    )
    with consumer:
        assert next(consumer).offset == 7
        assert consumer.commit() == {place: 8}


def test_a_program_that_polls_too_late_hears_why_and_comes_back(at: str) -> None:
    topic = new_topic(at, records=3)
    lost: list[Any] = []
    settings = {"max.poll.interval.ms": 3000, "session.timeout.ms": 3000}
    settings |= {"heartbeat.interval.ms": 100}
    with Consumer(
        at, topics=[topic], group=next(_names), settings=settings, on_lost=lost.append
    ) as consumer:
        assert next(consumer).offset == 0
        with pytest.raises(PollTooSlow, match=r"max\.poll\.interval\.ms"):
            slowly(consumer)
        assert next(consumer).offset == 0, "nothing was committed"
    assert lost[0] == [TopicPartition(topic, 0)]


def slowly(consumer: Consumer) -> None:
    """Handle each record for longer than the group allows; librdkafka looks twice a second."""
    while True:
        time.sleep(4)
        consumer.poll(0.1)


# ---- transactions


def test_a_transaction_is_visible_as_a_whole_or_not_at_all(at: str) -> None:
    topic = new_topic(at)
    with Producer(at, transactional_id=next(_names)) as producer:
        with producer.transaction():
            future = producer.send(topic, b"a")
            producer.send(topic, b"b")
        assert future.result(0).offset == 0
        with pytest.raises(ValueError, match="no"), producer.transaction():
            producer.send(topic, b"never").result(60)
            raise ValueError("no")
        with pytest.raises(Misuse, match="inside"):
            producer.send(topic, b"outside")
        with producer.transaction():
            producer.send(topic, b"c")
    assert committed_values(at, topic, 3) == [b"a", b"b", b"c"]


def test_records_not_yet_sent_are_dropped_by_an_abort(at: str) -> None:
    topic = new_topic(at)
    settings = {"linger.ms": 30_000}
    with Producer(at, transactional_id=next(_names), settings=settings) as producer:
        with pytest.raises(KeyError), producer.transaction():
            future = producer.send(topic, b"lingers")
            raise KeyError
        with pytest.raises(DeliveryFailed, match="aborted"):
            future.result(60)


def test_an_exactly_once_copy_with_an_abort_in_the_middle(at: str) -> None:
    source, target, group = new_topic(at, records=30), new_topic(at), next(_names)
    failures = iter([False, True, False, True, True])
    with (
        Consumer(at, topics=[source], group=group) as consumer,
        Producer(at, transactional_id=next(_names)) as producer,
    ):
        copied = 0
        while copied < 30:
            batch = consumer.batch(7, timeout_s=5)
            try:
                with producer.transaction(consumer=consumer):
                    for record in batch:
                        producer.send(target, record.value)
                    if next(failures, False):
                        raise RuntimeError("half way")
                copied += len(batch)
            except RuntimeError:
                continue  # the consumer is back where the last transaction left it
    assert committed_values(at, target, 30) == [str(n).encode() for n in range(30)]
    with Consumer(at, group=group) as reader:
        place = TopicPartition(source, 0)
        assert reader.committed([place]) == {place: 30}


def test_an_exactly_once_copy_goes_on_when_its_broker_comes_back(tmp_path: Path) -> None:
    """librdkafka's own default would hang here (docs/reliability-runs.md)."""
    with make_node("headrace", tmp_path / "node") as node:
        source, target = new_topic(node.bootstrap, records=40), new_topic(node.bootstrap)
        with (
            Consumer(node.bootstrap, group="copies", topics=[source]) as consumer,
            Producer(node.bootstrap, transactional_id="copies") as producer,
        ):
            copied, kills = 0, [8, 20, 32]
            while copied < 40:
                batch = consumer.batch(4, timeout_s=5)
                try:
                    with producer.transaction(consumer=consumer):
                        for record in batch:
                            producer.send(target, record.value)
                        if kills and copied >= kills[0]:
                            kills.pop(0)
                            node.kill()
                            node.start()
                    copied += len(batch)
                except TransactionAborted:
                    continue  # the consumer goes back by itself
        assert committed_values(node.bootstrap, target, 40) == [b"%d" % n for n in range(40)]


def test_the_older_of_two_producers_with_one_id_is_fenced(at: str) -> None:
    topic, name = new_topic(at), next(_names)
    with Producer(at, transactional_id=name) as old, Producer(at, transactional_id=name) as new:
        with old.transaction():
            old.send(topic, b"1")
        with new.transaction():
            new.send(topic, b"2")
        with pytest.raises(Fenced, match="taken over"), old.transaction():
            old.send(topic, b"3")
    assert committed_values(at, topic, 2) == [b"1", b"2"]


def test_a_transaction_that_is_open_for_too_long_is_over(at: str) -> None:
    topic, name = new_topic(at), next(_names)
    admin = Admin(at)
    settings = {"transaction.timeout.ms": 6000}
    producer: Producer = Producer(at, transactional_id=name, settings=settings)
    with pytest.raises(Fenced, match=r"transaction\.timeout\.ms"), producer.transaction():
        producer.send(topic, b"late").result(60)
        while admin.transactions.describe(name).state == "Ongoing":
            pass
    producer.close()
    with Producer(at, transactional_id=name) as anew, anew.transaction():
        anew.send(topic, b"in time")
    assert committed_values(at, topic, 1) == [b"in time"]


def test_transactions_for_asyncio(at: str) -> None:
    source, target, group = new_topic(at, records=5), new_topic(at), next(_names)

    async def story() -> None:
        async with (
            AsyncConsumer(at, topics=[source], group=group) as consumer,
            AsyncProducer(at, transactional_id=next(_names)) as producer,
        ):
            with pytest.raises(ZeroDivisionError):
                async with producer.transaction(consumer=consumer):
                    await producer.send(target, b"never")
                    assert await consumer.poll(60) is not None
                    raise ZeroDivisionError
            batch: list[Any] = []
            while len(batch) < 5:
                batch += await consumer.batch(timeout_s=60)
            async with producer.transaction(consumer=consumer):
                for record in batch:
                    await producer.send(target, record.value)
            assert await consumer.committed() == {TopicPartition(source, 0): 5}

    asyncio.run(story())
    assert committed_values(at, target, 5) == [b"0", b"1", b"2", b"3", b"4"]


# ---- administration


def test_open_transactions_are_seen_and_can_be_ended(at: str) -> None:
    topic, name = new_topic(at), next(_names)
    admin = Admin(at)
    with (
        Producer(at, transactional_id=name) as producer,
        pytest.raises(Fenced),
        producer.transaction(),
    ):
        producer.send(topic, b"hangs").result(60)
        (open_one,) = admin.producers(TopicPartition(topic, 0))
        assert open_one.transaction_start_offset == 0
        assert admin.transactions.describe(name).state == "Ongoing"
        assert name in [t.transactional_id for t in admin.transactions.all(["Ongoing"])]
        admin.transactions.abort(name)
    assert name not in [t.transactional_id for t in admin.transactions.all(["Ongoing"])]
    assert committed_values(at, topic, 0) == []


def test_the_quorum_and_the_disks(at: str) -> None:
    topic = new_topic(at, records=3)
    admin = Admin(at)
    (folder,) = admin.cluster.log_folders()
    assert folder.sizes[TopicPartition(topic, 0)] > 60
    (broker,) = admin.cluster.describe().brokers
    quorum = admin.cluster.quorum()
    assert quorum.leader == broker.id
    assert [voter.id for voter in quorum.voters] == [broker.id]


def test_moves_to_where_a_partition_lies_already(at: str) -> None:
    topic = new_topic(at)
    place = TopicPartition(topic, 0)
    admin = Admin(at)
    (broker,) = admin.cluster.describe().brokers
    admin.reassignments.move({place: [broker.id]})
    assert admin.reassignments.all() == []
    admin.reassignments.elect_preferred_leaders([place])
    with pytest.raises(ClientError):
        admin.reassignments.move({place: [99]})


# ---- logging in

JAAS = "org.apache.kafka.common.security"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Apache Kafka behind SASL: ann by PLAIN, who makes bob for SCRAM."""
    node = ApacheNode(tmp_path_factory.mktemp("guarded"))
    mine = 'username="ann" password="a-secret" user_ann="a-secret"'
    node.settings |= {
        "listeners": f"SASL_PLAINTEXT://{node.bootstrap},"
        f"CONTROLLER://127.0.0.1:{node.controller_port}",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "inter.broker.listener.name": "SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
            f"{JAAS}.plain.PlainLoginModule required {mine};"
        ),
        **{
            f"listener.name.sasl_plaintext.scram-sha-{bits}.sasl.jaas.config": (
                f"{JAAS}.scram.ScramLoginModule required;"
            )
            for bits in (256, 512)
        },
    }
    with node:
        yield node.bootstrap


def login(mechanism: str, name: str, password: str) -> dict[str, str]:
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": name,
        "sasl.password": password,
    }


def gets_in(admin: Admin) -> bool:
    """Apache Kafka's broker hears of a user a moment after its controller has answered."""
    try:
        admin.cluster.quorum()
    except LoginRefused:
        return False
    return True


def test_our_own_codecs_log_in_as_librdkafka_does(guarded: str) -> None:
    ann = Admin(guarded, settings=login("PLAIN", "ann", "a-secret"))
    assert ann.cluster.quorum().leader == 1
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        credential = UserScramCredentialUpsertion(
            "bob", ScramCredentialInfo(mechanism, 4096), b"b-secret"
        )
        made = ann.connection.admin()
        made.alter_user_scram_credentials([credential])["bob"].result(60)
    for mechanism_name in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        bob = Admin(guarded, settings=login(mechanism_name, "bob", "b-secret"))
        until(lambda: gets_in(bob))  # noqa: B023
        assert bob.cluster.quorum().leader == 1
        address = bob.cluster.describe().brokers[0].address
        wrong = ClientSettings(bob.connection.settings | {"sasl.password": "guess"})
        with pytest.raises(ClientError, match="[Aa]uthentication failed"):
            Wire(wrong, address)
    with pytest.raises(ClientError, match="does not take OTHER|cannot be made with SASL"):
        Wire(ClientSettings(login("OTHER", "ann", "a-secret")), address)
