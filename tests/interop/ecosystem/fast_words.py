"""A FastStream application: upper-cases what it reads. Arguments: bootstrap, in, out."""

from __future__ import annotations

import asyncio
import sys

from faststream import FastStream
from faststream.confluent import KafkaBroker

bootstrap, source, sink = sys.argv[1:4]
broker = KafkaBroker(bootstrap)


@broker.subscriber(source, group_id=f"fast-{source}", auto_offset_reset="earliest")
@broker.publisher(sink)
async def shout(word: str) -> str:
    return word.upper()


asyncio.run(FastStream(broker).run())
