"""Coming from Redis: a sorted set as a timer, a stream with a group, and a key that expires.

Run it on any Kafka cluster that a delay service serves. It makes its own topics.
"""

# ruff: noqa: T201
from __future__ import annotations

import time

from headrace import Admin, Consumer, Producer

TIMERS, EVENTS = "from-redis-timers", "from-redis-events"


def value_of_next(consumer: Consumer[bytes, bytes]) -> str:
    record = consumer.poll(timeout_s=60)
    assert record is not None, "nothing came in a minute"
    return (record.value or b"").decode()


def sorted_set(admin: Admin, producer: Producer[str, str]) -> None:
    """ZADD timers DUE ID, ZADD again to move it, ZREM to call it off; nobody polls."""
    due = int(time.time() * 1000) + 1_500
    for id in ("a", "b", "c"):
        producer.send_sync(TIMERS, f"timer {id}", key=id, id=id, deliver_at=due)
    producer.send_sync(TIMERS, "timer b, moved", key="b", id="b", deliver_at=due + 500)
    print("ZREM:", admin.delayed.cancel(TIMERS, "c", key="c").outcome)
    with Consumer(topics=[TIMERS], group="timers") as consumer:
        for _ in range(2):
            print("due:", value_of_next(consumer))
        consumer.commit()


def stream_with_a_group(producer: Producer[str, str]) -> None:
    """XADD and XREADGROUP; what a dead consumer has not acknowledged comes to another by itself,
    without XAUTOCLAIM, and a trimmed stream (MAXLEN) is a topic's retention."""
    for number in range(3):
        producer.send_sync(EVENTS, f"event {number}", key="one")
    with Consumer(topics=[EVENTS], group="readers") as consumer:
        print("read, and died before the ack:", value_of_next(consumer))
    with Consumer(topics=[EVENTS], group="readers") as consumer:
        for _ in range(3):
            print("read:", value_of_next(consumer))
        consumer.commit()  # XACK of all of them


def key_that_expires(producer: Producer[str, str]) -> None:
    """SET session EX 1 with keyspace notifications loses the notice if nobody listens; a delayed
    message under the session's id waits, and each sign of life replaces it."""
    for _ in range(2):
        producer.send_sync(TIMERS, "session 7 expired", key="s7", id="session-7", delay="1s")
    with Consumer(topics=[TIMERS], group="timers") as consumer:
        print(value_of_next(consumer))


if __name__ == "__main__":
    admin = Admin()
    for topic in (TIMERS, EVENTS):
        admin.topics.create(topic, partitions=1)
    admin.delayed.enable(TIMERS)
    with Producer() as producer:
        sorted_set(admin, producer)
        stream_with_a_group(producer)
        key_that_expires(producer)
