"""How many transactions of a hundred records does a broker finish per second, and how soon?

Eight producers with a connection, a transactional id and a partition each. A transaction is one
Produce request with 100 records of 100 bytes and one EndTxn that commits it, one after the other,
as clients do since transaction.version 2 (KIP-890: the partition joins with the first produce, the
epoch rises with each end). A broker may answer that the transaction before is still being ended;
the producer then asks again after 5 ms, and the wait counts. Time runs from the first byte of the
Produce request to the reply to EndTxn. Afterwards each partition must end where its transactions
and their markers end, and a read_committed reader must reach that end.
Warm-up: the same load until its cost is steady (`warm_up.py`), at most 20 s.
"""

from __future__ import annotations

import select
import socket
import struct
import time
from dataclasses import dataclass, field

from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages import end_txn, init_producer_id, list_offsets, produce
from headrace.wire.protocol.record_batch import Record, build, seal

from . import coordinators, wire
from .benchmark import Benchmark, Run
from .brokers import Broker
from .load import STALLED_AFTER_S, measured
from .results import Better, Goal, Row, Samples
from .warm_up import until_steady

TOPIC = "transactions"
PRODUCERS = 8
RECORDS, VALUE_SIZE = 100, 100
PRODUCE_VERSION, END_TXN_VERSION, INIT_PRODUCER_ID_VERSION = 12, 5, 5
TIMEOUT_MS = 60_000
ASK_AGAIN_S = 0.005
WARM_UP_S = 20.0
READ_COMMITTED = 1
PRODUCER_AT = 43  # producer id and epoch in a batch
AGAIN = coordinators.NOT_YET | {ErrorCode.CONCURRENT_TRANSACTIONS}


@dataclass(slots=True)
class Producer:
    """One transactional producer, one request in flight."""

    socket: socket.socket
    name: str
    partition: int
    producer_id: int
    epoch: int
    batch: bytearray
    began: float = 0.0
    ends: bool = False  # the request in flight is EndTxn
    committed: int = 0
    asked_again: int = 0
    latencies: list[float] = field(default_factory=list)

    @classmethod
    def open(cls, port: int, partition: int) -> Producer:
        connection = wire.connect(port)
        name = f"transactions-{partition}"
        coordinators.find(connection, [name], coordinators.TRANSACTION)
        request = init_producer_id.InitProducerIdRequest(name, TIMEOUT_MS)
        deadline = time.monotonic() + wire.READY_WITHIN_S
        while True:
            answer = wire.ask(connection, init_producer_id, INIT_PRODUCER_ID_VERSION, request)
            if answer.error_code not in AGAIN or time.monotonic() > deadline:
                break
            time.sleep(0.01)
        wire.succeed(answer.error_code, "get a producer id")
        producer_id, epoch = answer.producer_id, answer.producer_epoch
        return cls(connection, name, partition, producer_id, epoch, template())

    def begin(self) -> None:
        self.began = time.perf_counter()
        struct.pack_into(">qhi", self.batch, PRODUCER_AT, self.producer_id, self.epoch, 0)
        seal(self.batch)
        self.send()

    def send(self) -> None:
        """The request that is due, for the first time or again."""
        if self.ends:
            end = end_txn.EndTxnRequest(self.name, self.producer_id, self.epoch, True)
            self.socket.sendall(wire.request_frame(end_txn, END_TXN_VERSION, end))
            return
        part = produce.PartitionProduceData(index=self.partition, records=self.batch)
        topics = [produce.TopicProduceData(name=TOPIC, partition_data=[part])]
        request = produce.ProduceRequest(self.name, wire.ACKS_ALL, TIMEOUT_MS, topics)
        self.socket.sendall(wire.request_frame(produce, PRODUCE_VERSION, request))

    def take_reply(self) -> bool:
        """Read the reply; False when the broker wants to be asked again."""
        frame = wire.receive_frame(self.socket)
        if self.ends:
            ended = wire.response_of(end_txn, END_TXN_VERSION, frame)
            if ended.error_code in AGAIN:
                return False
            wire.succeed(ended.error_code, "end a transaction")
            self.producer_id, self.epoch = ended.producer_id, ended.producer_epoch
            self.latencies.append(time.perf_counter() - self.began)
            self.committed += 1
        else:
            response = wire.response_of(produce, PRODUCE_VERSION, frame)
            code = response.responses[0].partition_responses[0].error_code
            if code in AGAIN:
                return False
            wire.succeed(code, "produce in a transaction")
        self.ends = not self.ends
        return True


