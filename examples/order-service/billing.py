"""Bills orders: retried, in the order of each customer, and each order billed once.

    headrace app run billing:app

The database is SQLite in this folder unless DATABASE_URL names another one.
"""

from __future__ import annotations

import os

from pydantic import BaseModel
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine

from headrace import App, Message, Publish, Retry, Sql

engine = create_async_engine(os.environ.get("DATABASE_URL", "sqlite+aiosqlite:///bills.db"))
app = App(os.environ.get("HEADRACE_BOOTSTRAP", "localhost:9092"), group="billing")


class Order(BaseModel):
    number: int
    customer: str
    total: int  # in cents


class UnknownCustomer(Exception):
    """No number of attempts will help."""


async def credit_limit(customer: str) -> int:
    """Asks another system; here a rule stands for it."""
    if customer.startswith("unknown"):
        raise UnknownCustomer(customer)
    return 10_000


@app.on(
    "orders",
    retry=Retry(attempts=8, first="1s", longest="10m", fatal=(UnknownCustomer,)),
    order_by="key",
    once=Sql(engine),
)
async def bill(order: Order, message: Message, db: AsyncConnection) -> Publish:
    """Write a bill and publish it."""
    limit = await credit_limit(order.customer)
    await db.execute(text("CREATE TABLE IF NOT EXISTS bills (number INTEGER, cents INTEGER)"))
    await db.execute(
        text("INSERT INTO bills VALUES (:number, :cents)"),
        {"number": order.number, "cents": order.total},
    )
    on_account = order.total <= limit
    return Publish("bills", {"order": order.number, "on_account": on_account}, key=message.key)
