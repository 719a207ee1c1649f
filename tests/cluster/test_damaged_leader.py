"""Three brokers as processes: a leader whose log is damaged gives way while clients work."""

from __future__ import annotations

from pathlib import Path

from confluent_kafka import Consumer

from headrace.testing import Cluster
from tests.cluster.partition import create_led_by, in_sync, lead_again, leader
from tests.cluster.test_a_leader_dies import Writer
from tests.patience import until

DAMAGED, OTHERS = 2, (1, 3)
SEGMENT_BYTES = 1 << 20  # the smallest that topics may have
PADDING = 1_000  # bytes of each record
ENOUGH = 4_000  # records; more than three segments


def damage_a_batch(folder: Path) -> None:
    """Flip a bit in the base offset of a batch in the middle of the first segment, as a disk may;
    it is not under the checksum."""
    path = folder / "orders-0" / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    position = 0
    while position < len(data) // 2:
        position += 12 + int.from_bytes(data[position + 8 : position + 12], "big")
    data[position + 4] ^= 1
    path.write_bytes(data)


def test_readers_and_writers_go_on_beside_a_damaged_leader(tmp_path: Path) -> None:
    data = tmp_path / "data-2"
    with Cluster(data=tmp_path / "data") as cluster:
        create_led_by(cluster, DAMAGED, *OTHERS, **{"segment.bytes": str(SEGMENT_BYTES)})
        writer = Writer(cluster, "orders", padding=PADDING, batch=50)
        writer.write_until(ENOUGH)
        cluster.stop_node(DAMAGED)
        damage_a_batch(data)
        cluster.restore(DAMAGED)
        until(lambda: in_sync(cluster, asked=1) == {1, 2, 3})
        lead_again(cluster, DAMAGED)
        found: list[int] = []
        reader = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "group.id": "readers",
                "auto.offset.reset": "earliest",
            }
        )
        reader.subscribe(["orders"])
        while len(found) < ENOUGH:
            writer.write_until(len(writer.acknowledged) + 10)
            for message in reader.consume(1_000, 1.0):
                assert message.error() is None, "the new leader answers, without a word of damage"
                found.append(int(message.value() or b""))
        until(lambda: leader(cluster, asked=1) in OTHERS)
        until(lambda: in_sync(cluster, asked=1) == {1, 2, 3})
        writer.finish()
        assert writer.refused == []
        while len(found) < len(writer.acknowledged):
            found += [int(each.value() or b"") for each in reader.consume(1_000, 1.0)]
        reader.close()
        assert found == writer.acknowledged == list(range(len(found))), "in order, each one once"
        assert "this broker gives its leadership" in cluster.log(DAMAGED)
