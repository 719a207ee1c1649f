"""Spark's connector copies from topic to topic on three brokers while one of them is killed."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import NewTopic

from tests.interop.brokers import TARGET
from tests.interop.test_ecosystem_spark import PARTITIONS, Spark, put
from tests.soak.three_nodes import ThreeNodes, wait_until

COUNT = 400


@pytest.mark.full
def test_a_copy_survives_the_death_of_a_broker(tmp_path: Path) -> None:
    with ThreeNodes(TARGET, tmp_path) as cluster:
        for name in ("source", "copy"):
            topic = NewTopic(name, PARTITIONS, 3)
            cluster.admin.create_topics([topic])[name].result(60)
        cluster.wait_in_sync()
        producer = Producer({"bootstrap.servers": cluster.bootstrap})
        put(producer, "source", range(COUNT))
        assert producer.flush(60) == 0
        any_node: Any = cluster
        spark = Spark(any_node, tmp_path)
        try:
            options = {
                "subscribe": "source",
                "startingOffsets": "earliest",
                "maxOffsetsPerTrigger": "20",
            }
            copying = threading.Thread(
                target=lambda: spark.ask("copy", options=options, name="copy", sink="copy")
            )
            copying.start()
            leader = cluster.admin.list_topics("copy", timeout=30).topics["copy"].partitions[0]
            wait_until(lambda: copied(cluster) > 0, "Spark copies nothing")
            cluster.members[leader.leader - 1].kill()
            copying.join(300)
            assert not copying.is_alive(), "the copy never ended"
            found = spark.ask("batch", options={"subscribe": "copy"})
        finally:
            spark.end()
    # Spark's sink writes at least once: what was under way at the death may be there twice.
    assert {row["value"] for row in found} == {f"WORD {n}" for n in range(COUNT)}
    assert len(found) < 2 * COUNT


def copied(cluster: ThreeNodes) -> int:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "looks"})
    try:
        return int(
            sum(
                consumer.get_watermark_offsets(TopicPartition("copy", number), timeout=30)[1]
                for number in range(PARTITIONS)
            )
        )
    finally:
        consumer.close()
