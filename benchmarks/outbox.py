"""The outbox: how many rows a second does a relay send, and what does a plain relay do beside it?

Both read the same kind of rows (100 bytes, 1,000 keys) from one PostgreSQL, for one node. The
plain one is what people write first: SELECT ... FOR UPDATE SKIP LOCKED of 1,000 rows, send,
flush, DELETE, commit, with an idempotent producer. It doubles rows after a crash and, with a second
relay beside it, swaps those of a key; ours does neither. `python -m benchmarks.outbox URL` with a
database that may be written to.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import confluent_kafka
import psycopg
from sqlalchemy import text

from headrace.client import Admin
from tests.interop.brokers import HeadraceNode
from tests.services.outbox_rounds import TOPIC, Shop, ends

from .processes import processor_seconds

ROWS = 100_000
PLAIN_BATCH = 1000
FILL = (
    " SELECT {shard} '{topic}', convert_to('k' || n % 1000, 'UTF8'), repeat('x', 100)::bytea"
    " FROM generate_series(1, {rows}) n"
)


def relay(shop: Shop, node: HeadraceNode) -> tuple[float, float]:
    """Rows per second and microseconds of processor time per row."""
    columns = "INSERT INTO headrace_outbox (shard, topic, message_key, payload)"
    with shop.engine.begin() as db:
        db.execute(text(columns + FILL.format(shard="n % 4,", topic=TOPIC, rows=ROWS)))
    program = str(Path(sys.executable).with_name("headrace"))
    process = subprocess.Popen(
        [program, "outbox", "relay", shop.url, "--bootstrap", node.bootstrap],
        stderr=subprocess.DEVNULL,
    )
    try:
        while not (first := ends(node.bootstrap)):
            time.sleep(0.01)
        began, used = time.monotonic(), processor_seconds(process.pid)
        while (last := ends(node.bootstrap)) < ROWS:
            time.sleep(0.05)
        seconds = time.monotonic() - began
        used = processor_seconds(process.pid) - used
        return (last - first) / seconds, used / (last - first) * 1e6
    finally:
        process.terminate()
        process.wait()


def plain(shop: Shop, node: HeadraceNode) -> tuple[float, float]:
    with shop.engine.begin() as db:
        db.execute(text("DROP TABLE IF EXISTS plain_outbox"))
        db.execute(
            text(
                "CREATE TABLE plain_outbox"
                " (id bigserial PRIMARY KEY, topic text, message_key bytea, payload bytea)"
            )
        )
        columns = "INSERT INTO plain_outbox (topic, message_key, payload)"
        db.execute(text(columns + FILL.format(shard="", topic=TOPIC, rows=ROWS)))
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": node.bootstrap, "enable.idempotence": True, "linger.ms": 5}
    )
    began, used, sent = time.monotonic(), time.process_time(), 0
    with psycopg.connect(shop.url.replace("+psycopg", "")) as db:
        while rows := db.execute(
            "SELECT id, topic, message_key, payload FROM plain_outbox ORDER BY id"
            f" LIMIT {PLAIN_BATCH} FOR UPDATE SKIP LOCKED"
        ).fetchall():
            for id_, topic, key, payload in rows:
                producer.produce(topic, payload, key, headers=[("id", str(id_).encode())])
            producer.flush()
            done = [row[0] for row in rows]
            db.execute("DELETE FROM plain_outbox WHERE id = ANY(%s)", (done,))
            db.commit()
            sent += len(rows)
    return sent / (time.monotonic() - began), (time.process_time() - used) / sent * 1e6


def main() -> None:
    shop = Shop(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder, HeadraceNode(Path(folder) / "node") as node:
        Admin(node.bootstrap).topics.create(TOPIC, partitions=4)
        for name, measure in (("headrace", relay), ("skip locked", plain)):
            rate, cost = measure(shop, node)
            sys.stdout.write(f"{name:<12} {rate:>8,.0f} rows/s {cost:6.1f} us per row\n")


if __name__ == "__main__":
    main()