def template() -> bytearray:
    """A transactional batch; producer and checksum are put in before it is sent."""
    now = int(time.time() * 1000)
    records = [Record(None, bytes([65 + at % 26]) * VALUE_SIZE, timestamp=now) for at in range(100)]
    return bytearray(
        build(records, producer_id=0, producer_epoch=0, base_sequence=0, is_transactional=True)
    )


class TransactionLoad:
    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        with wire.connect(broker.port) as connection:
            wire.create_topics_with(connection, [TOPIC], partitions=PRODUCERS)
        self.producers = [Producer.open(broker.port, part) for part in range(PRODUCERS)]

    @property
    def committed(self) -> int:
        return sum(producer.committed for producer in self.producers)

    @property
    def asked_again(self) -> int:
        return sum(producer.asked_again for producer in self.producers)

    def run_for(self, seconds: float) -> int:
        """Transactions one after the other until the time is over; none is left open."""
        before = self.committed
        deadline = time.perf_counter() + seconds
        busy = {producer.socket.fileno(): producer for producer in self.producers}
        resting: list[tuple[float, Producer]] = []  # told to ask again, first due first
        poller = select.epoll()
        for fd, producer in busy.items():
            poller.register(fd, select.EPOLLIN)
            producer.begin()
        while busy:
            events = poller.poll(ASK_AGAIN_S / 5 if resting else STALLED_AFTER_S)
            if not events and not resting:
                raise TimeoutError(f"no reply within {STALLED_AFTER_S} s")
            now = time.perf_counter()
            while resting and resting[0][0] <= now:
                resting.pop(0)[1].send()
            for fd, _what in events:
                producer = busy[fd]
                if not producer.take_reply():
                    producer.asked_again += 1
                    resting.append((now + ASK_AGAIN_S, producer))
                elif producer.ends:
                    producer.send()
                elif now < deadline:
                    producer.begin()
                else:
                    del busy[fd]
        poller.close()
        return self.committed - before

    def take_latencies(self) -> list[float]:
        found = sorted(each for producer in self.producers for each in producer.latencies)
        for producer in self.producers:
            producer.latencies = []
        return found

    def close(self) -> None:
        """Check that each partition holds the records and the markers, and nothing undecided."""
        for producer in self.producers:
            producer.socket.close()
        with wire.connect(self.broker.port) as connection:
            for producer in self.producers:
                expected = producer.committed * (RECORDS + 1)
                wait_for_stable_end(connection, producer.partition, expected)


def wait_for_stable_end(connection: socket.socket, partition: int, expected: int) -> None:
    """The last marker may be written after the reply to EndTxn."""
    part = list_offsets.ListOffsetsPartition(partition_index=partition, timestamp=wire.LATEST)
    topics = [list_offsets.ListOffsetsTopic(name=TOPIC, partitions=[part])]
    request = list_offsets.ListOffsetsRequest(-1, READ_COMMITTED, topics)
    deadline = time.monotonic() + STALLED_AFTER_S
    while True:
        answer = wire.ask(connection, list_offsets, wire.LIST_OFFSETS_VERSION, request)
        stable = answer.topics[0].partitions[0].offset
        if stable == expected == wire.end_offset(connection, TOPIC, partition):
            return
        if time.monotonic() > deadline:
            raise AssertionError(f"partition {partition} is stable up to {stable}, not {expected}")
        time.sleep(0.01)


def measure(run: Run) -> Samples:
    with run.target.start() as broker:
        load = TransactionLoad(broker)
        until_steady(broker, load.run_for, limit_s=run.amount(WARM_UP_S, 2.0))
        load.take_latencies()
        again, before = load.asked_again, load.committed
        usage = measured(broker, lambda: load.run_for(run.amount(5.0, 2.0)))
        count, again = load.committed - before, load.asked_again - again
        latencies = load.take_latencies()
        load.close()
    run.watch_noise("transactions", usage)
    run.details.append(f"transactions, {run.target.name}: asked again {again} times for {count}")
    return {
        "rate": [count / usage.wall_s],
        "p50": [1e3 * latencies[len(latencies) // 2]],
        "p99": [1e3 * latencies[len(latencies) * 99 // 100]],
        "cpu": [usage.broker_s / count * 1e6],
    }


BENCHMARK = Benchmark(
    "Transactions",
    (
        Row("rate", "transactions of 100 records", "per second", Goal(Better.MORE, ratio=1.0)),
        Row("p50", "a transaction, p50", "ms"),
        Row("p99", "a transaction, p99", "ms", Goal(Better.LESS, ratio=1.0)),
        Row("cpu", "a transaction, broker CPU", "us", Goal(Better.LESS, ratio=1.0)),
    ),
    measure,
    rounds=2,
)
