"""The counts of a relay, and their metrics for Prometheus.

Counted in plain slots by the shards' threads, read by others; one too old does no harm.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from headrace.prometheus_text import Family
from headrace.wire.contract.own_records import skipped_families


class ShardCounters:
    """Since this relay took the shard."""

    __slots__ = ("aborted", "parked", "rows", "seconds", "transactions")

    def __init__(self) -> None:
        self.rows = 0  # sent
        self.transactions = 0
        self.seconds = 0.0  # in transactions
        self.aborted = 0
        self.parked = 0

    def sent(self, rows: int, seconds: float) -> None:
        self.rows += rows
        self.transactions += 1
        self.seconds += seconds

    def add(self, other: ShardCounters) -> None:
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class Rates:
    """Rows per second of each shard, over a second or more."""

    SHORTEST_S = 1.0

    def __init__(self) -> None:
        self._since: dict[int, tuple[float, int]] = {}  # shard: when, and how many rows by then
        self._told: dict[int, float] = {}

    def changed(self, sent: Mapping[int, int], now_s: float) -> dict[int, float]:
        """Returns the rates that differ from those returned before; `sent` are the rows of each
        shard since the relay took it."""
        for gone in self._since.keys() - sent.keys():
            del self._since[gone]
            self._told.pop(gone, None)
        found = {}
        for shard, rows in sent.items():
            began_s, before = self._since.setdefault(shard, (now_s, rows))
            if now_s - began_s < self.SHORTEST_S and rows >= before:
                continue
            self._since[shard] = (now_s, rows)
            if rows < before:  # another worker counts from 0
                continue
            rate = (rows - before) / (now_s - began_s)
            if self._told.get(shard) != rate:
                self._told[shard] = found[shard] = rate
        return found


@dataclass(slots=True)
class ShardState:
    """One shard as `headrace outbox status` and Prometheus show it."""

    shard: int
    owner: str | None
    sent_id: int | None
    waiting: int  # rows, at most MOST_COUNTED
    oldest_ms: int | None  # age of the oldest row that waits
    parked: int
    problem: str | None
    rows_per_s: float  # that were sent, in the last seconds; 0 without a relay


@dataclass(slots=True)
class ConfirmationCounters:
    open: int  # messages that wait for their confirmation
    unconfirmed: int  # no longer waited for: an operator has to look
    resent: int  # by this relay
    given_up: int


def relay_families(
    relay: str,
    counters: ShardCounters,
    owned: int,
    states: Iterable[ShardState],
    confirmations: ConfirmationCounters,
    table_bytes: int,
) -> Iterator[Family]:
    shards = list(states)
    for name, explanation, value in (
        ("rows_sent_total", "Rows sent as records.", counters.rows),
        ("transactions_total", "Committed.", counters.transactions),
        ("aborted_total", "Transactions aborted.", counters.aborted),
        ("rows_parked_total", "Rows set aside.", counters.parked),
    ):
        yield Family(f"headrace_outbox_{name}", "counter", explanation, [({}, value)])
    yield Family(
        "headrace_outbox_shards_owned",
        "gauge",
        "Shards of this relay.",
        [({"relay": relay}, owned)],
    )
    for name, explanation, values in (
        ("rows_waiting", "Rows that are not sent yet.", [each.waiting for each in shards]),
        (
            "rows_per_second",
            "Rows sent, over the last second or so.",
            [each.rows_per_s for each in shards],
        ),
        (
            "oldest_unsent_seconds",
            "Age of the oldest row that is not sent.",
            [(each.oldest_ms or 0) / 1000 for each in shards],
        ),
        (
            "rows_parked",
            "Rows that wait for a person, or behind such a row.",
            [each.parked for each in shards],
        ),
    ):
        samples = [({"shard": each.shard}, n) for each, n in zip(shards, values, strict=True)]
        yield Family(f"headrace_outbox_{name}", "gauge", explanation, samples)
    for name, kind, explanation, value in (
        (
            "shards_in_trouble",
            "gauge",
            "Shards that wait for the cluster, or have stopped.",
            sum(1 for each in shards if each.problem),
        ),
        ("table_bytes", "gauge", "Size of the table on disk.", table_bytes),
        (
            "confirmations_open",
            "gauge",
            "Messages that wait for a confirmation.",
            confirmations.open,
        ),
        (
            "messages_unconfirmed",
            "gauge",
            "Messages that were sent in vain, for a person.",
            confirmations.unconfirmed,
        ),
        (
            "messages_resent_total",
            "counter",
            "Sent again for want of a confirmation.",
            confirmations.resent,
        ),
        (
            "messages_given_up_total",
            "counter",
            "Never confirmed, and not sent again.",
            confirmations.given_up,
        ),
    ):
        yield Family(f"headrace_outbox_{name}", kind, explanation, [({}, value)])
    yield from skipped_families()
