"""Coming from the JDK's DelayQueue, a HashedWheelTimer or a ScheduledExecutorService: put with a
delay, take when it is due; and what waits outlives the process and has many takers.

Run it on any Kafka cluster that a delay service serves. It makes its own topic.
"""

# ruff: noqa: T201
from __future__ import annotations

from headrace import Admin, Consumer, Producer

TOPIC = "from-delay-queue"


class DelayQueue:
    """With the methods of java.util.concurrent.DelayQueue."""

    def __init__(self) -> None:
        self._admin = Admin()
        self._producer = Producer[str, str]()
        self._consumer = Consumer(topics=[TOPIC], group="takers")

    def put(self, element: str, delay: str) -> None:
        self._producer.send_sync(TOPIC, element, key=element, id=element, delay=delay)

    def remove(self, element: str) -> bool:
        return self._admin.delayed.cancel(TOPIC, element, key=element).outcome == "cancelled"

    def take(self) -> str:
        """Waits for the next that is due. The head of a JDK queue dies with its JVM; this one is
        committed when the taker says so."""
        record = self._consumer.poll(timeout_s=60)
        assert record is not None, "nothing came in a minute"
        self._consumer.commit()
        return (record.value or b"").decode()

    def close(self) -> None:
        self._consumer.close()
        self._producer.close()


if __name__ == "__main__":
    admin = Admin()
    admin.topics.create(TOPIC, partitions=1)
    admin.delayed.enable(TOPIC)
    first = DelayQueue()
    first.put("slow", "3s")
    first.put("quick", "1s")
    first.put("never", "2s")
    print("removed:", first.remove("never"))
    print("taken:", first.take())
    first.close()  # the process ends, and another goes on
    second = DelayQueue()
    print("taken:", second.take())
    second.close()
