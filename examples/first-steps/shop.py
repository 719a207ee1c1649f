"""A shop in forty lines: orders come in, a biller turns each into a bill, exactly once.

Run it on any Kafka cluster; it makes its own topics. See README.md beside it.
"""

# ruff: noqa: T201
from __future__ import annotations

from typing import Any

from headrace import Admin, Consumer, Producer
from headrace.client import from_json, to_json

PRICES = {"apples": 3, "pears": 4}


def make_topics() -> None:
    admin = Admin()
    present = {topic.name for topic in admin.topics.all()}
    for name in {"shop.orders", "shop.bills"} - present:
        admin.topics.create(name, partitions=2)


def take_orders(orders: list[dict[str, Any]]) -> None:
    """Send and wait for all: when this returns, the cluster has every order."""
    with Producer(value_serializer=to_json) as producer:
        futures = [producer.send("shop.orders", order, key=order["customer"]) for order in orders]
    for future in futures:
        sent = future.result()
        print(f"order at {sent.topic}-{sent.partition} offset {sent.offset}")


def write_bills(count: int) -> None:
    """Read orders, write bills; both in one transaction, so a crash repeats and doubles nothing."""
    with (
        Consumer(topics=["shop.orders"], group="biller", value_deserializer=from_json) as orders,
        Producer(value_serializer=to_json, transactional_id="biller") as bills,
    ):
        while count > 0:
            batch = orders.batch(timeout_s=10)
            with bills.transaction(consumer=orders):
                for record in batch:
                    order = record.value or {}
                    total = order["count"] * PRICES[order["item"]]
                    bills.send("shop.bills", {"total": total}, key=record.key)
            count -= len(batch)


def read_bills(count: int) -> list[int]:
    with Consumer(topics=["shop.bills"], group="post", value_deserializer=from_json) as bills:
        totals = []
        for record in bills:
            bill = record.value or {}
            totals.append(bill["total"])
            print(f"bill of {bill['total']} for {(record.key or b'').decode()}")
            if len(totals) == count:
                bills.commit()
                break
    return totals


if __name__ == "__main__":
    make_topics()
    take_orders(
        [
            {"customer": "anna", "item": "apples", "count": 4},
            {"customer": "ben", "item": "pears", "count": 1},
            {"customer": "anna", "item": "pears", "count": 2},
        ]
    )
    write_bills(3)
    read_bills(3)
