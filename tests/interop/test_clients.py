"""Every client reads what every client wrote, with each compression."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from tests.interop.brokers import Node
from tests.interop.clients import ALL_COMPRESSIONS, Client, CommandProgram, Record
from tests.interop.topics import create_topic

BASE_TIME = 1_700_000_000_000
RAISED = {"max.message.bytes": str(100 * 1024 * 1024)}
LARGE = 50_000_000

# Text, because kcat prints nothing else; values that can and cannot be compressed.
RECORDS = [
    Record(b"plain", b"a value", timestamp=BASE_TIME),
    Record(None, b"no key", timestamp=BASE_TIME + 10),
    Record(b"tombstone", None, timestamp=BASE_TIME + 20),
    Record(b"headers", b"h", (("trace", b"1-2"), ("empty", b"")), BASE_TIME + 30),
    Record(b"long", b"0123456789" * 2000, (("n", b"1"),), BASE_TIME + 40),
]
BINARY = Record(b"\x00\xff\x80", bytes(range(256)), (("b", b"\xfe\x00"),), BASE_TIME)

READERS = ["confluent-kafka", "aiokafka", "kafka-python", "kcat", "java", "franz-go"]
WRITERS = [*READERS, "kafkajs"]


@pytest.mark.parametrize("compression", ALL_COMPRESSIONS)
def test_every_reader_sees_what_every_writer_wrote(
    broker: Node, clients: dict[str, Client], compression: str
) -> None:
    topic = create_topic(broker.bootstrap, f"all-{compression}")
    written: list[tuple[str, Record]] = []
    for name in WRITERS:
        offsets = clients[name].produce(broker.bootstrap, topic, compression, RECORDS)
        assert offsets == list(range(len(written), len(written) + len(RECORDS))), name
        written += [
            (name, record.at(offset)) for record, offset in zip(RECORDS, offsets, strict=True)
        ]
    for reader in READERS:
        read = clients[reader].consume(broker.bootstrap, topic, 0, len(written))
        for (writer, expected), seen in zip(written, read, strict=True):
            if not clients[writer].sets_timestamps:
                expected = replace(expected, timestamp=seen.timestamp)
            assert seen == expected, f"written by {writer}, read by {reader}"


@pytest.mark.parametrize("compression", [*ALL_COMPRESSIONS[1:], "uncompressed"])
def test_every_reader_sees_what_the_broker_compressed(
    broker: Node, clients: dict[str, Client], compression: str
) -> None:
    """A topic with a compression of its own: the broker unpacks and packs what is produced."""
    config = {"compression.type": compression, "message.timestamp.type": "LogAppendTime"}
    topic = create_topic(broker.bootstrap, f"broker-{compression}", config=config)
    sent = ["none", "gzip", "zstd"]
    for codec in sent:
        clients["confluent-kafka"].produce(broker.bootstrap, topic, codec, RECORDS)
    for reader in READERS:
        read = clients[reader].consume(broker.bootstrap, topic, 0, len(RECORDS) * len(sent))
        for offset, seen in enumerate(read):
            expected = replace(RECORDS[offset % len(RECORDS)], timestamp=seen.timestamp)
            assert seen == expected.at(offset), f"read by {reader}"
            assert abs(seen.timestamp - time.time() * 1000) < 600_000


@pytest.mark.parametrize("name", [name for name in READERS if name != "kcat"])
def test_bytes_of_any_kind_pass_unchanged(
    broker: Node, clients: dict[str, Client], name: str
) -> None:
    topic = create_topic(broker.bootstrap, f"binary-{name}")
    client = clients[name]
    assert client.produce(broker.bootstrap, topic, "none", [BINARY]) == [0]
    assert client.consume(broker.bootstrap, topic, 0, 1) == [BINARY.at(0)]


def test_a_record_of_50_mb_passes_through_every_client(
    broker: Node, clients: dict[str, Client]
) -> None:
    topic = create_topic(broker.bootstrap, "large", config=RAISED)
    # kafka-python bounds a batch below this, kcat reads lines.
    writers = [name for name in WRITERS if name not in ("kafka-python", "kcat")]
    written: list[Record] = []
    for offset, name in enumerate(writers):
        record = Record(b"large", name[:1].encode() * LARGE, timestamp=BASE_TIME)
        assert clients[name].produce(broker.bootstrap, topic, "none", [record]) == [offset], name
        written.append(record.at(offset).printed())
    for offset, name in enumerate(reader for reader in READERS if reader != "kafka-python"):
        seen = clients[name].consume(broker.bootstrap, topic, offset % len(written), 1)
        assert seen[0] == written[offset % len(written)], name
    assert clients["java"].consume(broker.bootstrap, topic, 0, len(written)) == written


@pytest.mark.parametrize("name", WRITERS)
def test_a_time_leads_to_the_first_record_of_that_time_or_later(
    broker: Node, clients: dict[str, Client], name: str
) -> None:
    topic = create_topic(broker.bootstrap, f"times-{name}")
    clients["confluent-kafka"].produce(broker.bootstrap, topic, "none", RECORDS)

    def asked(time_ms: int) -> int:
        return clients[name].offset_for_time(broker.bootstrap, topic, time_ms)

    assert [asked(BASE_TIME - 1), asked(BASE_TIME + 10), asked(BASE_TIME + 11)] == [0, 1, 2]
    if name == "kafkajs":  # answers the end of the log where there is no such record
        assert asked(BASE_TIME + 1000) == len(RECORDS)
    else:
        assert asked(BASE_TIME + 1000) == -1


def test_kafkajs_leads_a_topic_through_its_life(broker: Node, clients: dict[str, Client]) -> None:
    node = clients["kafkajs"]
    assert isinstance(node, CommandProgram)
    job = {"verb": "administer", "bootstrap": broker.bootstrap, "topic": "administered-by-kafkajs"}
    assert node.ask(job) == {
        "created": True,
        "partitions": 3,
        "brokers": 1,
        "retention": "2000000",
        "listed": True,
        "stillListed": False,
    }
