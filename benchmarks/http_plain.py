"""What one would write by hand: aiohttp and aiokafka, for `http_door.py` to stand beside.

`python -m benchmarks.http_plain BOOTSTRAP PORT`: the same requests and answers as v2's produce and
records, without anything else.
"""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from typing import Any

from aiohttp import web
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition


async def application(bootstrap: str) -> web.Application:
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap, acks="all", enable_idempotence=True, linger_ms=0
    )
    await producer.start()
    consumers: dict[str, AIOKafkaConsumer] = {}

    async def produce(request: web.Request) -> web.Response:
        topic = request.match_info["topic"]
        if request.content_type == "application/x-ndjson":
            body = await request.read()
            lines = [json.loads(line) for line in body.split(b"\n") if line]
            sent = [
                await producer.send(topic, line["value"].encode(), key=line["key"].encode())
                for line in lines
            ]
            await asyncio.gather(*sent)
            return web.json_response({"written": len(sent)})
        document = await request.json()
        futures = [
            await producer.send(
                topic, json.dumps(each["value"]).encode(), key=json.dumps(each["key"]).encode()
            )
            for each in document["records"]
        ]
        done = await asyncio.gather(*futures)
        offsets = [
            {"partition": d.partition, "offset": d.offset, "error_code": None, "error": None}
            for d in done
        ]
        said = {"offsets": offsets, "key_schema_id": None, "value_schema_id": None}
        return web.json_response(said, content_type="application/vnd.kafka.v2+json")

    async def records(request: web.Request) -> web.Response:
        name = request.match_info["name"]
        if name not in consumers:
            consumers[name] = AIOKafkaConsumer(bootstrap_servers=bootstrap)
            await consumers[name].start()
            place = TopicPartition(request.query["topic"], 0)
            consumers[name].assign([place])
            await consumers[name].seek_to_beginning(place)
        most = int(request.query["max_records"])
        found = await consumers[name].getmany(timeout_ms=1000, max_records=most)
        shown: list[dict[str, Any]] = [
            {
                "topic": each.topic,
                "key": base64.b64encode(each.key).decode(),
                "value": base64.b64encode(each.value).decode(),
                "partition": each.partition,
                "offset": each.offset,
            }
            for many in found.values()
            for each in many
        ]
        return web.json_response(shown)

    made = web.Application(client_max_size=64 << 20)
    made.router.add_post("/topics/{topic}", produce)
    made.router.add_get("/consumers/{name}/records", records)
    return made


if __name__ == "__main__":
    web.run_app(
        application(sys.argv[1]),
        host="127.0.0.1",
        port=int(sys.argv[2]),
        print=None,
        access_log=None,
    )
