"""Connect: a file goes through a topic into another file, also over a restart of the worker.

Standalone with its place in a file, and distributed with its place in topics and exactly once.
"""

from __future__ import annotations

import json
import urllib.request
from http.client import HTTPException
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

from tests.interop.brokers import Node, free_port
from tests.interop.ecosystem import (
    ecosystem_jars,
    ecosystem_java,
    properties,
    running,
    wait_until,
)
from tests.interop.test_ecosystem_python import read
from tests.interop.topics import create_topic
from tests.whole_lines import whole_lines

FILE_STREAM = "org.apache.kafka.connect.file.FileStream"
LINES = [f"line {n}" for n in range(200)]
# Lines of the file whose reader is killed: far more than it copies between a look at the topic and
# its death, however busy the machine is. Of these so many stay for the next reader.
MANY, LEFT = 40_000, 1_000


def is_made(port: int, name: str, config: dict[str, str]) -> bool:
    """Whether the worker has taken a connector; not while it starts or shares out its work anew."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/connectors/{name}/config",
        data=json.dumps(config).encode(),
        headers={"Content-Type": "application/json"},
        method="PUT",  # so that it can be asked again
    )
    try:
        with urllib.request.urlopen(request, timeout=60):
            return True
    except (OSError, HTTPException):
        return False


def anyones(broker: Node, port: int) -> dict[str, str]:
    """Settings of every kind of worker."""
    text = "org.apache.kafka.connect.storage.StringConverter"
    return {
        "bootstrap.servers": broker.bootstrap,
        "key.converter": text,
        "value.converter": text,
        "offset.flush.interval.ms": "500",
        "listeners": f"http://127.0.0.1:{port}",
        "plugin.discovery": "service_load",
        "plugin.path": str(ecosystem_jars() / "connect-file-4.3.1.jar"),
    }


def worker(broker: Node, name: str, port: int) -> dict[str, str]:
    return anyones(broker, port) | {
        "group.id": name,
        "config.storage.topic": f"{name}-configs",
        "offset.storage.topic": f"{name}-offsets",
        "offset.storage.partitions": "2",
        "status.storage.topic": f"{name}-status",
        "status.storage.partitions": "2",
        "config.storage.replication.factor": "1",
        "offset.storage.replication.factor": "1",
        "status.storage.replication.factor": "1",
        "exactly.once.source.support": "enabled",
        "scheduled.rebalance.max.delay.ms": "0",
    }


def test_connect_standalone_keeps_its_place_in_a_file(broker: Node, tmp_path: Path) -> None:
    topic = create_topic(broker.bootstrap, "standalone")
    source, sink = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_text("".join(f"{line}\n" for line in LINES))
    settings = anyones(broker, free_port()) | {
        "offset.storage.file.filename": str(tmp_path / "places")
    }
    connectors = {
        # Its batch.size stays at 2,000: with 20 it stops after 120 of these lines and gives 20 more
        # for each line that comes, at Apache Kafka as the broker too (seen at both): it looks into
        # its buffer only when it has read more of the file.
        "source": {
            "name": f"reads-{topic}",
            "connector.class": f"{FILE_STREAM}SourceConnector",
            "file": str(source),
            "topic": topic,
        },
        "sink": {
            "name": f"writes-{topic}",
            "connector.class": f"{FILE_STREAM}SinkConnector",
            "file": str(sink),
            "topics": topic,
        },
    }
    command = ecosystem_java(
        "org.apache.kafka.connect.cli.ConnectStandalone",
        properties(tmp_path / "worker.properties", settings),
        *(properties(tmp_path / f"{name}.properties", of) for name, of in connectors.items()),
    )
    for lines in (LINES, [*LINES, "the last line"]):
        with source.open("a") as more:
            more.writelines(f"{line}\n" for line in lines[len(LINES) :])
        log = tmp_path / f"connect-{len(lines)}.log"
        with running(command, log) as process:
            wait_until(lambda: len(whole_lines(sink)) >= len(lines), process, log)  # noqa: B023
        assert whole_lines(sink) == lines
    assert [value for _, value in read(broker, topic, len(lines), log)] == lines


def test_connect_carries_a_file_through_a_topic_exactly_once(broker: Node, tmp_path: Path) -> None:
    topic = create_topic(broker.bootstrap, "connect")
    source, sink = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_text("".join(f"{line}\n" for line in LINES))
    port, log = free_port(), tmp_path / "connect.log"
    settings = properties(tmp_path / "worker.properties", worker(broker, f"w-{topic}", port))
    connectors = {
        "source": {
            "connector.class": f"{FILE_STREAM}SourceConnector",
            "file": str(source),
            "topic": topic,
            "exactly.once.support": "required",
        },
        "sink": {
            "connector.class": f"{FILE_STREAM}SinkConnector",
            "file": str(sink),
            "topics": topic,
            "consumer.override.isolation.level": "read_committed",
        },
    }
    command = ecosystem_java("org.apache.kafka.connect.cli.ConnectDistributed", settings)
    with running(command, log) as process:
        for name, config in connectors.items():
            wait_until(lambda: is_made(port, name, config), process, log)  # noqa: B023
        wait_until(lambda: len(whole_lines(sink)) >= len(LINES), process, log)
    assert whole_lines(sink) == LINES

    # The worker has ended; another one of the same group goes on where its place was kept.
    with source.open("a") as more:
        more.write("the last line\n")
    with running(command, log) as process:
        wait_until(lambda: whole_lines(sink)[-1] == "the last line", process, log)
    assert whole_lines(sink) == [*LINES, "the last line"]
    assert [value for _, value in read(broker, topic, len(LINES) + 1, log)] == whole_lines(sink)


def test_an_exactly_once_source_is_killed_in_the_middle(broker: Node, tmp_path: Path) -> None:
    topic = create_topic(broker.bootstrap, "connect-killed")
    source = tmp_path / "in.txt"
    source.write_text("".join(f"line {n}\n" for n in range(MANY)))
    port = free_port()
    of_worker = worker(broker, f"w-{topic}", port) | {"session.timeout.ms": "6000"}
    settings = properties(tmp_path / "worker.properties", of_worker)
    command = ecosystem_java("org.apache.kafka.connect.cli.ConnectDistributed", settings)
    config = {
        "connector.class": f"{FILE_STREAM}SourceConnector",
        "file": str(source),
        "topic": topic,
        "batch.size": "20",  # a transaction for each batch, so that there are many
        "exactly.once.support": "required",
    }
    log = tmp_path / "connect.log"
    with running(command, log) as process:
        wait_until(lambda: is_made(port, "source", config), process, log)
        wait_until(lambda: end_of(broker, topic) > 400, process, log)
        process.kill()
        process.wait()
    # Not less than the lines that it has copied: there are markers in the log, too.
    kept = end_of(broker, topic) + LEFT
    assert kept < MANY, "it was killed too late"
    source.write_text("".join(f"line {n}\n" for n in range(kept)))

    log = tmp_path / "connect-again.log"
    # At the end of the file some lines stay in the source's buffer until more come.
    enough = kept - 200
    with running(command, log) as process:
        wait_until(lambda: end_of(broker, topic) >= enough, process, log)
        wait_until(lambda: len(read(broker, topic, 0, log)) >= enough, process, log)
    seen = [value for _, value in read(broker, topic, enough, log)]
    assert seen == [f"line {n}" for n in range(len(seen))]


def end_of(broker: Node, topic: str) -> int:
    """How long the log is, markers and aborted records among it."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "looks-only"})
    try:
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=60)
        return int(end)
    finally:
        consumer.close()
