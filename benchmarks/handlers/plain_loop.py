"""The loop that confluent-kafka's documentation shows: poll, handle, commit now and then."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from confluent_kafka import Consumer

sys.path.insert(0, str(Path(__file__).parent))
from tally import Tally, naps

bootstrap, topic, count, longest_ms = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
tally, chance = Tally(count), naps(longest_ms)
consumer = Consumer(
    {
        "bootstrap.servers": bootstrap,
        "group.id": f"plain-{topic}",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
)


def handle(value: bytes | None) -> None:
    if longest_ms:
        time.sleep(chance.uniform(0, longest_ms) / 1000)


consumer.subscribe([topic])
committed = time.monotonic()
done = False
while not done:
    message = consumer.poll(1.0)
    if message is None or message.error():
        continue
    handle(message.value())
    done = tally.one()
    if done or time.monotonic() - committed > 0.5:
        consumer.commit(asynchronous=not done)  # type: ignore[call-overload]  # literals only
        committed = time.monotonic()
tally.report()
consumer.close()
