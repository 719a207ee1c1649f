"""librdkafka hangs in send_offsets_to_transaction after its broker was restarted; we do not."""

from __future__ import annotations

from pathlib import Path

import confluent_kafka
import pytest

from headrace.client import Admin
from headrace.client.faults import Fault
from headrace.client.intake import GroupMember, GroupOffset
from headrace.client.once.outcome import insist
from headrace.client.records import TopicPartition
from headrace.client.transaction_writer import TransactionWriter
from tests.interop.brokers import HeadraceNode

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
    with HeadraceNode(tmp_path) as node:
        Admin(node.bootstrap).topics.create("payments", partitions=1)
        writer = opened(node.bootstrap)
        group = confluent_kafka.Consumer(
            {"bootstrap.servers": node.bootstrap, "group.id": "copiers", "log_level": 0}
        )
        member = GroupMember(group.consumer_group_metadata())
        writer.begin()
        writer.send("payments", 0, b"k", b"v", None, 0)
        writer.send_offsets(OFFSETS, member, 60)  # so that it knows the coordinator
        writer.commit(60)
        writer.begin()
        writer.send("payments", 0, b"k", b"v", None, 0)
        writer.flush(60)
        node.kill()
        node.start()
        with pytest.raises(Fault, match="hangs") as failed:
            insist(lambda: writer.send_offsets(OFFSETS, member, 1.0), 60)
        assert failed.value.is_fatal and not failed.value.must_abort
        writer.close()
        another = opened(node.bootstrap)  # ends the open transaction
        another.begin()
        another.send("payments", 0, b"k", b"v", None, 0)
        another.send_offsets(OFFSETS, member, 60)
        another.commit(60)
        another.close()
        group.close()
