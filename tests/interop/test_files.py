"""Apache Kafka reads the files that the broker wrote: logs, indexes, snapshots, metadata, the logs
of groups and transactions; and `headrace segment dump` reads those of Apache Kafka.
"""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import aiokafka
import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient

from headrace.operations.files.dump.files_by_name import CannotRead, rows_of
from headrace.operations.files.dump.rows import Row
from tests.interop.brokers import Node, make_node
from tests.interop.clients import ALL_COMPRESSIONS
from tests.interop.java_session import JavaSession
from tests.interop.test_groups import filled, members, poll_until
from tests.interop.topics import create_topic

DUMP = "org.apache.kafka.tools.DumpLogSegments"
TROUBLE = re.compile(
    r"isvalid: false|mismatch|non-?consecutive|invalid|not monotonic|corrupt|exception|error",
    re.IGNORECASE,
)
RECORDS = 4000
SEGMENT_BYTES = 1 << 20  # the smallest that Kafka 4 allows
FEW_PARTITIONS = {
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
}


@pytest.fixture(scope="module", params=["stopped", "killed"])
def written(
    target: str, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Path:
    """The data folder of a broker that has ended, by SIGTERM or (after a restart) by kill -9."""
    node = make_node(target, tmp_path_factory.mktemp(f"files-{request.param}"), FEW_PARTITIONS)
    node.start()
    for compression in ALL_COMPRESSIONS:
        topic = create_topic(
            node.bootstrap,
            f"dump-{compression}",
            config={"segment.bytes": str(SEGMENT_BYTES)},
        )
        asyncio.run(fill(node, topic, compression))
    change_metadata(node)
    use_coordinators(node)
    if request.param == "killed":
        node.kill()
        node.start()  # indexes are rebuilt where they were not whole
    node.stop()
    return node.data


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
        deleted.result(60)


@pytest.fixture(scope="module")
def apaches(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What Apache Kafka leaves after the same story."""
    node = make_node("apache", tmp_path_factory.mktemp("files-apache"), FEW_PARTITIONS)
    with node:
        topic = create_topic(node.bootstrap, "dump-zstd")
        asyncio.run(fill(node, topic, "zstd"))
        change_metadata(node)
        use_coordinators(node)
        node.stop()
    return node.data


def use_coordinators(node: Node) -> None:
    """Groups of both protocols whose members come and go, places with and without a member, and
    transactions of both ends."""
    topic = filled(node, "coordinated")
    kinds: list[dict[str, str]] = [
        {"partition_assignment_strategy": "range"},
        {"partition_assignment_strategy": "cooperative-sticky", "group_instance_id": "till"},
        {"group_protocol": "consumer"},
        {"group_protocol": "consumer", "group_instance_id": "desk"},
    ]
    for number, settings in enumerate(kinds):
        with members(node, f"dumped-{number}", 1, **settings) as [consumer]:
            consumer.subscribe(["^coordinated-.*" if number == 2 else topic])
            poll_until([consumer], lambda read: bool(read[0]))
            consumer.commit(asynchronous=False)
    place = confluent_kafka.TopicPartition(topic, 1, 7, metadata="a note")
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": node.bootstrap, "transactional.id": "dumped"}
    )
    producer.init_transactions(60)
    with members(node, "dumped-alone", 1) as [alone]:
        alone.commit(offsets=[place], asynchronous=False)
        for end in (producer.commit_transaction, producer.abort_transaction):
            producer.begin_transaction()
            producer.produce(topic, b"x", partition=0)
            producer.send_offsets_to_transaction([place], alone.consumer_group_metadata(), 60)
            assert producer.flush(60) == 0
            end(60)


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


# ---- the logs of coordinators

GROUP_DECODER, TRANSACTION_DECODER = "--offsets-decoder", "--transaction-log-decoder"


def decoded(java: JavaSession, data: Path, topic: str, decoder: str) -> tuple[set[str], int]:
    """Kinds (type of the key, version of the value or none) and number of an internal topic's
    records, as Apache's tool decodes them: each of them."""
    dumped = java.run(DUMP, "--files", files(data, f"{topic}-*/*.log"), decoder)
    lines = [line for line in dumped.splitlines() if line.startswith("| offset: ")]
    records = [line for line in lines if "endTxnMarker" not in line]
    found = [
        re.search(
            r' key: \{"type":"(\d+)","data":.*?\} payload: (?:\{"version":"(\d+)"|<DELETE>)', line
        )
        for line in records
    ]
    unread = [line for line, match in zip(records, found, strict=True) if match is None]
    assert not unread, unread[:3]
    return {f"{match[1]} v{match[2]}" for match in found if match is not None}, len(lines)


def test_every_record_of_groups_is_one_that_apache_writes(
    written: Path, apaches: Path, java: JavaSession
) -> None:
    ours, count = decoded(java, written, "__consumer_offsets", GROUP_DECODER)
    theirs, _ = decoded(java, apaches, "__consumer_offsets", GROUP_DECODER)
    assert ours == theirs
    assert {kind.split()[0] for kind in ours} == {"1", "2", "3", "5", "6", "7", "8", "16"}
    assert count > 20


def test_every_record_of_transactions_is_one_that_apache_writes(
    written: Path, apaches: Path, java: JavaSession
) -> None:
    ours, count = decoded(java, written, "__transaction_state", TRANSACTION_DECODER)
    theirs, _ = decoded(java, apaches, "__transaction_state", TRANSACTION_DECODER)
    assert ours == theirs
    assert count >= 7, "an identity, and three steps of each transaction"


# ---- ours on theirs


def test_segment_dump_reads_every_file_of_ours(written: Path, java: JavaSession) -> None:
    check_segment_dump(written, java)


def test_segment_dump_reads_every_file_of_apaches(apaches: Path, java: JavaSession) -> None:
    check_segment_dump(apaches, java)


def check_segment_dump(data: Path, java: JavaSession) -> None:
    """No file is strange, nothing is damaged, and internal records are as many as Apache's tool
    finds, each in its format."""
    read: dict[str, list[Row]] = {}
    strange = set()
    for path in sorted(path for path in data.rglob("*") if path.is_file()):
        if path.suffix == ".deleted" or path.parent.name.endswith("-delete"):
            continue
        try:
            read[str(path)] = list(rows_of(path, records=True))
        except CannotRead:
            strange.add(path.name)
    assert strange <= {".lock"}
    damaged = {path: row for path, rows in read.items() for row in rows if row.damage}
    assert not damaged
    for topic, decoder in (
        ("__consumer_offsets", GROUP_DECODER),
        ("__transaction_state", TRANSACTION_DECODER),
    ):
        shown = [
            row
            for path, rows in read.items()
            if f"/{topic}-" in path
            for row in rows
            if row.kind in ("record", "control")
        ]
        _, count = decoded(java, data, topic, decoder)
        assert len(shown) == count
        assert all("Key(" in row.values["key"] for row in shown if row.kind == "record")
