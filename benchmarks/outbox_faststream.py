"""The relay of faststream-outbox for `outbox.py`, run by an interpreter that has it.

python outbox_faststream.py DSN BOOTSTRAP TOPIC [create]
"""

from __future__ import annotations

import asyncio
import sys

from faststream import FastStream
from faststream.confluent import KafkaBroker
from faststream_outbox import OutboxBroker, make_outbox_table
from sqlalchemy import MetaData
from sqlalchemy.ext.asyncio import create_async_engine

dsn, bootstrap, topic = sys.argv[1:4]
metadata = MetaData()
table = make_outbox_table(metadata, table_name="fs_outbox")
engine = create_async_engine(dsn.replace("postgresql://", "postgresql+asyncpg://"), pool_size=32)
outbox = OutboxBroker(engine, outbox_table=table, logger=None)
kafka = KafkaBroker(bootstrap, logger=None)


@kafka.publisher(topic)
@outbox.subscriber(
    "bench",
    max_workers=16,
    fetch_batch_size=500,
    min_fetch_interval=0.005,
    terminal_flush_batch_size=100,
)
async def relay(body: object) -> object:
    return body


async def create() -> None:
    async with engine.begin() as db:
        await db.run_sync(metadata.drop_all)
        await db.run_sync(metadata.create_all)


if __name__ == "__main__":
    if sys.argv[4:] == ["create"]:
        asyncio.run(create())
    else:
        asyncio.run(FastStream(outbox, on_startup=[kafka.connect]).run())
