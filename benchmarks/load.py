"""Cheap loads: produce requests kept in flight, and fetches read through from the beginning.

The client must not be the bottleneck on two cores, so nothing is encoded or decoded per produce
request: all requests of a connection are the same bytes, all replies have the same length, and a
reply is counted by its bytes. What the broker really took is checked afterwards by the end
offsets: one lost or refused request fails the run.
"""

from __future__ import annotations

import select
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from . import wire
from .brokers import Broker
from .processes import machine_busy_seconds, own_processor_seconds

IN_FLIGHT = 5  # max.in.flight.requests.per.connection of the Java client
STALLED_AFTER_S = 30.0
LED_WITHIN_S = 120.0


@dataclass(slots=True)
class Usage:
    """What a load took: wall clock and processor seconds of broker, client and all others."""

    wall_s: float
    broker_s: float
    client_s: float
    others_s: float


def measured(broker: Broker, work: Callable[[], object]) -> Usage:
    busy, client, cpu = machine_busy_seconds(), own_processor_seconds(), broker.processor_seconds()
    begin = time.perf_counter()
    work()
    wall = time.perf_counter() - begin
    broker_s = broker.processor_seconds() - cpu
    client_s = own_processor_seconds() - client
    return Usage(wall, broker_s, client_s, machine_busy_seconds() - busy - broker_s - client_s)


@dataclass(slots=True)
class Line:
    """One producer's connection: equal requests, at most `IN_FLIGHT` unanswered."""

    socket: socket.socket
    frame_size: int
    frames: memoryview  # IN_FLIGHT + 1 equal frames, so that any slice that may be sent exists
    reply_size: int
    left: int = 0  # requests not yet begun
    unsent: int = 0  # bytes of begun requests that the socket has not taken
    at: int = 0  # where in the frame the next byte is
    received: int = 0
    answered: int = 0
    waits_to_write: bool = False

    @classmethod
    def open(
        cls, port: int, frame: bytes, check: Callable[[memoryview], object] = wire.check_produced
    ) -> Line:
        """Connect and send the request once, to see it succeed and to learn the reply's length."""
        connection = wire.connect(port)
        connection.sendall(frame)
        reply = wire.receive_frame(connection)
        check(reply)
        connection.setblocking(False)
        frames = memoryview(frame * (IN_FLIGHT + 1))
        return cls(connection, len(frame), frames, 4 + len(reply))

    @classmethod
    def open_once_led(cls, port: int, frame: bytes) -> Line:
        """The leader may hear of the topic later than the broker that told of it."""
        deadline = time.perf_counter() + LED_WITHIN_S
        while True:
            try:
                return cls.open(port, frame)
            except wire.Refused:
                if time.perf_counter() > deadline:
                    raise
                time.sleep(0.02)

    def begin(self, requests: int) -> None:
        """Send so many more requests, as far as there are any left."""
        requests = min(requests, self.left)
        self.left -= requests
        self.unsent += requests * self.frame_size
        while self.unsent:
            try:
                sent = self.socket.send(self.frames[self.at : self.at + self.unsent])
            except BlockingIOError:
                return
            self.unsent -= sent
            self.at = (self.at + sent) % self.frame_size

    def receive(self, buffer: bytearray) -> int:
        """Count replies; returns how many came whole."""
        received = self.socket.recv_into(buffer)
        if received == 0:
            raise ConnectionError("the broker closed the connection")
        self.received += received
        fresh = self.received // self.reply_size - self.answered
        self.answered += fresh
        return fresh


@dataclass(slots=True)
class ProduceLoad:
    """Producers with a connection and a partition each, all sending the same batch."""

    broker: Broker
    topic: str
    lines: list[Line]
    records_per_batch: int
    held_before: int = 0  # records in the partitions when the load began
    requests: int = 0  # answered in all, the first one of each line included

    @classmethod
    def open(
        cls,
        broker: Broker,
        topic: str,
        *,
        producers: int,
        records: int,
        value_size: int,
        **configs: str,
    ) -> ProduceLoad:
        """On a new topic; `segment_bytes="1024"` is the topic setting segment.bytes."""
        with wire.connect(broker.port) as connection:
            wire.create_topics_with(connection, [topic], partitions=producers, **configs)
        return cls.on_existing(
            broker, topic, producers=producers, records=records, value_size=value_size
        )

    @classmethod
    def on_existing(
        cls, broker: Broker, topic: str, *, producers: int, records: int, value_size: int
    ) -> ProduceLoad:
        held = sum(_ends(broker, topic, producers))
        batch = wire.batch_of(records, value_size)
        frames = [wire.produce_frame(topic, partition, batch) for partition in range(producers)]
        lines = [Line.open(broker.port, frame) for frame in frames]
        return cls(broker, topic, lines, records, held, requests=producers)

    @property
    def frame_size(self) -> int:
        return self.lines[0].frame_size

    def run(self, *, requests: int | None = None, seconds: float | None = None) -> int:
        """Send for so long or so much, wait for all replies; returns the number of requests."""
        before = sum(line.answered for line in self.lines)
        deadline = time.perf_counter() + (seconds if seconds is not None else 1e9)
        for line in self.lines:
            line.left = requests // len(self.lines) if requests is not None else 1 << 60
        drive(self.lines, deadline)
        done = sum(line.answered for line in self.lines) - before
        self.requests += done
        return done

    def run_for(self, seconds: float) -> int:
        return self.run(seconds=seconds)

    def close(self) -> None:
        """Check that the broker holds exactly what it acknowledged."""
        for line in self.lines:
            line.socket.close()
        ends = _ends(self.broker, self.topic, len(self.lines))
        if sum(ends) != self.held_before + self.requests * self.records_per_batch:
            raise AssertionError(
                f"{self.requests} requests of {self.records_per_batch} records were answered,"
                f" but the partitions end at {ends}"
            )


