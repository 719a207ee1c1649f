"""How far groups were behind, kept in one SQLite file: fine for an hour, coarse for two weeks.

A series is a group and a topic. Each sample is written to every tier, into the slot of its moment:
a later sample of the same slot replaces it. Slots that are older than their tier keeps are deleted,
and so are series without slots. With MOST_SERIES series the file has about 50 MB. Several consoles
of one cluster may share the file. Time is an argument. For one thread at a time.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from headrace.client.admin.group_lags import GroupLag, TopicLag
from headrace.private_files import private_folder

MOST_SERIES = 1_000
IN_MEMORY = ":memory:"
BUSY_S = 5.0
PRUNED_EVERY_S = 60


@dataclass(slots=True, frozen=True)
class Tier:
    slot_s: int
    kept_s: int


HOUR_S, DAY_S = 3_600, 86_400
TIERS = (Tier(15, HOUR_S), Tier(120, DAY_S), Tier(1_800, 14 * DAY_S))
FINE = TIERS[0]

_TABLES = """
CREATE TABLE IF NOT EXISTS series (
  id INTEGER PRIMARY KEY, name TEXT NOT NULL, topic TEXT NOT NULL, UNIQUE (name, topic));
CREATE TABLE IF NOT EXISTS slots (
  series INTEGER NOT NULL, tier INTEGER NOT NULL, slot INTEGER NOT NULL,
  lag INTEGER NOT NULL, committed INTEGER NOT NULL, ended INTEGER NOT NULL,
  PRIMARY KEY (series, tier, slot)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS throughput (
  slot INTEGER PRIMARY KEY, written REAL NOT NULL, read REAL NOT NULL);
"""


@dataclass(slots=True)
class Sample:
    at_s: int  # wall clock; the beginning of its slot
    lag: int
    committed: int
    end: int


@dataclass(slots=True)
class Throughput:
    at_s: int  # the beginning of its slot
    written_per_s: float  # messages into all topics
    read_per_s: float  # by all groups


class LagStore:
    """`path` is a file, or IN_MEMORY. A file that cannot be used raises `sqlite3.Error`."""

    def __init__(self, path: Path | str = IN_MEMORY) -> None:
        self.is_kept = str(path) != IN_MEMORY
        if self.is_kept:
            private_folder(Path(path).parent)
        self._lock = threading.Lock()
        self._db = sqlite3.connect(path, timeout=BUSY_S, check_same_thread=False)
        self._db.execute(
            "PRAGMA synchronous = OFF"
        )  # after a power cut samples are missing at worst
        self._db.executescript(_TABLES)
        self._pruned_s = 0

    def close(self) -> None:
        with self._lock:
            self._db.close()

    def note(self, lags: Mapping[str, GroupLag], now_s: int) -> int:
        """Stores a sample of all these groups. Returns how many series found no room."""
        with self._lock, self._db:
            known = {
                (name, topic): id
                for id, name, topic in self._db.execute("SELECT id, name, topic FROM series")
            }
            rows, left_out = [], 0
            for group, topic, lag in _by_importance(lags):
                id = known.get((group, topic))
                if id is None and len(known) >= MOST_SERIES:
                    left_out += 1
                    continue
                if id is None:
                    made = self._db.execute(
                        "INSERT INTO series (name, topic) VALUES (?, ?)", (group, topic)
                    )
                    id = known[group, topic] = int(made.lastrowid or 0)
                for number, tier in enumerate(TIERS):
                    slot = now_s // tier.slot_s
                    rows.append((id, number, slot, lag.lag, lag.committed, lag.end))
            self._db.executemany("INSERT OR REPLACE INTO slots VALUES (?, ?, ?, ?, ?, ?)", rows)
            if now_s - self._pruned_s >= PRUNED_EVERY_S:
                self._prune(now_s)
        return left_out

    def note_throughput(self, written_per_s: float, read_per_s: float, now_s: int) -> None:
        """Notes the throughput of the whole cluster; keeps the last hour."""
        slot, kept = now_s // FINE.slot_s, FINE.kept_s // FINE.slot_s
        with self._lock, self._db:
            self._db.execute(
                "INSERT OR REPLACE INTO throughput VALUES (?, ?, ?)",
                (slot, written_per_s, read_per_s),
            )
            self._db.execute(
                "DELETE FROM throughput WHERE slot NOT BETWEEN ? AND ?", (slot - kept, slot)
            )

    def throughput(self, since_s: int) -> list[Throughput]:
        """The oldest first."""
        query = "SELECT slot, written, read FROM throughput WHERE slot >= ? ORDER BY slot"
        with self._lock, closing(self._db.execute(query, (since_s // FINE.slot_s,))) as found:
            return [Throughput(slot * FINE.slot_s, *rates) for slot, *rates in found]

    def _prune(self, now_s: int) -> None:
        self._pruned_s = now_s
        for number, tier in enumerate(TIERS):
            oldest = (now_s - tier.kept_s) // tier.slot_s
            self._db.execute("DELETE FROM slots WHERE tier = ? AND slot < ?", (number, oldest))
            # A clock that was set back would leave slots that no later sample reaches for years.
            newest = (now_s + tier.kept_s) // tier.slot_s
            self._db.execute("DELETE FROM slots WHERE tier = ? AND slot > ?", (number, newest))
        self._db.execute("DELETE FROM series WHERE id NOT IN (SELECT DISTINCT series FROM slots)")

    def topics_of(self, group: str) -> list[str]:
        with (
            self._lock,
            closing(
                self._db.execute("SELECT topic FROM series WHERE name = ? ORDER BY topic", (group,))
            ) as found,
        ):
            return [topic for (topic,) in found]

    def samples(self, group: str, topics: list[str], *, tier: Tier, since_s: int) -> list[Sample]:
        """Returns the sums over these topics, the oldest first."""
        number = TIERS.index(tier)
        marks = ", ".join("?" * len(topics))
        query = (
            "SELECT slot, SUM(lag), SUM(committed), SUM(ended) FROM slots JOIN series ON"
            f" series.id = slots.series WHERE name = ? AND topic IN ({marks}) AND tier = ?"
            " AND slot >= ? GROUP BY slot ORDER BY slot"
        )
        given = (group, *topics, number, since_s // tier.slot_s)
        with self._lock, closing(self._db.execute(query, given)) as found:
            return [Sample(slot * tier.slot_s, *sums) for slot, *sums in found]


def _by_importance(lags: Mapping[str, GroupLag]) -> list[tuple[str, str, TopicLag]]:
    """Orders the topics of all groups by lag, largest first: if there are too many, these
    are kept."""
    found = [
        (group, topic, lag) for group, seen in lags.items() for topic, lag in seen.topics.items()
    ]
    return sorted(found, key=lambda each: (-each[2].lag, each[0], each[1]))
