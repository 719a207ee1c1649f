"""Apache Kafka reads the files that the broker wrote: logs, indexes, snapshots, metadata."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import aiokafka
import pytest
from confluent_kafka.admin import AdminClient

from tests.interop.brokers import Node, make_node
from tests.interop.clients import ALL_COMPRESSIONS
from tests.interop.java_session import JavaSession
from tests.interop.topics import create_topic

DUMP = "org.apache.kafka.tools.DumpLogSegments"
TROUBLE = re.compile(
    r"isvalid: false|mismatch|non-?consecutive|invalid|not monotonic|corrupt|exception|error",
    re.IGNORECASE,
)
RECORDS = 4000
SEGMENT_BYTES = 1 << 20  # the smallest that Kafka 4 allows


@pytest.fixture(scope="module", params=["stopped", "killed"])
def written(
    target: str, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Path]:
    """The data folder of a broker that has ended, by SIGTERM or (after a restart) by kill -9."""
    node = make_node(target, tmp_path_factory.mktemp(f"files-{request.param}"))
    node.start()
    for compression in ALL_COMPRESSIONS:
        topic = create_topic(
            node.bootstrap,
            f"dump-{compression}",
            config={"segment.bytes": str(SEGMENT_BYTES)},
        )
        asyncio.run(fill(node, topic, compression))
    change_metadata(node)
    if request.param == "killed":
        node.kill()
        node.start()  # indexes are rebuilt where they were not whole
    node.stop()
    yield node.data


async def fill(node: Node, topic: str, compression: str) -> None:
    """About 5 MB uncompressed in batches of many sizes.

    By aiokafka, because librdkafka leaves a batch as it is where compression gains nothing.
    """
    producer = aiokafka.AIOKafkaProducer(
        bootstrap_servers=node.bootstrap,
        compression_type=None if compression == "none" else compression,
        enable_idempotence=True,
        max_batch_size=50_000,
        linger_ms=5,
    )
    async with producer:
        for number in range(RECORDS):
            # Hexadecimal digits of a multiplier chain: text that compresses only by half.
            noise = f"{pow(7, number, 2**400):x}" * (number % 24)
            headers = [("n", b"%d" % number)]
            value, key = f"{number} {noise}".encode(), b"key-%d" % number
            await producer.send(topic, value, key, partition=0, headers=headers)
            if number % 700 == 0:
                await producer.flush()
        await producer.flush()


def change_metadata(node: Node) -> None:
    """Something of each kind of record that a node of one writes."""
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    create_topic(node.bootstrap, "kept", partitions=7, config={"cleanup.policy": "compact"})
    gone = create_topic(node.bootstrap, "gone")
    for deleted in admin.delete_topics([gone]).values():
        deleted.result(30)


def files(data: Path, pattern: str) -> str:
    found = sorted(str(path) for path in data.glob(pattern))
    assert found, f"no {pattern} in {data}"
    return ",".join(found)


@pytest.mark.parametrize("compression", ALL_COMPRESSIONS)
def test_logs_are_read_record_by_record(written: Path, java: JavaSession, compression: str) -> None:
    logs = files(written, f"dump-{compression}-*/*.log")
    dumped = java.run(DUMP, "--files", logs, "--deep-iteration", "--print-data-log")
    assert not TROUBLE.search(strip_payloads(dumped))
    offsets = [int(offset) for offset in re.findall(r"^\| offset: (\d+)", dumped, re.MULTILINE)]
    assert offsets == list(range(RECORDS))
    assert set(re.findall(r"compresscodec: (\w+)", dumped)) == {compression}
    if compression == "none":
        assert logs.count(",") >= 2, "the log was rolled by size"


def strip_payloads(dumped: str) -> str:
    return re.sub(r"payload: .*", "", dumped)


def test_offset_indexes_point_at_their_batches(written: Path, java: JavaSession) -> None:
    for check in ("--verify-index-only", "--index-sanity-check"):
        checked = java.run(DUMP, "--files", files(written, "dump-*/*.index"), check)
        assert not TROUBLE.search(checked)
        if check == "--index-sanity-check":
            assert checked.count("passed sanity check") == len(list(written.glob("dump-*/*.index")))
    entries = java.run(DUMP, "--files", files(written, "dump-none-*/*.index"))
    assert len(re.findall(r"^offset: \d+ position: \d+", entries, re.MULTILINE)) > 50


def test_time_indexes_point_at_their_records(written: Path, java: JavaSession) -> None:
    for check in ("--verify-index-only", "--index-sanity-check"):
        checked = java.run(DUMP, "--files", files(written, "dump-*/*.timeindex"), check)
        assert not TROUBLE.search(checked)
    entries = java.run(DUMP, "--files", files(written, "dump-none-*/*.timeindex"))
    assert len(re.findall(r"^timestamp: \d+ offset: \d+", entries, re.MULTILINE)) > 3


def test_producer_snapshots_name_the_idempotent_producer(written: Path, java: JavaSession) -> None:
    snapshots = files(written, "dump-none-*/*.snapshot")
    dumped = java.run(DUMP, "--files", snapshots)
    assert not TROUBLE.search(dumped)
    last = [line for line in dumped.splitlines() if line.startswith("producerId:")][-1]
    assert re.search(r"producerEpoch: 0 .*lastSequence: 3999 lastOffset: 3999", last), last


def test_the_metadata_log_is_decoded_record_by_record(written: Path, java: JavaSession) -> None:
    log = files(written, "__cluster_metadata-0/*.log")
    dumped = java.run(DUMP, "--files", log, "--cluster-metadata-decoder")
    assert not TROUBLE.search(re.sub(r'"\w*(exception|error)\w*"', "", dumped, flags=re.I))
    kinds = set(re.findall(r'payload: \{"type":"(\w+)"', dumped))
    assert kinds >= {
        "FEATURE_LEVEL_RECORD",
        "REGISTER_BROKER_RECORD",
        "TOPIC_RECORD",
        "PARTITION_RECORD",
        "CONFIG_RECORD",
        "REMOVE_TOPIC_RECORD",
        "PRODUCER_IDS_RECORD",
    }
    assert "LeaderChange" in dumped
    for name in [f"dump-{compression}" for compression in ALL_COMPRESSIONS] + ["kept", "gone"]:
        assert f'"name":"{name}-' in dumped


def test_snapshots_of_the_metadata_are_decoded(written: Path, java: JavaSession) -> None:
    found = sorted(written.glob("__cluster_metadata-0/*.checkpoint"))
    found += sorted(written.glob("bootstrap.checkpoint"))
    assert found
    for path in found:
        dumped = java.run(DUMP, "--files", str(path), "--cluster-metadata-decoder")
        assert not TROUBLE.search(dumped)
    first = written / "__cluster_metadata-0" / f"{0:020}-{0:010}.checkpoint"
    dumped = java.run(DUMP, "--files", str(first), "--cluster-metadata-decoder")
    assert "SnapshotHeader" in dumped and "KRaftVoters" in dumped and "KRaftVersion" in dumped
