"""An order that is not paid in time closes itself: one delayed message per order, and a cancel.

Run it on any Kafka cluster that a delay service serves; it makes its own topic. PAYMENT_WINDOW says
how long customers have (default: 30m). See README.md beside it.
"""

# ruff: noqa: T201
from __future__ import annotations

import os

from headrace import Admin, Consumer, Producer
from headrace.client import from_json, to_json

TOPIC = "shop.payment-due"
WINDOW = os.environ.get("PAYMENT_WINDOW", "30m")


def make_topic() -> None:
    admin = Admin()
    if TOPIC not in {topic.name for topic in admin.topics.all()}:
        admin.topics.create(TOPIC, partitions=3)
    admin.delayed.enable(TOPIC)


class Shop:
    """Orders by their number: open, then paid or closed. A real shop keeps them in a database."""

    def __init__(self) -> None:
        self.orders: dict[str, str] = {}
        self.producer = Producer(value_serializer=to_json)

    def place(self, order: str, total: int) -> None:
        self.orders[order] = "open"
        self.producer.send_sync(TOPIC, {"total": total}, key=order, delay=WINDOW, id=order)
        print(f"{order} is placed")

    def pay(self, order: str) -> None:
        self.orders[order] = "paid"
        self.producer.cancel(TOPIC, order, key=order).result()
        print(f"{order} is paid")

    def close_unpaid(self, count: int) -> None:
        """Close orders whose time is over, until so many are closed.

        A payment may cross the message on its way, so the order itself is asked once more. That
        also makes it harmless to get a message again after a crash.
        """
        with Consumer(topics=[TOPIC], group="closer", value_deserializer=from_json) as due:
            for record in due:
                order = (record.key or b"").decode()
                if self.orders.get(order) == "open":
                    self.orders[order] = "closed"
                    print(f"{order} is closed: {(record.value or {})['total']} were not paid")
                    count -= 1
                due.commit()
                if count == 0:
                    break


if __name__ == "__main__":
    make_topic()
    shop = Shop()
    for order, total in (("order-41", 12), ("order-42", 8), ("order-43", 30)):
        shop.place(order, total)
    shop.pay("order-42")
    shop.close_unpaid(2)
    shop.producer.close()
