"""The same work as an app of ours: concurrency 64 where there is work to wait for."""

from __future__ import annotations

import asyncio
import sys
import threading
from pathlib import Path

from headrace import App, Retry

sys.path.insert(0, str(Path(__file__).parent))
from tally import Tally, naps

bootstrap, topic, count, longest_ms, order = sys.argv[1:6]
tally, chance = Tally(int(count)), naps(float(longest_ms))
app = App(bootstrap, group=f"app-{topic}")
done = threading.Event()


async def work(value: bytes) -> None:
    await asyncio.sleep(chance.uniform(0, float(longest_ms)) / 1000)
    if tally.one():
        done.set()


async def empty(value: bytes) -> None:
    if tally.one():
        done.set()


app.add(
    work if float(longest_ms) else empty,
    [topic],
    retry=Retry(),
    order_by="key" if order == "key" else None,
    concurrency=64 if float(longest_ms) else 1,
)
with app.running():
    done.wait()
    tally.report()
