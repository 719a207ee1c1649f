"""Seven Kafka clients that nobody here wrote, behind the same three verbs.

`produce` sends records to one partition and says at which offsets they lie, `consume` reads a
partition from an offset on without a group, `offset_for_time` asks where a time begins. The
programs in other languages (`java/`, `go/`, `node/`) read one JSON job from standard input and
print one JSON answer; bytes travel as base64, and a value too large to print as its SHA-256.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import aiokafka
import confluent_kafka
import kafka

from headrace.client.consumer.fetched import headers_of
from tests.interop.java_session import JavaSession
from tests.interop.tools import tool

TOO_LARGE_TO_PRINT = 100_000
LARGE_LIMIT = 100 * 1024 * 1024  # what clients are told to allow, like the broker's frame limit
TIMEOUT_S = 150.0


@dataclass(slots=True, frozen=True)
class Record:
    """A record as a client sends or sees it. `offset` is -1 before it is sent."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp: int = -1
    offset: int = -1

    def at(self, offset: int) -> Record:
        return replace(self, offset=offset)

    def printed(self) -> Record:
        """As a program in another language prints it: large values by their digest."""
        return replace(self, value=digest_if_large(self.value))


def digest_if_large(value: bytes | None) -> bytes | None:
    if value is None or len(value) <= TOO_LARGE_TO_PRINT:
        return value
    return b"sha256:" + hashlib.sha256(value).hexdigest().encode()


class Client(Protocol):
    """One way to reach a broker."""

    name: str
    sets_timestamps: bool
    reads: bool

    @property
    def compressions(self) -> tuple[str, ...]: ...

    def produce(
        self, bootstrap: str, topic: str, compression: str, records: list[Record]
    ) -> list[int]: ...

    def consume(self, bootstrap: str, topic: str, offset: int, count: int) -> list[Record]: ...

    def offset_for_time(self, bootstrap: str, topic: str, time_ms: int) -> int: ...


ALL_COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")


class ConfluentKafka:
    """librdkafka through confluent-kafka, idempotent."""

    name = "confluent-kafka"
    compressions = ALL_COMPRESSIONS
    sets_timestamps = True
    reads = True

    def produce(
        self, bootstrap: str, topic: str, compression: str, records: list[Record]
    ) -> list[int]:
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "compression.type": compression,
                "enable.idempotence": True,
                "linger.ms": 50,
                "message.max.bytes": LARGE_LIMIT,
            }
        )
        offsets: dict[int, int] = {}

        def delivered(index: int, error: Any, message: confluent_kafka.Message) -> None:
            assert error is None, error
            offsets[index] = message.offset()

        for index, record in enumerate(records):
            producer.produce(
                topic,
                partition=0,
                key=record.key,
                value=record.value,
                headers=list(record.headers),
                timestamp=record.timestamp,
                on_delivery=partial(delivered, index),
            )
        assert producer.flush(TIMEOUT_S) == 0
        return [offsets[index] for index in range(len(records))]

    def consume(self, bootstrap: str, topic: str, offset: int, count: int) -> list[Record]:
        consumer = self._consumer(bootstrap)
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, offset)])
        read: list[Record] = []
        while len(read) < count:
            message = consumer.poll(TIMEOUT_S)
            assert message is not None, f"{len(read)} of {count} records read"
            assert message.error() is None, message.error()
            headers = tuple(headers_of(message))
            read.append(
                Record(
                    message.key(),
                    message.value(),
                    headers,
                    message.timestamp()[1],
                    message.offset(),
                )
            )
        consumer.close()
        return [record.printed() for record in read]

    def offset_for_time(self, bootstrap: str, topic: str, time_ms: int) -> int:
        consumer = self._consumer(bootstrap)
        (found,) = consumer.offsets_for_times(
            [confluent_kafka.TopicPartition(topic, 0, time_ms)], timeout=TIMEOUT_S
        )
        consumer.close()
        return -1 if found.offset == confluent_kafka.OFFSET_END else int(found.offset)

    def _consumer(self, bootstrap: str) -> confluent_kafka.Consumer:
        return confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "never-joined",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "fetch.message.max.bytes": LARGE_LIMIT,
                "receive.message.max.bytes": LARGE_LIMIT * 2,
            }
        )


