"""librdkafka hangs in send_offsets_to_transaction after its broker was restarted; we do not."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import confluent_kafka

from headrace.client import Admin
from headrace.client.faults import Fault
from headrace.client.intake import GroupMember, GroupOffset
from headrace.client.once.outcome import insist
from headrace.client.records import TopicPartition
from headrace.client.transaction_writer import TransactionWriter
from tests.interop.brokers import HeadraceNode

# Nearly always the first one is enough.
MOST_RESTARTS = 10
OFFSETS = [GroupOffset(TopicPartition("payments", 0), 1, "")]


def opened(bootstrap: str) -> TransactionWriter:
    writer = TransactionWriter(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": "copier",
            # The default of librdkafka, which hangs at the first restart of its only broker;
            # with "none" it takes a cluster and many restarts.
            "metadata.recovery.strategy": "rebootstrap",
            "log_level": 0,
        }
    )
    writer.take_over(60)
    return writer


def test_a_writer_is_given_up_when_its_offsets_are_never_sent(tmp_path: Path) -> None:
    with HeadraceNode(tmp_path) as node, ExitStack() as at_the_end:
        Admin(node.bootstrap).topics.create("payments", partitions=1)
        writer = opened(node.bootstrap)
        at_the_end.callback(writer.close)
        group = confluent_kafka.Consumer(
            {"bootstrap.servers": node.bootstrap, "group.id": "copiers", "log_level": 0}
        )
        at_the_end.callback(group.close)
        member = GroupMember(group.consumer_group_metadata())
        copy_one(writer, member)  # so that it knows the coordinator
        given_up = None
        for _ in range(MOST_RESTARTS):
            writer.begin()
            writer.send("payments", 0, b"k", b"v", None, 0)
            writer.flush(60)
            node.kill()
            node.start()
            try:
                insist(lambda: writer.send_offsets(OFFSETS, member, 1.0), 60)
            except Fault as fault:
                given_up = fault
                break
            writer.commit(60)
        assert given_up is not None and "hangs" in str(given_up)
        assert given_up.is_fatal and not given_up.must_abort
        another = opened(node.bootstrap)  # ends the open transaction
        at_the_end.callback(another.close)
        copy_one(another, member)


def copy_one(writer: TransactionWriter, member: GroupMember) -> None:
    writer.begin()
    writer.send("payments", 0, b"k", b"v", None, 0)
    writer.send_offsets(OFFSETS, member, 60)
    writer.commit(60)
