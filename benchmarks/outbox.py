"""The outbox on PostgreSQL beside a plain SKIP LOCKED relay and, if it is there, faststream-outbox.

    python -m benchmarks.outbox [drain] [latency] [writer] [table] [--faststream PYTHON] [--rows N]

Without words all four are measured, one after the other, on a PostgreSQL and a node of its own.

- drain: rows per second and processor time per row while 500,000 rows wait (100 bytes, 1,000 keys).
- latency: from commit to a consumer of committed records, at 1,000 transactions per second.
- writer: what a row adds to a transaction that changes one account.
- table: the size of the table while rows come and go.

The plain relay is what people write first: SELECT ... FOR UPDATE SKIP LOCKED of 1,000 rows, send,
flush, DELETE, commit, with an idempotent producer. It doubles rows after a crash and, with a second
relay beside it, swaps those of a key; ours does neither. PYTHON is an interpreter with
faststream-outbox, `faststream[confluent]` and asyncpg.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import confluent_kafka
import psycopg
from sqlalchemy import text

from headrace.client import Admin
from tests.interop.brokers import HeadraceNode
from tests.services.outbox_rounds import Shop
from tests.services.servers import Postgres

from .processes import processor_seconds

TOPIC = "bench"
WAITING = (
    "SELECT count(*) FROM headrace_outbox o JOIN headrace_outbox_shards s ON s.shard = o.shard"
    " WHERE o.id > coalesce(s.sent_id, 0)"
)
PLAIN_TABLE = (
    "CREATE TABLE plain_outbox (id bigserial PRIMARY KEY, topic text, message_key bytea,"
    " payload bytea)"
)
KEYS_AND_VALUES = (
    "convert_to('k' || n % 1000, 'UTF8'), repeat('x', 100)::bytea FROM generate_series(1, {rows}) n"
)
# A key's shard need not be the right one here, only always the same one.
FILL = {
    "headrace": "INSERT INTO headrace_outbox (shard, topic, message_key, payload)"
    " SELECT n % 1000 % 4, '{topic}', " + KEYS_AND_VALUES,
    "skip locked": "INSERT INTO plain_outbox (topic, message_key, payload)"
    " SELECT '{topic}', " + KEYS_AND_VALUES,
    "faststream": "INSERT INTO fs_outbox (queue, payload, headers)"
    " SELECT 'bench', convert_to('\"' || repeat('x', 100) || '\"', 'UTF8'),"
    ' \'{{"content-type": "application/json"}}\'::jsonb FROM generate_series(1, {rows}) n',
}
FIRST_ROWS = range(
    0, -4, -1
)  # one for each shard: nobody waits for a take-over in the measured time
WRITERS = 4  # one connection commits some 500 times a second
FASTSTREAM_SHARE = 10  # of the rows: it sends them one by one


class Bench:
    def __init__(self, postgres: Postgres, node: HeadraceNode, faststream: str | None) -> None:
        self.postgres, self.node, self.faststream = postgres, node, faststream
        self.dsn = postgres.url.replace("+psycopg", "")
        self.shop = Shop(postgres.url)
        with psycopg.connect(self.dsn, autocommit=True) as db:
            db.execute("DROP TABLE IF EXISTS plain_outbox")
            db.execute(PLAIN_TABLE)

    @property
    def kinds(self) -> list[str]:
        return ["headrace", "skip locked", *(["faststream"] if self.faststream else [])]

    def command(self, kind: str) -> list[str]:
        here = Path(__file__).parent
        if kind == "headrace":
            program = str(Path(sys.executable).with_name("headrace"))
            return [program, "outbox", "relay", self.shop.url, "--bootstrap", self.node.bootstrap]
        if kind == "skip locked":
            module = [sys.executable, str(here / "outbox_plain.py")]
            return [*module, self.dsn, self.node.bootstrap]
        assert self.faststream is not None
        script = str(here / "outbox_faststream.py")
        return [self.faststream, script, self.dsn, self.node.bootstrap, TOPIC]

    @contextmanager
    def relay(self, kind: str) -> Iterator[subprocess.Popen[bytes]]:
        process = subprocess.Popen(self.command(kind), stderr=subprocess.DEVNULL)
        try:
            yield process
        finally:
            process.terminate()
            process.wait()

    def empty(self, kind: str) -> None:
        """A relay that was ended may have left rows that it sent."""
        if kind == "faststream":
            subprocess.run([*self.command(kind), "create"], check=True)
            return
        with psycopg.connect(self.dsn, autocommit=True) as db:
            if kind == "skip locked":
                db.execute("TRUNCATE plain_outbox")
            while db.execute(WAITING).fetchone() != (0,):
                time.sleep(0.1)

    def fill(self, kind: str, rows: int) -> None:
        self.empty(kind)
        with psycopg.connect(self.dsn, autocommit=True) as db:
            db.execute(FILL[kind].format(topic=TOPIC, rows=rows).encode())
            db.execute("ANALYZE")

    def fresh_topic(self) -> None:
        topics = Admin(self.node.bootstrap).topics
        if TOPIC in {topic.name for topic in topics.all()}:
            topics.delete(TOPIC)
        topics.create(TOPIC, partitions=4)

    def end(self) -> int:
        [found] = Admin(self.node.bootstrap).topics.describe([TOPIC])
        return sum(each.end_offset or 0 for each in found.partitions)


def drain(bench: Bench, rows: int, rounds: int) -> None:
    """Round after round, one kind after the other; at the end the medians."""
    rates: dict[str, list[float]] = {kind: [] for kind in bench.kinds}
    for _ in range(rounds):
        for kind in bench.kinds:
            count = rows // FASTSTREAM_SHARE if kind == "faststream" else rows
            rates[kind].append(drained(bench, kind, count))
    medians = {kind: statistics.median(each) for kind, each in rates.items()}
    for kind, each in rates.items():
        say(
            f"drain    {kind:<12} {medians[kind]:>9,.0f} rows/s, median of {rounds}"
            f" ({min(each):,.0f} .. {max(each):,.0f})"
        )
    ratios(medians)


def drained(bench: Bench, kind: str, count: int) -> float:
    """Timed from the first fifth of the rows to the last one; all three parts' processor time.

    Until then shards are taken over, once per relay: of 100,000 rows that was a third of the time.
    """
    bench.fresh_topic()
    bench.fill(kind, count)
    assert bench.postgres.process is not None and bench.node.process is not None
    with bench.relay(kind) as process:
        while (first := bench.end()) < count / 5:
            time.sleep(0.005)
        pids = [process.pid, bench.node.process.pid, bench.postgres.process.pid]
        began, used = time.monotonic(), [processor_seconds(pid) for pid in pids]
        while (last := bench.end()) < count:
            time.sleep(0.02)
        seconds = time.monotonic() - began
        spent = [processor_seconds(pid) - before for pid, before in zip(pids, used, strict=True)]
    rate = (last - first) / seconds
    each = [one / (last - first) * 1e6 for one in spent]
    say(
        f"drain    {kind:<12} {rate:>9,.0f} rows/s; processor time per row:"
        f" relay {each[0]:.1f}, node {each[1]:.1f}, PostgreSQL {each[2]:.1f} us"
    )
    return rate


def latency(bench: Bench, seconds: int = 10, rate: int = 1000) -> None:
    for kind in bench.kinds:
        bench.fresh_topic()
        bench.empty(kind)
        with bench.relay(kind):
            arrived = Arrivals(bench.node.bootstrap)
            with psycopg.connect(bench.dsn) as db:
                for number in FIRST_ROWS:
                    bench_row(db, kind, number)
            arrived.wait_for(len(FIRST_ROWS))
            committed, took = paced_commits(bench, kind, seconds * rate, rate)
            arrived.wait_for(len(committed) + len(FIRST_ROWS))
            arrived.stop()
        waits = sorted((arrived.at[number] - at) * 1000 for number, at in committed.items())
        p99 = waits[len(waits) * 99 // 100]
        say(
            f"latency  {kind:<12} p50 {statistics.median(waits):.1f} ms, p99 {p99:.1f} ms"
            f" at {len(committed) / took:,.0f} transactions/s"
        )


def paced_commits(bench: Bench, kind: str, rows: int, rate: int) -> tuple[dict[int, float], float]:
    """When each row was committed, by its number, and how long all of it took."""
    committed: dict[int, float] = {}
    began = time.monotonic()

    def write(first: int) -> None:
        with psycopg.connect(bench.dsn) as db:
            for number in range(first, rows + 1, WRITERS):
                while time.monotonic() < began + number / rate:
                    time.sleep(0.0005)
                bench_row(db, kind, number)
                committed[number] = time.monotonic()

    threads = [threading.Thread(target=write, args=(first + 1,)) for first in range(WRITERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return committed, time.monotonic() - began


def bench_row(db: psycopg.Connection, kind: str, number: int) -> None:
    value = b"%d" % number
    match kind:
        case "headrace":
            db.execute(
                "INSERT INTO headrace_outbox (shard, topic, message_key, payload)"
                " VALUES (%s, %s, %s, %s)",
                (number % 4, TOPIC, b"k%d" % (number % 1000), value),
            )
        case "skip locked":
            db.execute(
                "INSERT INTO plain_outbox (topic, message_key, payload) VALUES (%s, %s, %s)",
                (TOPIC, b"k%d" % (number % 1000), value),
            )
        case _:
            db.execute(
                "INSERT INTO fs_outbox (queue, payload, headers) VALUES ('bench', %s,"
                ' \'{"content-type": "application/json"}\'::jsonb)',
                (value,),
            )
            db.execute("SELECT pg_notify('outbox_fs_outbox', 'bench')")
    db.commit()


class Arrivals:
    """When each row reached a consumer of committed records, by the number in its value."""

    def __init__(self, bootstrap: str) -> None:
        self.at: dict[int, float] = {}
        self._stopping = threading.Event()
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": f"bench-{time.monotonic_ns()}",
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 100,
            }
        )
        self._consumer.subscribe([TOPIC])
        self._thread = threading.Thread(target=self._consume)
        self._thread.start()

    def _consume(self) -> None:
        while not self._stopping.is_set():
            message = self._consumer.poll(0.05)
            if message is not None and message.error() is None:
                number = int((message.value() or b"0").strip(b'"'))
                self.at.setdefault(number, time.monotonic())
        self._consumer.close()

    def wait_for(self, count: int) -> None:
        deadline = time.monotonic() + 120
        while len(self.at) < count:
            assert time.monotonic() < deadline, f"{len(self.at)} of {count} arrived"
            time.sleep(0.01)

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()


def writer(bench: Bench, transactions: int = 3000) -> None:
    """One connection, one account after the other; without a relay."""
    change = text("UPDATE accounts SET version = version + 1 WHERE name = :name")
    plain = text("INSERT INTO plain_outbox (topic, message_key, payload) VALUES (:t, :k, :p)")
    engine, outbox = bench.shop.engine, bench.shop.outbox

    def measured(add: Callable[..., object]) -> float:
        began = time.monotonic()
        for number in range(transactions):
            with engine.begin() as db:
                db.execute(change, {"name": f"a{number % 40:02}"})
                add(db, number)
        return (time.monotonic() - began) / transactions * 1e6

    ways: dict[str, Callable[..., object]] = {
        "the change alone": lambda db, number: None,
        "a plain INSERT": lambda db, n: db.execute(plain, {"t": TOPIC, "k": b"k", "p": b"x" * 100}),
        "outbox.send": lambda db, n: outbox.send(db, TOPIC, b"x" * 100, key=f"k{n % 1000}"),
    }
    found: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(3):  # in turns, and the best of each: others use the machine too
        for name, add in ways.items():
            found[name].append(measured(add))
    alone = min(found["the change alone"])
    for name, times in found.items():
        say(f"writer   {name:<17} {min(times):7.0f} us per transaction ({min(times) / alone:.2f})")


def table(bench: Bench, rows: int) -> None:
    """Rows come in chunks as fast as the relay takes them: the table must not grow."""
    chunk = 20_000
    bench.fresh_topic()
    sizes = []
    with bench.relay("headrace"), psycopg.connect(bench.dsn, autocommit=True) as db:
        began, written = time.monotonic(), 0
        while written < rows:
            db.execute(FILL["headrace"].format(topic=TOPIC, rows=chunk).encode())
            written += chunk
            while written - bench.end() > 2 * chunk:
                time.sleep(0.02)
            sizes.append(size_of(db))
        while bench.end() < written:
            time.sleep(0.05)
        seconds = time.monotonic() - began
    parts = [max(sizes[at : at + len(sizes) // 4]) for at in range(0, len(sizes), len(sizes) // 4)]
    shown = ", ".join(f"{each / 2**20:.0f}" for each in parts[:4])
    say(f"table    {written:,} rows in {seconds:.0f} s; largest size by quarters: {shown} MB")


def size_of(db: psycopg.Connection) -> int:
    found = db.execute("SELECT pg_total_relation_size('headrace_outbox')").fetchone()
    assert found is not None
    return int(found[0])


def ratios(rates: dict[str, float]) -> None:
    ours = rates["headrace"]
    for kind, rate in rates.items():
        if kind != "headrace":
            say(f"         headrace is {ours / rate:.2f} times {kind}")


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", nargs="*", default=["drain", "latency", "writer", "table"])
    parser.add_argument("--faststream", help="an interpreter that has faststream-outbox")
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--rounds", type=int, default=3, help="of drain, in turns")
    parser.add_argument("--table-rows", type=int, default=1_000_000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "postgres"
        place.mkdir()
        Path(folder).chmod(0o755)
        postgres = Postgres(place, fsync=True)
        postgres.start()
        try:
            with HeadraceNode(Path(folder) / "node") as node:
                bench = Bench(postgres, node, given.faststream)
                if "drain" in given.what:
                    drain(bench, given.rows, given.rounds)
                if "latency" in given.what:
                    latency(bench)
                if "writer" in given.what:
                    writer(bench)
                if "table" in given.what:
                    table(bench, given.table_rows)
                bench.shop.engine.dispose()
        finally:
            postgres.stop()


if __name__ == "__main__":
    main()