class Aiokafka:
    """aiokafka's own protocol code in Python."""

    name = "aiokafka"
    compressions = ALL_COMPRESSIONS
    sets_timestamps = True
    reads = True

    def produce(
        self, bootstrap: str, topic: str, compression: str, records: list[Record]
    ) -> list[int]:
        return asyncio.run(self._produce(bootstrap, topic, compression, records))

    async def _produce(
        self, bootstrap: str, topic: str, compression: str, records: list[Record]
    ) -> list[int]:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            compression_type=None if compression == "none" else compression,
            enable_idempotence=True,
            linger_ms=50,
            max_request_size=LARGE_LIMIT,
            max_batch_size=LARGE_LIMIT,
        )
        async with producer:
            sent = [
                await producer.send(
                    topic,
                    value=record.value,
                    key=record.key,
                    partition=0,
                    timestamp_ms=record.timestamp,
                    headers=list(record.headers),
                )
                for record in records
            ]
            return [(await one).offset for one in sent]

    def consume(self, bootstrap: str, topic: str, offset: int, count: int) -> list[Record]:
        return asyncio.run(self._consume(bootstrap, topic, offset, count))

    async def _consume(self, bootstrap: str, topic: str, offset: int, count: int) -> list[Record]:
        consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="none")
        partition = aiokafka.TopicPartition(topic, 0)
        read: list[Record] = []
        async with consumer:
            consumer.assign([partition])
            consumer.seek(partition, offset)
            while len(read) < count:
                message = await asyncio.wait_for(consumer.getone(), TIMEOUT_S)
                read.append(
                    Record(
                        message.key,
                        message.value,
                        tuple(message.headers),
                        message.timestamp,
                        message.offset,
                    )
                )
        return [record.printed() for record in read]

    def offset_for_time(self, bootstrap: str, topic: str, time_ms: int) -> int:
        async def ask() -> int:
            partition = aiokafka.TopicPartition(topic, 0)
            async with aiokafka.AIOKafkaConsumer(bootstrap_servers=bootstrap) as consumer:
                consumer.assign([partition])
                found = (await consumer.offsets_for_times({partition: time_ms}))[partition]
                return -1 if found is None else int(found.offset)

        return asyncio.run(ask())


class KafkaPython:
    """kafka-python's own protocol code in Python."""

    name = "kafka-python"
    compressions = ALL_COMPRESSIONS
    sets_timestamps = True
    reads = True

    def produce(
        self, bootstrap: str, topic: str, compression: str, records: list[Record]
    ) -> list[int]:
        producer = kafka.KafkaProducer(
            bootstrap_servers=bootstrap,
            compression_type=None if compression == "none" else compression,
            linger_ms=50,
        )
        sent = [
            producer.send(
                topic,
                value=record.value,
                key=record.key,
                headers=list(record.headers),
                partition=0,
                timestamp_ms=record.timestamp,
            )
            for record in records
        ]
        offsets = [one.get(timeout=TIMEOUT_S).offset for one in sent]
        producer.close()
        return offsets

    def consume(self, bootstrap: str, topic: str, offset: int, count: int) -> list[Record]:
        consumer = kafka.KafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=None,
            enable_auto_commit=False,
            consumer_timeout_ms=int(TIMEOUT_S * 1000),
        )
        partition = kafka.TopicPartition(topic, 0)
        consumer.assign([partition])
        consumer.seek(partition, offset)
        read: list[Record] = []
        for message in consumer:
            read.append(
                Record(
                    message.key,
                    message.value,
                    tuple((k, v) for k, v in message.headers),
                    message.timestamp,
                    message.offset,
                )
            )
            if len(read) == count:
                break
        consumer.close()
        return [record.printed() for record in read]

    def offset_for_time(self, bootstrap: str, topic: str, time_ms: int) -> int:
        consumer = kafka.KafkaConsumer(bootstrap_servers=bootstrap, group_id=None)
        partition = kafka.TopicPartition(topic, 0)
        found = consumer.offsets_for_times({partition: time_ms})[partition]
        consumer.close()
        return -1 if found is None else int(found.offset)


