"""Compacted topics: the same records at Headrace and at Apache Kafka end with the same last value
of each key; Apache Kafka and its tools read what compaction left; a kill -9 loses nothing."""

from __future__ import annotations

import contextlib
import random
import re
import time
from pathlib import Path

import confluent_kafka
import pytest

from headrace.client import Admin
from tests.interop.brokers import Node, make_node
from tests.interop.clients import ALL_COMPRESSIONS
from tests.interop.java_session import JavaSession
from tests.interop.test_files import DUMP, TROUBLE, files
from tests.interop.topics import create_topic
from tests.patience import until

QUICK = {
    "log.cleaner.backoff.ms": "100",
    "log.cleaner.min.cleanable.ratio": "0",
    "log.retention.check.interval.ms": "500",
}
COMPACTED = {"cleanup.policy": "compact", "segment.ms": "300", "file.delete.delay.ms": "500"}
KEYS = 200
RECORDS = 3000
Latest = dict[bytes, bytes | None]


def write(node: Node, topic: str, compression: str, round_: int, latest: Latest) -> None:
    """Random keys, one in ten a tombstone; the same for every target."""
    chance = random.Random(f"{compression}-{round_}")
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": node.bootstrap,
            "compression.type": compression,
            "enable.idempotence": True,
            "linger.ms": 20,
            "batch.num.messages": 50,
        }
    )
    for number in range(RECORDS):
        key = b"key-%d" % chance.randrange(KEYS)
        noise = f"{pow(7, number, 2**200):x}".encode()
        value = None if chance.random() < 0.1 else b"%d %d %s" % (round_, number, noise)
        producer.produce(topic, value, key, partition=0)
        latest[key] = value
        if number % 500 == 0:
            producer.flush(60)
    assert producer.flush(60) == 0


def write_transactions(node: Node, topic: str, latest: Latest) -> None:
    """Every third transaction is aborted."""
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": node.bootstrap, "transactional.id": "t", "linger.ms": 5}
    )
    producer.init_transactions(30)
    for number in range(60):
        producer.begin_transaction()
        keys = [b"key-%d" % (number * step % 17) for step in range(1, 6)]
        for key in keys:
            producer.produce(topic, b"%d" % number, key, partition=0)
        if number % 3 == 2:
            producer.flush(60)  # or the records would never leave the client
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
            latest |= dict.fromkeys(keys, b"%d" % number)
    wait_until_ended(node, "t")


def wait_until_ended(node: Node, transactional_id: str) -> None:
    """Its markers are written; those of Apache Kafka come after its answer."""
    ids = Admin(node.bootstrap).transactions
    until(lambda: ids.describe(transactional_id).state.startswith("Complete"))


@pytest.mark.parametrize("kind", ["headrace", "apache"])
def test_aborted_records_are_never_seen(kind: str, tmp_path: Path, java: JavaSession) -> None:
    node = make_node(kind, tmp_path / kind, QUICK)
    node.start()
    topic = create_topic(node.bootstrap, "compacted-transactions", config=COMPACTED)
    latest: Latest = {}
    for _ in range(2):
        write_transactions(node, topic, latest)
        time.sleep(0.4)
        clean_to = close_and_compact(node, topic)
    latest[b"end"] = b"end"
    found, offsets = read(node, topic, clean_to + 1)
    assert found == latest
    assert len(offsets) < 60
    node.stop()
    dumped = java.run(DUMP, "--files", files(node.data, f"{topic}-0/*.log"), "--deep-iteration")
    assert not TROUBLE.search(dumped)
    other = make_node("apache" if kind == "headrace" else "headrace", tmp_path / "other", QUICK)
    other.take_over(node)
    other.start()
    assert read(other, topic, clean_to + 1) == (found, offsets)
    write_transactions(other, topic, latest)  # its producer goes on where it was
    assert read(other, topic, end_of(other, topic))[0] == latest
    other.stop()


