"""Effects in a database, compared with what was sent: none missing, none twice, keys in order.

`rounds` kills workers, and now and then the broker, while they are at it. With `once=Sql` there is
no room: after any number of crashes the rows of a key are exactly its records, in their order.
"""

from __future__ import annotations

import random
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path

from sqlalchemy import Engine, text

from tests.interop.brokers import Node
from tests.services.app_rounds import Fed, Workers, committed_ends, dead

# Somebody has an effect between two kills, however slow the machine; if not for so long, it hangs.
STANDSTILL_S = 120.0

TABLE = """
CREATE TABLE effects (
  id BIGINT GENERATED ALWAYS AS IDENTITY, who TEXT, number INT, attempt INT, worker INT,
  at TIMESTAMPTZ DEFAULT clock_timestamp()
)"""


def empty(engine: Engine) -> None:
    """No effects, and no memory of any."""
    with engine.begin() as db:
        db.execute(text("DROP TABLE IF EXISTS effects"))
        db.execute(text("DROP TABLE IF EXISTS headrace_once"))
        db.execute(text(TABLE))


class BillingWorkers(Workers):
    """Workers that write into a database."""

    def __init__(self, bootstrap: str, folder: Path, *words: str) -> None:
        super().__init__(bootstrap, folder)
        self._command = [
            *(sys.executable, "-m", "tests.services.effects_worker"),
            *("--bootstrap", bootstrap, "--effects", str(self.effects), *words),
        ]


class Ledger:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def count(self) -> int:
        with self._engine.connect() as db:
            return int(db.execute(text("SELECT count(*) FROM effects")).scalar_one())

    def workers(self) -> set[int]:
        with self._engine.connect() as db:
            return set(db.execute(text("SELECT DISTINCT worker FROM effects")).scalars())

    def rows(self) -> list[tuple[str, int]]:
        with self._engine.connect() as db:
            found = db.execute(text("SELECT who, number FROM effects ORDER BY id"))
            return [(row.who, row.number) for row in found]

    def longest_pause_s(self) -> float:
        """The longest time in which no worker had an effect."""
        gaps = "SELECT at - lag(at) OVER (ORDER BY at) AS gap FROM effects"
        with self._engine.connect() as db:
            found = db.execute(text(f"SELECT extract(epoch FROM max(gap)) FROM ({gaps}) AS gaps"))
            return float(found.scalar_one())

    def wrong(self, fed: Fed) -> list[str]:
        """Every way in which the effects are not what was sent, as sentences."""
        rows, expected = self.rows(), fed.handled()
        found = [f"{one} {n} times" for one, n in Counter(rows).items() if n > 1]
        found += [f"{one} never" for one in sorted(expected - set(rows))]
        found += [f"{one} though it fails" for one in sorted(set(rows) - expected)]
        by_key: dict[str, list[int]] = defaultdict(list)
        for key, number in rows:
            by_key[key].append(number)
        found += [f"{k} in the order {n}" for k, n in by_key.items() if n != sorted(n)]
        return found


def rounds(
    node: Node,
    workers: Workers,
    ledger: Ledger,
    fed: Fed,
    *,
    kills: int | None,
    every_s: float,
    most: int,
    seed: int,
    broker_every: int = 3,
) -> tuple[int, int]:
    """So many kills (None: until most is done); every third hits the broker. The kills of each.

    A kill comes sooner where workers are so quick that nothing would be left for the others.
    """
    chance = random.Random(seed)
    killed = [0, 0]
    for _ in range(chance.randint(1, most)):
        workers.start()
    workers.until(lambda: ledger.count() > 0)
    wanted = len(fed.handled())
    most_is_done = wanted * 0.95
    while kills is None or sum(killed) < kills:
        until, before = time.monotonic() + every_s * (0.5 + chance.random()), ledger.count()
        share = (sum(killed) + 1) / (kills + 2) if kills is not None else 1
        while (done := ledger.count()) == before or (
            time.monotonic() < until and done < wanted * share
        ):
            time.sleep(0.1)
            workers.watch_over()
            assert time.monotonic() < until + STANDSTILL_S, workers.log_text()[-6000:]
            if kills is None and done >= most_is_done:
                return killed[0], killed[1]
        if sum(killed) % broker_every == broker_every - 1:
            node.kill()
            node.start()
            killed[1] += 1
        else:
            workers.kill_one(chance)
            killed[0] += 1
        workers.watch_over()
        while len(workers.running) < most and chance.random() < 0.5:
            workers.start()
        if kills is None:
            assert sum(killed) < 1_000, "it does not get on"
    assert ledger.count() < wanted, "all was done before the last kill"
    return killed[0], killed[1]


def until_done(bootstrap: str, workers: Workers, ledger: Ledger, fed: Fed, within_s: float) -> None:
    """Until everything is handled or parked, and committed; then the workers end in good order."""
    deadline = time.monotonic() + within_s
    handled, parked = len(fed.handled()), fed.parked()
    while True:
        done = ledger.count()
        unparked = parked - set(dead(bootstrap)) if done >= handled else parked
        if done >= handled and not unparked and committed_ends(bootstrap):
            break
        assert time.monotonic() < deadline, (
            f"{done} of {handled} effects, {len(unparked)} of {len(parked)} not parked: "
            f"{ledger.wrong(fed)[:5]}\n{workers.log_text()[-6000:]}"
        )
        workers.watch_over()
        time.sleep(0.5)
    workers.stop_all()
