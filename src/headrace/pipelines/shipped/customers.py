"""Customers of a made-up shop, as a compacted topic holds them; the same for the same seed.

A record is what is known of one customer now, under the customer's key; a null value says that the
customer is gone. Customers come again, change and go, and what the shop knows of them grows: from
the second third of the records on they may have an `email`, from the last third on an `address`,
which is an object. No clock is read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from random import Random

NAMES = ("Ada", "Ben", "Cleo", "Dora", "Emil", "Fay", "Gus", "Hana", "Ivo", "Jun")
CITIES = (("Rome", "00184"), ("Lyon", "69001"), ("Graz", "8010"), ("Cork", "T12"), ("Oslo", "0150"))
GONE_PERCENT = 8.0


def generate(
    *, records: int, customers: int, seed: int, bad_percent: float = 0.0
) -> Iterator[tuple[bytes, bytes | None]]:
    """Keys and values, in their order."""
    chance = Random(seed)
    orders: dict[int, int] = {}
    for number in range(records):
        customer = chance.randrange(customers)
        key = f"c{customer:06d}".encode()
        if chance.random() * 100 < bad_percent:
            yield key, b'{"name": '
        elif customer in orders and chance.random() * 100 < GONE_PERCENT:
            del orders[customer]
            yield key, None
        else:
            orders[customer] = orders.get(customer, 0) + 1
            yield key, _value(chance, customer, orders[customer], 3 * number // records)


def _value(chance: Random, customer: int, orders: int, third: int) -> bytes:
    name = NAMES[customer % len(NAMES)]
    value: dict[str, object] = {
        "name": name,
        "orders": orders,
        "spent": round(orders * 17.5 + chance.randrange(100) / 4 + 0.25, 2),
    }
    if third >= 1 and chance.random() < 0.8:
        value["email"] = f"{name.lower()}{customer}@shop.example"
    if third >= 2 and chance.random() < 0.8:
        city, code = chance.choice(CITIES)
        value["address"] = {"city": city, "zip": code}
    return json.dumps(value).encode()
