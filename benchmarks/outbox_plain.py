"""A plain relay for `outbox.py`: SKIP LOCKED, an idempotent producer, DELETE; until it is ended.

python outbox_plain.py DSN BOOTSTRAP
"""

from __future__ import annotations

import sys
import time

import confluent_kafka
import psycopg

BATCH = 1000
EMPTY_S = 0.005


def main(dsn: str, bootstrap: str) -> None:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5}
    )
    with psycopg.connect(dsn) as db:
        while True:
            rows = db.execute(
                "SELECT id, topic, message_key, payload FROM plain_outbox ORDER BY id"
                f" LIMIT {BATCH} FOR UPDATE SKIP LOCKED"
            ).fetchall()
            for id_, topic, key, payload in rows:
                producer.produce(topic, payload, key, headers=[("id", str(id_).encode())])
            producer.flush()
            if rows:
                done = [row[0] for row in rows]
                db.execute("DELETE FROM plain_outbox WHERE id = ANY(%s)", (done,))
            db.commit()
            if not rows:
                time.sleep(EMPTY_S)


if __name__ == "__main__":
    main(*sys.argv[1:])