def read(node: Node, topic: str, end: int) -> tuple[Latest, list[int]]:
    """The last value of each key, and the offsets that are left, up to the offset `end`."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": node.bootstrap,
            "group.id": "reader",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    latest: Latest = {}
    offsets: list[int] = []
    deadline = time.monotonic() + 400
    while time.monotonic() < deadline:
        message = consumer.poll(5)
        if message is None:
            continue
        if message.error():
            assert message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF
            assert message.offset() == end
            break
        latest[message.key()] = message.value()
        offsets.append(message.offset())
    else:
        raise AssertionError(f"the end of {topic} was not reached")
    consumer.close()
    return latest, offsets


def end_of(node: Node, topic: str) -> int:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": node.bootstrap, "group.id": "x"})
    _, end = consumer.get_watermark_offsets(confluent_kafka.TopicPartition(topic, 0), timeout=60)
    consumer.close()
    return int(end)


def wait_until_clean(node: Node, topic: str, offset: int) -> None:
    """The cleaner's own checkpoint says how far it has got."""
    path = node.data / "cleaner-offset-checkpoint"
    deadline = time.monotonic() + 400
    while time.monotonic() < deadline:
        found = re.search(rf"^{topic} 0 (\d+)$", path.read_text() if path.exists() else "", re.M)
        if found and int(found[1]) >= offset:
            return
        time.sleep(0.1)
    raise AssertionError(f"{topic} was not compacted up to {offset}:\n{node.log_text()[-3000:]}")


def fill(node: Node, topic: str, compression: str) -> tuple[Latest, int]:
    """The last value of each key of three rounds and the end, and up to where it is clean then."""
    latest = write_rounds(node, topic, compression)
    latest[b"end"] = b"end"
    return latest, close_and_compact(node, topic)


def write_rounds(node: Node, topic: str, compression: str) -> Latest:
    """Three, each of which closes the segment of the one before."""
    latest: Latest = {}
    for round_ in range(3):
        write(node, topic, compression, round_, latest)
        time.sleep(0.4)  # segment.ms
    return latest


def close_and_compact(node: Node, topic: str) -> int:
    """One more record, which closes the last segment; the offset up to which all is clean then."""
    clean_to = close(node, topic)
    wait_until_clean(node, topic, clean_to)
    return clean_to


def close(node: Node, topic: str) -> int:
    end = end_of(node, topic)
    producer = confluent_kafka.Producer({"bootstrap.servers": node.bootstrap})
    producer.produce(topic, b"end", b"end", partition=0)
    assert producer.flush(60) == 0
    return end


@pytest.mark.parametrize("kind", ["headrace", pytest.param("apache", marks=pytest.mark.full)])
def test_the_last_value_of_each_key_is_the_same_everywhere(
    kind: str, tmp_path: Path, java: JavaSession
) -> None:
    node = make_node(kind, tmp_path / kind, QUICK)
    node.start()
    expected = {}
    for compression in ALL_COMPRESSIONS:
        topic = create_topic(node.bootstrap, f"compacted-{compression}", config=COMPACTED)
        latest, clean_to = fill(node, topic, compression)
        found, offsets = read(node, topic, clean_to + 1)
        assert found == latest
        assert offsets == sorted(set(offsets))
        # Clean: one record of each key, and the one that closed the segment.
        assert len(offsets) <= KEYS + 1
        expected[topic] = latest, offsets
    node.stop()
    check_files(node.data, java)
    # Apache Kafka takes the folder over, and Headrace takes Apache Kafka's.
    other = make_node("apache" if kind == "headrace" else "headrace", tmp_path / "other", QUICK)
    other.take_over(node)
    other.start()
    for topic, (latest, offsets) in expected.items():
        assert read(other, topic, offsets[-1] + 1) == (latest, offsets)
    other.stop()


def check_files(data: Path, java: JavaSession) -> None:
    dumped = java.run(DUMP, "--files", files(data, "compacted-*/*.log"), "--deep-iteration")
    assert not TROUBLE.search(re.sub(r"payload: .*", "", dumped))
    assert "deleteHorizonMs: OptionalLong[" in dumped
    for suffix in ("index", "timeindex"):
        for check in ("--verify-index-only", "--index-sanity-check"):
            checked = java.run(DUMP, "--files", files(data, f"compacted-*/*.{suffix}"), check)
            assert not TROUBLE.search(checked)


