"""A cluster with something of everything, for the tests and for the pictures of the guide.

All of it is deterministic but for the times, which count from the moment it is made.
"""

from __future__ import annotations

import json
import time

from headrace.app.retries.dead_letters import why_headers
from headrace.client.admin.admin import Admin
from headrace.client.admin.groups import Groups, Move
from headrace.client.connection import connection
from headrace.client.delay.instances import DelayInstances, NoDelayService
from headrace.client.producer.producer import Producer

LONGEST_START_S = 120
# What somebody may put wherever a client may write.
HOSTILE = '<script>document.title="run"</script><img src=x onerror=document.title="run">'
HOSTILE_SIGNS = "\x1b[31mred\x07 \u202egnp.exe \u2028 line"
HOSTILE_GROUP = "gr/../<b>oup</b>?&#\"'"


def fill(bootstrap: str, *, delayed: bool = False, hostile: bool = True) -> None:
    admin = Admin(connection(bootstrap=bootstrap))
    if hostile:
        admin.topics.create("hostile", partitions=1)
    for name, partitions in (("orders", 3), ("payments", 2), ("reminders", 1)):
        admin.topics.create(name, partitions=partitions)
    admin.topics.create("customers", partitions=1, settings={"cleanup.policy": "compact"})
    admin.topics.create("orders.billing.dead", partitions=2)
    admin.topics.create("orders.billing.retry", partitions=3)
    with Producer(connection(bootstrap=bootstrap)) as producer:
        _orders(producer)
        if hostile:
            _hostile(producer)
        _letters(producer, HOSTILE if hostile else "the amount is negative")
        if delayed:
            admin.delayed.enable("reminders")
            for number in range(40):
                producer.send(
                    "reminders",
                    f"cup {number}",
                    key="tea",
                    id=f"tea-{number}",
                    delay=f"{10 + number * number}m",
                )
    if delayed:
        wait_until_listed(bootstrap, "reminders", 40)
    _groups(bootstrap, [HOSTILE_GROUP] if hostile else [])


def wait_until_listed(bootstrap: str, topic: str, count: int) -> None:
    """The delay service has read what was sent; it may just be starting."""
    deadline = time.monotonic() + LONGEST_START_S
    listed = 0
    while listed < count and time.monotonic() < deadline:
        try:
            page = DelayInstances(connection(bootstrap=bootstrap)).pending(limit=count, topic=topic)
            listed = len(page.rows)
        except NoDelayService:
            continue
    assert listed == count


def _orders(producer: Producer) -> None:
    names = ("ada", "grace", "linus", "margaret", "tim")
    for number in range(120):
        order = {
            "order": 1000 + number,
            "customer": names[number % 5],
            "amount": round(12.5 + number * 7.3, 2),
            "items": [{"sku": f"A-{number % 9}", "count": number % 3 + 1}],
        }
        headers = {"trace": f"{number:08x}", "kind": "refund" if number % 7 == 0 else "sale"}
        producer.send("orders", json.dumps(order), key=names[number % 5], headers=headers)
    for number in range(30):
        producer.send("payments", f"paid {number}", key=f"order-{1000 + number}")
    for name in names:
        producer.send("customers", json.dumps({"name": name, "since": 2024}), key=name)
    producer.send("customers", None, key="tim")
    producer.flush()


def _hostile(producer: Producer) -> None:
    producer.send("hostile", HOSTILE, key=HOSTILE, headers=[(HOSTILE, HOSTILE.encode())])
    producer.send("hostile", HOSTILE_SIGNS, key=HOSTILE_SIGNS)
    producer.send("hostile", json.dumps({"</script>": HOSTILE}), key="json")
    producer.send("hostile", bytes(range(256)), key=(42).to_bytes(8))
    producer.send("hostile", "x" * 100_000, key="long")
    producer.flush()


def _letters(producer: Producer, message: str) -> None:
    errors = (
        LookupError("no customer with this name"),
        TimeoutError("the bank did not answer within 30 s"),
        ValueError(message),
    )
    for number in range(24):
        why = why_headers(
            errors[number % 5 % 3],
            attempts=8,
            first_at_ms=1_700_000_000_000,
            last_at_ms=1_700_000_600_000,
            origin=("orders", number % 3, number),
            group="billing",
        )
        producer.send(
            "orders.billing.dead",
            json.dumps({"order": 1000 + number}),
            key=f"k{number}",
            partition=number % 2,
            headers=why,
        )
    producer.flush()


def _groups(bootstrap: str, more: list[str]) -> None:
    """Groups that have read a part, or all; nobody is in them now."""
    groups = Groups(connection(bootstrap=bootstrap))
    for group, topic, most in (
        ("billing", "orders", 20),
        ("warehouse", "orders", 40),
        ("reports", "payments", 10_000),
        *((group, "payments", 3) for group in more),
    ):
        ends = groups.ends(groups.partitions_of(topic))
        targets = {place: min(end, most) for place, end in ends.items()}
        groups.move(group, [Move(*place, None, to, to) for place, to in targets.items()])
