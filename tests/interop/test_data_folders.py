"""One data folder, opened by Headrace and by Apache Kafka in turn, after clean stops and kills.

Each node in the row finds everything the ones before it wrote (records, settings, the state of an
idempotent producer), adds its own, and hands the folder on.
"""

from __future__ import annotations

from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, ConfigResource

from tests.interop.brokers import Node, make_node
from tests.interop.clients import ALL_COMPRESSIONS, ConfluentKafka, Record
from tests.interop.topics import create_topic

BASE_TIME = 1_700_000_000_000
SETTINGS = {"max.message.bytes": "2000000", "segment.bytes": "1048576"}
CLIENT = ConfluentKafka()


class Folder:
    """What the data folder must hold by now."""

    def __init__(self) -> None:
        self.topics: dict[str, list[Record]] = {}

    def grow(self, node: Node, step: int) -> None:
        """A new topic with every compression, and more records in all the old ones."""
        new = create_topic(node.bootstrap, f"made-by-{node.name}-{step}", config=SETTINGS)
        self.topics[new] = []
        for topic in self.topics:
            usual = ALL_COMPRESSIONS[step : step + 1]
            for compression in ALL_COMPRESSIONS if topic == new else usual:
                self._add(node, topic, compression, step)

    def _add(self, node: Node, topic: str, compression: str, step: int) -> None:
        known = self.topics[topic]
        records = [
            Record(
                b"%d-%d" % (step, number),
                None if number == 3 else b"x" * 500 * number,
                (("by", node.name.encode()),),
                BASE_TIME + len(known) + number,
            )
            for number in range(40)
        ]
        offsets = CLIENT.produce(node.bootstrap, topic, compression, records)
        assert offsets == list(range(len(known), len(known) + len(records)))
        known += [record.at(offset) for record, offset in zip(records, offsets, strict=True)]

    def check(self, node: Node) -> None:
        admin = AdminClient({"bootstrap.servers": node.bootstrap})
        assert set(admin.list_topics(timeout=60).topics) >= set(self.topics)
        for topic, known in self.topics.items():
            assert CLIENT.consume(node.bootstrap, topic, 0, len(known)) == known
            middle = known[len(known) // 2]
            found = CLIENT.offset_for_time(node.bootstrap, topic, middle.timestamp)
            assert known[found].timestamp >= middle.timestamp
            assert all(r.timestamp < middle.timestamp for r in known[:found])
            self._check_settings(admin, topic)

    def _check_settings(self, admin: AdminClient, topic: str) -> None:
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
        (described,) = admin.describe_configs([resource]).values()
        seen = described.result(60)
        assert {name: seen[name].value for name in SETTINGS} == SETTINGS


@pytest.mark.parametrize(
    "row",
    [
        ["apache stop", "headrace stop", "apache kill", "headrace kill", "apache stop"],
        ["headrace stop", "apache stop", "headrace kill"],
    ],
    ids=["apache begins", "headrace begins"],
)
def test_a_folder_is_handed_on(row: list[str], target: str, tmp_path: Path) -> None:
    folder = Folder()
    before: Node | None = None
    for step, (kind, end) in enumerate(entry.split() for entry in row):
        # With TARGET=apache every node is Apache Kafka's, to check the test itself.
        node = make_node(kind if target == "headrace" else target, tmp_path / str(step))
        if before is not None:
            node.take_over(before)
        with node:
            folder.check(node)
            folder.grow(node, step)
            if end == "stop":
                node.stop()
            else:
                node.kill()
        leave_traces_of_a_repair(node.data)
        before = node


def leave_traces_of_a_repair(data: Path) -> None:
    """What `headrace segment repair` and a start that cut the metadata log keep beside it."""
    metadata = data / "__cluster_metadata-0"
    kept = metadata / "set-aside" / "20261116T220000Z" / "orders-0"
    kept.mkdir(parents=True, exist_ok=True)
    for path in (
        kept / "00000000000000000000.log",
        metadata / "00000000000000000000.log.cut-at-9-1",
    ):
        path.write_bytes(b"damaged")


def test_a_producers_sequence_is_known_to_the_next_node(target: str, tmp_path: Path) -> None:
    """An idempotent producer outlives the change of the broker under it, without a duplicate."""
    first, second = (
        make_node(kind, tmp_path / kind)
        for kind in (("apache", "headrace") if target == "headrace" else ("apache", "apache"))
    )
    first.start()
    topic = create_topic(first.bootstrap, "sequence")
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": first.bootstrap, "enable.idempotence": True, "linger.ms": 0}
    )
    sent = 0
    for node in (first, second):
        if node is second:
            first.stop()
            second.take_over(first)
            second.start()
        for _ in range(20):
            producer.produce(topic, b"%d" % sent, partition=0)
            producer.poll(0)
            sent += 1
        assert producer.flush(180) == 0
    read = CLIENT.consume(second.bootstrap, topic, 0, sent)
    assert [record.value for record in read] == [b"%d" % n for n in range(sent)]
    second.stop()