def _ends(broker: Broker, topic: str, partitions: int) -> list[int]:
    with wire.connect(broker.port) as connection:
        return [wire.end_offset(connection, topic, partition) for partition in range(partitions)]


def drive(lines: list[Line], deadline: float) -> None:
    """Keep all lines full until they have nothing left, or none begins anew after the deadline."""
    by_fd = {line.socket.fileno(): line for line in lines}
    unfinished = set(by_fd)
    buffer = bytearray(64 * 1024)
    poller = select.epoll()
    started = {line.socket.fileno(): line.answered for line in lines}
    begun = {fd: by_fd[fd].left for fd in by_fd}
    for fd, line in by_fd.items():
        poller.register(fd, select.EPOLLIN)
        line.begin(IN_FLIGHT)
        _watch_writing(poller, fd, line)
    while unfinished:
        events = poller.poll(STALLED_AFTER_S)
        if not events:
            raise TimeoutError(f"no reply within {STALLED_AFTER_S} s")
        if time.perf_counter() >= deadline:
            for fd, line in by_fd.items():
                begun[fd] -= line.left
                line.left = 0
        for fd, what in events:
            line = by_fd[fd]
            line.begin(line.receive(buffer) if what & select.EPOLLIN else 0)
            if line.unsent or line.waits_to_write:
                _watch_writing(poller, fd, line)
            if line.answered - started[fd] == begun[fd]:
                unfinished.discard(fd)
    poller.close()


def _watch_writing(poller: select.epoll, fd: int, line: Line) -> None:
    if bool(line.unsent) != line.waits_to_write:
        line.waits_to_write = bool(line.unsent)
        writing = select.EPOLLOUT if line.waits_to_write else 0
        poller.modify(fd, select.EPOLLIN | writing)


@dataclass(slots=True)
class Reader:
    """One consumer's connection: a fetch at a time, from the beginning to the end and again."""

    socket: socket.socket
    topic: str
    partition: int
    end: int
    batch_size: int
    records_per_batch: int
    max_bytes: int
    buffer: memoryview
    offset: int = 0
    at: int = 0  # bytes of the reply in the buffer
    taken: int = 0  # bytes of whole batches received in all
    fetches: int = 0

    def ask(self) -> None:
        self.at = 0
        frame = wire.fetch_frame(self.topic, self.partition, self.offset, max_bytes=self.max_bytes)
        self.socket.sendall(frame)

    def receive(self) -> bool:
        """Read what is there; True when the reply is whole and was taken."""
        received = self.socket.recv_into(self.buffer[self.at :])
        if received == 0:
            raise ConnectionError("the broker closed the connection")
        self.at += received
        if self.at < 4 or self.at < 4 + struct.unpack_from(">i", self.buffer)[0]:
            return False
        self._take(wire.fetched_records(self.buffer[4 : self.at]))
        return True

    def _take(self, records: memoryview) -> None:
        batches = len(records) // self.batch_size
        (base_offset,) = struct.unpack_from(">q", records)
        if not batches or base_offset != self.offset:
            raise AssertionError(f"asked for {self.offset}, got {len(records)} at {base_offset}")
        self.taken += batches * self.batch_size
        self.fetches += 1
        self.offset += batches * self.records_per_batch
        if self.offset >= self.end:
            self.offset = 0


@dataclass(slots=True)
class FetchLoad:
    """Consumers with a connection and a partition each, on what a `ProduceLoad` has written."""

    readers: list[Reader] = field(default_factory=list)

    @classmethod
    def open(cls, load: ProduceLoad, *, batch_size: int, max_bytes: int) -> FetchLoad:
        readers = []
        for partition in range(len(load.lines)):
            connection = wire.connect(load.broker.port)
            end = wire.end_offset(connection, load.topic, partition)
            room = memoryview(bytearray(max_bytes + batch_size + 4096))
            readers.append(
                Reader(
                    connection,
                    load.topic,
                    partition,
                    end,
                    batch_size,
                    load.records_per_batch,
                    max_bytes,
                    room,
                )
            )
        return cls(readers)

    def run(self, seconds: float) -> int:
        """Fetch for so long; returns the bytes of whole batches received."""
        before = sum(reader.taken for reader in self.readers)
        deadline = time.perf_counter() + seconds
        poller = select.epoll()
        waiting = {reader.socket.fileno(): reader for reader in self.readers}
        for fd, reader in waiting.items():
            poller.register(fd, select.EPOLLIN)
            reader.ask()
        while waiting:
            events = poller.poll(STALLED_AFTER_S)
            if not events:
                raise TimeoutError(f"no reply within {STALLED_AFTER_S} s")
            for fd, _what in events:
                if not waiting[fd].receive():
                    continue
                if time.perf_counter() < deadline:
                    waiting[fd].ask()
                else:
                    poller.unregister(fd)
                    del waiting[fd]
        poller.close()
        return sum(reader.taken for reader in self.readers) - before

    def close(self) -> None:
        for reader in self.readers:
            reader.socket.close()
