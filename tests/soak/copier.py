"""An exactly-once copy as a program of its own, so that it can be killed: consume, produce, commit
the offsets in the same transaction. Some transactions are aborted on purpose.

`python -m tests.soak.copier BOOTSTRAP SOURCE TARGET NAME JOURNAL SEED`. The journal gets a line
`committed ID` or `aborted ID` after the broker has said so. Ends with 1 when it cannot go on, as a
supervised program does; the next one takes its place.
"""

from __future__ import annotations

import random
import sys
import time
from typing import TextIO

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

MOST_RECORDS = 40
ABORTED = 0.15
WITHIN_S = 20.0


class Copier:
    def __init__(
        self, bootstrap: str, source: str, target: str, name: str, journal: TextIO, seed: int
    ) -> None:
        self.target = target
        self.journal = journal
        self.chance = random.Random(seed)
        self.name = f"{name}-{seed}-{time.time_ns()}"
        self.count = 0
        self.producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": name,
                "transaction.timeout.ms": 10_000,
                "linger.ms": 2,
                "log_level": 0,
            }
        )
        self.producer.init_transactions(WITHIN_S)
        self.consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": name,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 6_000,
                "log_level": 0,
            }
        )
        self.consumer.subscribe([source])

    def run(self) -> None:
        while True:
            messages = self.consumer.consume(MOST_RECORDS, 0.2)
            for message in messages:
                if message.error() is not None:
                    raise KafkaException(message.error())
            if messages:
                self.copy(messages)

    def copy(self, messages: list[Message]) -> None:
        self.count += 1
        transaction = f"{self.name}-{self.count}"
        headers = [("transaction", transaction), ("of", str(len(messages)))]
        self.producer.begin_transaction()
        for message in messages:
            self.producer.produce(
                self.target, message.value(), partition=message.partition(), headers=headers
            )
        places = self.consumer.position(self.consumer.assignment())
        known = [place for place in places if place.offset >= 0]
        self.producer.send_offsets_to_transaction(
            known, self.consumer.consumer_group_metadata(), WITHIN_S
        )
        if self.chance.random() < ABORTED:
            assert self.producer.flush(WITHIN_S) == 0
            self.producer.abort_transaction(WITHIN_S)
            self.note("aborted", transaction)
            self.step_back()
        else:
            self.producer.commit_transaction(WITHIN_S)
            self.note("committed", transaction)

    def step_back(self) -> None:
        for place in self.consumer.committed(self.consumer.assignment(), WITHIN_S):
            offset = max(place.offset, 0)
            self.consumer.seek(TopicPartition(place.topic, place.partition, offset))

    def note(self, what: str, transaction: str) -> None:
        self.journal.write(f"{what} {transaction}\n")
        self.journal.flush()


def main() -> int:
    bootstrap, source, target, name, journal, seed = sys.argv[1:]
    with open(journal, "a", encoding="utf-8") as lines:
        try:
            Copier(bootstrap, source, target, name, lines, int(seed)).run()
        except KafkaException as failure:
            sys.stderr.write(f"{failure}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
