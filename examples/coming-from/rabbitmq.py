"""Coming from RabbitMQ: a work queue with publisher confirms, fanout, and a message that waits and
comes back, without a dead-letter exchange, a TTL queue or a plugin.

Run it on any Kafka cluster that a delay service serves. It makes its own topic.
"""

# ruff: noqa: T201
from __future__ import annotations

import threading

from headrace import Admin, App, Producer, Retry
from headrace.app import Message

TOPIC = "from-rabbitmq"
lock = threading.Lock()
lines: list[str] = []
all_there = threading.Event()


def say(line: str) -> None:
    with lock:
        print(line, flush=True)
        lines.append(line)
        if len(lines) == 7:
            all_there.set()


# A queue is a group: its workers share the messages, each of which goes to one of them. The limit
# of unacknowledged messages (prefetch) is concurrency=; the ack is the end of the function.
workers = App(group="mail-workers")
# A second queue bound to the same fanout exchange is a second group: it gets all of them as well.
audit = App(group="mail-audit")


@workers.on(TOPIC, concurrency=16, retry=Retry(attempts=3, first="100ms"))
def send_mail(address: str, message: Message) -> None:
    if address == "bob" and message.attempt == 1:
        raise ConnectionError("the mail server is away")  # nack with requeue, but later
    say(f"mail to {address}, attempt {message.attempt}")


@audit.on(TOPIC)
def note(address: str) -> None:
    say(f"noted {address}")


if __name__ == "__main__":
    admin = Admin()
    admin.topics.create(TOPIC, partitions=2)
    admin.delayed.enable(TOPIC)
    with workers.running(), audit.running(), Producer() as producer:
        confirmed = [producer.send(TOPIC, name) for name in ("ann", "bob", "cleo")]
        for confirm in confirmed:
            confirm.result(30)  # a publisher confirm: the cluster has it
        say("confirmed")
        assert all_there.wait(60), lines
        # x-delay of the delayed message exchange, or a queue with TTL and a DLX.
        lines[:] = ["-"] * 5
        all_there.clear()
        producer.send_sync(TOPIC, "dan", delay="1s")
        assert all_there.wait(60), lines