class Kcat:
    """kcat, that is librdkafka 2.0 with older request versions. Text only, and no timestamps."""

    name = "kcat"
    compressions = ALL_COMPRESSIONS
    sets_timestamps = False
    reads = True

    def produce(
        self, bootstrap: str, topic: str, compression: str, records: list[Record]
    ) -> list[int]:
        before = self._end(bootstrap, topic)
        for record in records:
            self._produce_one(bootstrap, topic, compression, record)
        return list(range(before, before + len(records)))

    def _produce_one(self, bootstrap: str, topic: str, compression: str, record: Record) -> None:
        # -Z sends an empty value as null; the key separator is given only where there is a key.
        command = [tool("kcat"), "-q", "-P", "-b", bootstrap, "-t", topic, "-p", "0", "-Z"]
        command += ["-X", "acks=all", "-z", compression]
        line = (record.value or b"") + b"\n"
        if record.key is not None:
            command += ["-K", "|"]
            line = record.key + b"|" + line
        for name, value in record.headers:
            command += ["-H", f"{name}={(value or b'').decode()}"]
        done = subprocess.run(command, input=line, capture_output=True, timeout=TIMEOUT_S)
        assert done.returncode == 0, done.stderr.decode()

    def consume(self, bootstrap: str, topic: str, offset: int, count: int) -> list[Record]:
        command = [tool("kcat"), "-q", "-C", "-b", bootstrap, "-t", topic, "-p", "0", "-J"]
        command += ["-o", str(offset), "-c", str(count), "-X", "check.crcs=true"]
        command += ["-X", f"fetch.message.max.bytes={LARGE_LIMIT}"]
        command += ["-X", f"receive.message.max.bytes={LARGE_LIMIT * 2}"]
        done = subprocess.run(command, capture_output=True, timeout=TIMEOUT_S)
        assert done.returncode == 0, done.stderr.decode()
        return [self._record(json.loads(line)).printed() for line in done.stdout.splitlines()]

    def _record(self, seen: dict[str, Any]) -> Record:
        flat = seen.get("headers", [])
        headers = tuple((k, encoded(v)) for k, v in zip(flat[::2], flat[1::2], strict=True))
        return Record(
            encoded(seen["key"]), encoded(seen["payload"]), headers, seen["ts"], seen["offset"]
        )

    def offset_for_time(self, bootstrap: str, topic: str, time_ms: int) -> int:
        return self._query(bootstrap, topic, str(time_ms))

    def _end(self, bootstrap: str, topic: str) -> int:
        return self._query(bootstrap, topic, "-1")

    def _query(self, bootstrap: str, topic: str, what: str) -> int:
        command = [tool("kcat"), "-q", "-Q", "-b", bootstrap, "-t", f"{topic}:0:{what}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
        assert done.returncode == 0, done.stderr
        return int(done.stdout.split()[-1])  # "topic [0] offset 5"


def encoded(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


class Program:
    """A client program that speaks JSON: it needs only a way to be run."""

    compressions = ALL_COMPRESSIONS
    sets_timestamps = True
    reads = True

    def __init__(self, name: str) -> None:
        self.name = name

    def ask(self, job: dict[str, Any]) -> dict[str, Any]:
        raise NotImplementedError

    def produce(
        self, bootstrap: str, topic: str, compression: str, records: list[Record]
    ) -> list[int]:
        job = self._job("produce", bootstrap, topic)
        answer = self.ask(job | {"compression": compression, "records": jobs_of(records)})
        return list(answer["offsets"])

    def consume(self, bootstrap: str, topic: str, offset: int, count: int) -> list[Record]:
        job = self._job("consume", bootstrap, topic)
        answer = self.ask(job | {"offset": offset, "count": count})
        return [record_of(printed) for printed in answer["records"]]

    def offset_for_time(self, bootstrap: str, topic: str, time_ms: int) -> int:
        job = self._job("offset_for_time", bootstrap, topic)
        return int(self.ask(job | {"time": time_ms})["offset"])

    def _job(self, verb: str, bootstrap: str, topic: str) -> dict[str, Any]:
        return {"verb": verb, "bootstrap": bootstrap, "topic": topic, "partition": 0}


class JavaProgram(Program):
    """Apache's own client, in a JVM that other checks share."""

    def __init__(self, session: JavaSession) -> None:
        super().__init__("java")
        self.session = session

    def ask(self, job: dict[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self.session.run("Client", stdin=json.dumps(job)))
        return answer


class CommandProgram(Program):
    """A program started once per job."""

    def __init__(self, name: str, command: list[str], *, reads: bool = True) -> None:
        super().__init__(name)
        self.command = command
        self.reads = reads

    def ask(self, job: dict[str, Any]) -> dict[str, Any]:
        done = subprocess.run(
            self.command, input=json.dumps(job).encode(), capture_output=True, timeout=TIMEOUT_S
        )
        assert done.returncode == 0, f"{self.name}: {done.stderr.decode()[-2000:]}"
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer


def jobs_of(records: Iterable[Record]) -> list[dict[str, Any]]:
    return [
        {
            "key": text_of(record.key),
            "timestamp": record.timestamp,
            "headers": [[name, text_of(value)] for name, value in record.headers],
        }
        | value_of(record.value)
        for record in records
    ]


def value_of(value: bytes | None) -> dict[str, Any]:
    """Large values are one byte repeated, so that the job stays small."""
    if value is None or len(value) <= TOO_LARGE_TO_PRINT:
        return {"value": text_of(value)}
    assert value.count(value[:1]) == len(value)
    return {"value": None, "size": len(value), "fill": value[0]}


def record_of(printed: dict[str, Any]) -> Record:
    value = printed["value"]
    is_digest = value is not None and value.startswith("sha256:")
    return Record(
        bytes_of(printed["key"]),
        value.encode() if is_digest else bytes_of(value),
        tuple((name, bytes_of(text)) for name, text in printed["headers"]),
        printed["timestamp"],
        printed["offset"],
    )


def text_of(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


def bytes_of(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def go_program(built: Path) -> CommandProgram:
    return CommandProgram("franz-go", [str(built)])


def node_program(folder: Path) -> CommandProgram:
    return CommandProgram("kafkajs", [tool("node"), str(folder / "client.js")], reads=False)
