"""A worker whose effects lie in a database: `python -m tests.services.effects_worker ...`.

Its handler fails as the record says, before or after it wrote its row, and holds every row to one
transaction with the memory of `once=`. The rows are numbered in the order in which they were made.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import random
import time
from typing import Any

from sqlalchemy import Connection, create_engine, text
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine

from headrace import App, Message, Redis, Retry, Sql
from tests.services.app_rounds import ATTEMPTS
from tests.services.app_worker import GROUP, TOPIC

# Kafka's least: until it is over, the partitions of a killed worker are nobody's.
SESSION_MS = 6_000

INSERT = text(
    "INSERT INTO effects (who, number, attempt, worker) VALUES (:key, :number, :attempt, :worker)"
)


def row(record: dict[str, Any], message: Message) -> dict[str, Any]:
    return {
        "key": record["key"],
        "number": record["number"],
        "attempt": message.attempt,
        "worker": os.getpid(),
    }


def fail_if_told(record: dict[str, Any], message: Message, *, after_the_effect: bool) -> None:
    """Every other failing attempt has made its row already, which must not remain."""
    if message.attempt <= record["fails"] and after_the_effect == bool(message.attempt % 2):
        raise OSError(f"attempt {message.attempt} of {record['fails']} that fail")


def make_app(given: argparse.Namespace) -> App:
    app = App(
        given.bootstrap,
        group=given.group,
        delay=given.delay,
        drain="60s",
        settings={"session.timeout.ms": SESSION_MS},
    )
    chance = random.Random()
    options: dict[str, Any] = {
        "retry": Retry(attempts=ATTEMPTS, first=given.first, longest=given.longest, factor=4.0),
        "order_by": None if given.order == "none" else given.order,
        "concurrency": given.concurrency,
    }

    def told(record: dict[str, Any]) -> dict[str, Any]:
        return record | {"fails": 0} if given.mended else record

    def work_s() -> float:
        return chance.random() * 2 * given.slow_ms / 1000

    if given.redis or given.plain:
        once = Redis(given.redis, claim="5s") if given.redis else None
        effects = os.open(given.effects, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

        @app.on(TOPIC, once=once, **options)
        async def notify(record: dict[str, Any], message: Message) -> None:
            await asyncio.sleep(work_s())
            if message.attempt <= record["fails"] and not given.mended:
                raise OSError("it fails")
            os.write(effects, f"{record['key']} {record['number']} 1 {os.getpid()}\n".encode())

        return app

    if given.kind == "function":
        engine = create_engine(
            given.database.replace("+asyncpg", "+psycopg"), pool_size=given.concurrency
        )

        @app.on(TOPIC, once=Sql(engine, longest_pause=given.longest_pause), **options)
        def bill(record: dict[str, Any], message: Message, db: Connection) -> None:
            time.sleep(work_s())
            fail_if_told(told(record), message, after_the_effect=False)
            db.execute(INSERT, row(record, message))
            fail_if_told(told(record), message, after_the_effect=True)

        return app

    pool = create_async_engine(given.database, pool_size=given.concurrency)

    @app.on(TOPIC, once=Sql(pool, longest_pause=given.longest_pause), **options)
    async def bill_async(record: dict[str, Any], message: Message, db: AsyncConnection) -> None:
        await asyncio.sleep(work_s())
        fail_if_told(told(record), message, after_the_effect=False)
        await db.execute(INSERT, row(record, message))
        fail_if_told(told(record), message, after_the_effect=True)

    return app


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--database", default="")
    parser.add_argument("--redis", default="")
    parser.add_argument("--effects", default="")
    parser.add_argument("--group", default=GROUP)
    parser.add_argument("--kind", choices=["coroutine", "function"], default="coroutine")
    parser.add_argument("--order", choices=["key", "partition", "none"], default="key")
    parser.add_argument("--concurrency", type=int, default=8)
    parser.add_argument("--slow-ms", type=float, default=5.0)
    parser.add_argument("--first", default="200ms")
    parser.add_argument("--longest", default="3s")
    parser.add_argument("--delay", default="auto")
    parser.add_argument("--longest-pause", default="5m", help="inside a transaction")
    parser.add_argument("--mended", action="store_true", help="nothing fails")
    parser.add_argument("--plain", action="store_true", help="without once=, into a file")
    given = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(process)d %(name)s %(message)s")
    logging.getLogger("headrace.app").addFilter(lambda line: "parked" not in line.getMessage())
    logging.getLogger("headrace.client.librdkafka").setLevel(logging.CRITICAL)
    make_app(given).run()


if __name__ == "__main__":
    main()
