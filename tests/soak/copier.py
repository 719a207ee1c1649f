"""An exactly-once copy as a program of its own, so that it can be killed: consume, transform,
produce, commit the offsets in the same transaction. Some transactions are aborted on purpose.

`python -m tests.soak.copier BOOTSTRAP SOURCE TARGET GROUP SLOT JOURNAL SEED PROTOCOL HALT`. Copiers
of one group share the work; each slot has a transactional id of its own. The journal gets a line
`committed ID`, `aborted ID` or `refused ID ERROR` after the broker has said so. HALT is `never`, or
where the third transaction sends itself SIGSTOP: `before-offsets` or `before-commit`. Ends with 1
when it cannot go on, as a supervised program does; the next one takes its place.
"""

from __future__ import annotations

import faulthandler
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from typing import Any, TextIO

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

MOST_RECORDS = 40
ABORTED = 0.15
WITHIN_S = 20.0
SESSION_MS = 3_000
TRANSACTION_MS = 6_000
HALTED_TRANSACTION = 3

# With librdkafka 2.16 and its re-bootstrap, send_offsets_to_transaction may hang after a restart of
# the broker, on Apache Kafka too: it waits for a broker object that it has ended itself, and looks
# at no time-out while it does (its issues 5511 and 5456; docs/reliability-runs.md).
NO_REBOOTSTRAP = {"metadata.recovery.strategy": "none"}


def transformed(value: str) -> str:
    return f"copy of {value}"


class Copier:
    def __init__(self, words: list[str], journal: TextIO) -> None:
        bootstrap, source, self.target, group, slot, _, seed, protocol, self.halt = words
        self.journal = journal
        self.chance = random.Random(int(seed))
        self.name = f"{slot}-{seed}-{time.time_ns()}"
        self.count = 0
        self.batch: list[Message] = []
        self.producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": f"{group}-{slot}",
                "transaction.timeout.ms": TRANSACTION_MS,
                "linger.ms": 2,
                "log_level": 0,
                **NO_REBOOTSTRAP,
            }
        )
        insistently(self.producer.init_transactions)
        settings: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
            **NO_REBOOTSTRAP,
        }
        if protocol == "classic":  # the other protocol leaves these to the broker
            settings |= {"session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": 500}
        self.consumer = Consumer(settings)
        self.consumer.subscribe([source], on_revoke=self.let_go, on_lost=self.let_go)

    def let_go(self, _: Consumer, gone: list[TopicPartition]) -> None:
        """Somebody else will copy these: what was read and not yet copied is forgotten."""
        numbers = {place.partition for place in gone}
        self.batch = [message for message in self.batch if message.partition() not in numbers]

    def run(self) -> None:
        while True:
            self.gather()
            if self.batch:
                messages, self.batch = self.batch, []
                self.copy(messages)

    def gather(self) -> None:
        while len(self.batch) < MOST_RECORDS:
            message = self.consumer.poll(0.05)
            if message is None:
                return
            if message.error() is not None:
                raise KafkaException(message.error())
            self.batch.append(message)

    def copy(self, messages: list[Message]) -> None:
        self.count += 1
        transaction = f"{self.name}-{self.count}"
        try:
            committed = self.attempt(transaction, messages)
        except KafkaException as failure:
            error = failure.args[0]
            self.note("refused", f"{transaction} {error.name()}")
            if error.fatal() or not error.txn_requires_abort():
                raise
            committed = False
        if committed:
            self.note("committed", transaction)
        else:
            insistently(self.producer.abort_transaction)
            self.note("aborted", transaction)
            self.step_back()

    def attempt(self, transaction: str, messages: list[Message]) -> bool:
        """True: committed. False: to be aborted, as chance says."""
        headers: dict[str, str | bytes | None] = {
            "transaction": transaction,
            "of": str(len(messages)),
        }
        self.producer.begin_transaction()
        places: dict[int, TopicPartition] = {}
        for message in messages:
            topic, partition, value = message.topic(), message.partition(), message.value()
            self.producer.produce(
                self.target,
                transformed(value.decode()).encode(),
                message.key(),
                partition=partition,
                headers=headers,
            )
            places[partition] = TopicPartition(topic, partition, message.offset() + 1)
        self.halt_at("before-offsets")
        group = self.consumer.consumer_group_metadata()
        insistently(self.producer.send_offsets_to_transaction, list(places.values()), group)
        if self.chance.random() < ABORTED and self.halt == "never":
            self.producer.flush(WITHIN_S)
            return False
        self.halt_at("before-commit")
        insistently(self.producer.commit_transaction)
        return True

    def halt_at(self, where: str) -> None:
        if self.halt == where and self.count == HALTED_TRANSACTION:
            self.producer.flush(WITHIN_S)
            self.note("halted", f"{self.name}-{self.count}")
            os.kill(os.getpid(), signal.SIGSTOP)

    def step_back(self) -> None:
        self.batch = []
        for place in self.consumer.committed(self.consumer.assignment(), WITHIN_S):
            offset = max(place.offset, 0)
            self.consumer.seek(TopicPartition(place.topic, place.partition, offset))

    def note(self, what: str, transaction: str) -> None:
        self.journal.write(f"{what} {transaction}\n")
        self.journal.flush()


def insistently(call: Callable[..., Any], *words: Any) -> None:
    """Again as long as librdkafka says that the same call may be made again."""
    deadline = time.monotonic() + WITHIN_S
    while True:
        try:
            call(*words, WITHIN_S)
            return
        except KafkaException as failure:
            if not failure.args[0].retriable() or time.monotonic() > deadline:
                raise


def main() -> int:
    faulthandler.register(signal.SIGUSR1)  # says where it hangs, if it does
    words = sys.argv[1:]
    with open(words[5], "a", encoding="utf-8") as journal:
        try:
            Copier(words, journal).run()
        except KafkaException as failure:
            sys.stderr.write(f"{failure}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
