"""A worker that the crash tests start, kill and halt: `python -m tests.services.app_worker ...`.

Its handler fails as the record says and writes each success to one file that all workers share. A
line is written in one call at the end of the file, so the lines stand in the order of the effects.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import random
from typing import Any

from headrace import App, Message, Publish, Retry

TOPIC, OUT, GROUP = "work", "work.out", "workers"


def make_app(given: argparse.Namespace) -> App:
    app = App(
        given.bootstrap,
        group=GROUP,
        delay=given.delay,
        settings={"group.protocol": "consumer"} if given.newer else None,
    )
    effects = os.open(given.effects, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    chance = random.Random()
    exactly_once = given.mode == "exactly-once"
    options: dict[str, Any] = {}
    if exactly_once:
        options = {"exactly_once": True, "order_by": "partition"}
    else:
        options["order_by"] = None if given.mode == "none" else given.mode
        options["concurrency"] = given.concurrency

    @app.on(
        TOPIC,
        retry=Retry(attempts=4, first=given.first, longest=given.longest, factor=3.0),
        **options,
    )
    async def handle(record: dict[str, Any], message: Message) -> Any:
        if given.slow_ms:
            await asyncio.sleep(chance.random() * 2 * given.slow_ms / 1000)
        if message.attempt <= record["fails"]:
            raise OSError(f"attempt {message.attempt} of {record['fails']} that fail")
        line = f"{record['key']} {record['number']} {message.attempt} {os.getpid()}\n"
        os.write(effects, line.encode())
        return Publish(OUT, f"{record['key']} {record['number']}") if exactly_once else None

    return app


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--effects", required=True)
    parser.add_argument("--mode", choices=["key", "partition", "none", "exactly-once"])
    parser.add_argument("--concurrency", type=int, default=16)
    parser.add_argument("--slow-ms", type=float, default=30.0)
    parser.add_argument("--first", default="300ms")
    parser.add_argument("--longest", default="3s")
    parser.add_argument("--delay", default="auto")
    parser.add_argument("--newer", action="store_true", help="the consumer protocol of KIP-848")
    given = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    logging.getLogger("headrace.app").addFilter(lambda line: "parked" not in line.getMessage())
    logging.getLogger("headrace.client.librdkafka").setLevel(logging.CRITICAL)
    make_app(given).run()


if __name__ == "__main__":
    main()