def test_tombstones_go_and_both_policies_work_together(target: str, tmp_path: Path) -> None:
    node = make_node(target, tmp_path, QUICK)
    node.start()
    quick = COMPACTED | {"delete.retention.ms": "0"}
    gone = create_topic(node.bootstrap, "tombstones", config=quick)
    both = quick | {"cleanup.policy": "compact,delete", "retention.ms": "1000"}
    old = create_topic(node.bootstrap, "both", config=both)
    latest, _ = fill(node, gone, "none")
    time.sleep(0.4)
    clean_to = close_and_compact(node, gone)  # drops the tombstones that the round before marked
    found, _ = read(node, gone, clean_to + 1)
    assert found == {key: value for key, value in latest.items() if value is not None}
    write_rounds(node, old, "none")  # a slow machine may delete them before they are compacted
    close(node, old)
    deadline = time.monotonic() + 400
    while time.monotonic() < deadline and start_of(node, old) < 3 * RECORDS:
        time.sleep(0.2)
    assert start_of(node, old) >= 3 * RECORDS
    node.stop()


def start_of(node: Node, topic: str) -> int:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": node.bootstrap, "group.id": "x"})
    start, _ = consumer.get_watermark_offsets(confluent_kafka.TopicPartition(topic, 0), timeout=60)
    consumer.close()
    return int(start)


def test_a_kill_while_logs_are_compacted_loses_nothing(target: str, tmp_path: Path) -> None:
    # So slow that there is always a round to kill.
    settings = QUICK | {"log.cleaner.io.max.bytes.per.second": "2000000"}
    node = make_node(target, tmp_path, settings)
    node.start()
    topic = create_topic(node.bootstrap, "killed", config=COMPACTED)
    latest: Latest = {}
    for round_ in range(6):
        write(node, topic, "none", round_, latest)
        time.sleep(0.3 + 0.05 * round_)
        node.kill()
        node.start()
        assert read(node, topic, end_of(node, topic))[0] == latest
    clean_to = end_of(node, topic)
    time.sleep(0.4)
    write(node, topic, "none", 7, latest)
    wait_until_clean(node, topic, clean_to)
    assert read(node, topic, end_of(node, topic))[0] == latest
    node.stop()
    left = [*node.data.glob("*/*.cleaned"), *node.data.glob("*/*.swap")]
    node.start()
    assert read(node, topic, end_of(node, topic))[0] == latest
    assert not [path for path in left if path.exists()]
    node.stop()


def test_produce_and_fetch_go_on_while_a_log_is_compacted(tmp_path: Path) -> None:
    """A round that is held back for hours by its limit of bytes per second: all the time records
    go in and come out, also of the log that is being compacted."""
    node = make_node("headrace", tmp_path, QUICK | {"log.cleaner.io.max.bytes.per.second": "10"})
    node.start()
    topic = create_topic(node.bootstrap, "held-back", config=COMPACTED)
    latest: Latest = {}
    write(node, topic, "none", 0, latest)
    time.sleep(0.4)  # segment.ms
    write(node, topic, "none", 1, latest)
    cleaner = wait_for_cleaner(node)
    for round_ in range(2, 6):
        write(node, topic, "none", round_, latest)
        assert read(node, topic, end_of(node, topic))[0] == latest
    assert wait_for_cleaner(node) == cleaner, "it is still the same round"
    node.kill()
    deadline = time.monotonic() + 400
    while not has_ended(cleaner):  # by itself
        assert time.monotonic() < deadline, "the cleaner's process outlives its node"
        time.sleep(0.05)


def wait_for_cleaner(node: Node) -> int:
    """The process that compacts for this node."""
    deadline = time.monotonic() + 400
    while time.monotonic() < deadline:
        for path in Path(f"/proc/{node.pid}/task").glob("*/children"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
                for child in path.read_text().split():
                    if "cleaner_process" in Path(f"/proc/{child}/cmdline").read_text():
                        return int(child)
        time.sleep(0.05)
    raise AssertionError(f"nothing is compacted:\n{node.log_text()[-3000:]}")


def has_ended(pid: int) -> bool:
    """Also if nobody has asked for its exit code yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True
