"""The same work as a FastStream application; runs in the environment that has FastStream."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from faststream import AckPolicy, FastStream
from faststream.confluent import KafkaBroker

sys.path.insert(0, str(Path(__file__).parent))
from tally import Tally, naps

bootstrap, topic, count, longest_ms = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
tally, chance = Tally(count), naps(longest_ms)
broker = KafkaBroker(bootstrap, logger=None)


@broker.subscriber(
    topic,
    group_id=f"fast-{topic}",
    auto_offset_reset="earliest",
    ack_policy=AckPolicy.ACK_FIRST,  # commits by time, as a plain loop would
)
async def handle(value: bytes) -> None:
    if longest_ms:
        await asyncio.sleep(chance.uniform(0, longest_ms) / 1000)
    if tally.one():
        tally.report()
        os._exit(0)


asyncio.run(FastStream(broker, logger=None).run())
