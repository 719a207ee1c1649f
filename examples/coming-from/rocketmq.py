"""Coming from RocketMQ: delay levels, ordered messages, tags, retries, dead letters, and a message
that is sent if and only if a local transaction commits.

Run it on any Kafka cluster that a delay service serves. It makes its own topic.
"""

# ruff: noqa: T201
from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from sqlalchemy import create_engine, text

from headrace import Admin, App, Outbox, Producer, Retry
from headrace.app import Message
from headrace.client import to_json

TOPIC = "from-rocketmq"
app = App(group="rocket-consumer")
seen: list[str] = []
all_seen = threading.Event()


# MessageListenerOrderly: one key (sharding key) after the other. RECONSUME_LATER: raise.
@app.on(TOPIC, order_by="key", concurrency=8, retry=Retry(attempts=2, first="100ms"))
def consume(value: dict, message: Message) -> None:
    tag = dict(message.headers).get("TAGS", b"").decode()
    if tag == "broken":
        raise ValueError("no attempt will help")  # ends in from-rocketmq.rocket-consumer.dead
    print(f"{tag}: {value['step']} of {message.key.decode()}\n", end="", flush=True)
    seen.append(tag)
    if len(seen) == 5:
        all_seen.set()


def send_messages() -> None:
    with Producer(value_serializer=to_json) as producer:
        for step in ("created", "paid", "shipped"):  # syncSend with a sharding key
            producer.send_sync(TOPIC, {"step": step}, key="order-1", headers={"TAGS": "ordered"})
        producer.send_sync(TOPIC, {"step": "?"}, key="order-2", headers={"TAGS": "broken"})
        # setDelayTimeLevel(1) is one second; setDeliverTimeMs is deliver_at=.
        producer.send_sync(
            TOPIC, {"step": "reminded"}, key="order-3", headers={"TAGS": "delayed"}, delay="1s"
        )


def send_in_a_transaction(folder: Path) -> subprocess.Popen[bytes]:
    """A half message with check-back becomes a row of the database: there is nothing to ask back,
    because the message commits, or rolls back, with the change itself."""
    url = f"sqlite:///{folder / 'shop.db'}"
    engine = create_engine(url)
    outbox = Outbox(engine)
    outbox.create(1)
    for outcome in ("rolled back", "committed"):
        with engine.connect() as db, db.begin() as transaction:
            db.execute(text("CREATE TABLE IF NOT EXISTS orders (number INTEGER)"))
            db.execute(text("INSERT INTO orders VALUES (4)"))
            outbox.send(
                db, TOPIC, {"step": outcome}, key="order-4", headers={"TAGS": "transactional"}
            )
            if outcome == "rolled back":
                transaction.rollback()
    headrace = str(Path(sys.executable).with_name("headrace"))
    return subprocess.Popen([headrace, "outbox", "relay", url], stderr=subprocess.DEVNULL)


if __name__ == "__main__":
    admin = Admin()
    admin.topics.create(TOPIC, partitions=4)
    admin.delayed.enable(TOPIC)
    with tempfile.TemporaryDirectory() as folder, app.running():
        send_messages()
        relay = send_in_a_transaction(Path(folder))
        try:
            assert all_seen.wait(60), seen
        finally:
            relay.terminate()
            relay.wait()
    dead = Admin().topics.written(["from-rocketmq.rocket-consumer.dead"])
    print(f"{sum(dead.values())} in the dead letters")
