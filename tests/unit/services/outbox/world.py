"""A database, a cluster and relays in one small world: chance decides what happens next, by seed.

Transactions draw row ids in one order and commit in another; the database crashes and draws lost
ids again; relays die, stand still past their lease and wake up; the cluster loses answers, aborts
and refuses. The relays are the real ones: `Shard`, `StableIds`, `shares`. Time is a number.

`Flaws` turn the mechanisms off one by one, to see that the checks would notice.
"""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass, field

from headrace.services.outbox import shard as core
from headrace.services.outbox import shares
from headrace.services.outbox.rows import NotARecord, OutboxRecord, Row, record_of, shard_of
from headrace.services.outbox.shard import Position, Shard
from headrace.services.outbox.stable_ids import StableIds

SHARDS = 3
LEASE_MS = 10_000
KEYS = [f"k{n}".encode() for n in range(7)]


@dataclass
class Flaws:
    naive_horizon: bool = False  # stable is what is visible: `id > last`
    no_fencing: bool = False
    keep_looked_to: bool = False  # what was looked at outlives a crash of the database
    position_apart: bool = False  # the position is written after the records, not with them
    last_id_ahead: bool = (
        False  # the last id is read while PostgreSQL shows one of the future there
    )


@dataclass
class Transaction:
    xid: int
    rows: list[Row] = field(default_factory=list)
    keys: set[bytes] = field(default_factory=set)


class Database:
    def __init__(self) -> None:
        self.next_id, self.next_xid = 1, 100
        self.incarnation = 0
        self.open: dict[int, Transaction] = {}
        self.rows: dict[int, Row] = {}
        self.parked: dict[int, tuple[Row, str, str]] = {}  # row, state, reason
        self.hints: dict[int, int | None] = dict.fromkeys(range(SHARDS))
        self.leases = [shares.Lease(number, None, 0) for number in range(SHARDS)]
        self.ever_committed: dict[int, Row] = {}

    def begin(self) -> Transaction:
        found = self.open[self.next_xid] = Transaction(self.next_xid)
        self.next_xid += 1
        return found

    def insert(self, transaction: Transaction, key: bytes, topic: str) -> None:
        """The key's business row is locked first: nobody else writes the key until the end."""
        row = Row(self.next_id, topic, key, b"%d" % transaction.xid, None, None, 0)
        self.next_id += 1
        transaction.rows.append(row)
        transaction.keys.add(key)

    def end(self, transaction: Transaction, *, commit: bool) -> None:
        del self.open[transaction.xid]
        if commit:
            self.rows |= {row.id: row for row in transaction.rows}
            self.ever_committed |= {row.id: row for row in transaction.rows}

    def crash(self) -> None:
        """What was open is gone, and so are the ids that it drew, if they were the last ones."""
        self.open.clear()
        self.incarnation += 1
        self.next_id = max(self.ever_committed, default=0) + 1

    def of_shard(self, number: int) -> list[Row]:
        return [row for row in self.rows.values() if shard_of(row.key or b"", SHARDS) == number]


class Cluster:
    def __init__(self) -> None:
        self.epochs: dict[int, int] = defaultdict(int)
        self.positions: dict[int, Position] = {}
        self.log: list[Row] = []  # what readers of committed records see

    def open(self, number: int) -> int:
        self.epochs[number] += 1
        return self.epochs[number]

    def refuses(self, rows: list[Row]) -> bool:
        return any(row.topic == "refused" for row in rows)


@dataclass
class Worker:
    shard: Shard
    effect: core.Effect
    lease_ends_ms: int
    epoch: int = 0
    seen: core.Stable = field(default_factory=lambda: core.Stable(0, -1))


class Relay:
    def __init__(self, name: str) -> None:
        self.name = name
        self.ids = StableIds()
        self.incarnation = -1
        self.workers: dict[int, Worker] = {}
        self.still_until_ms = 0


def check(row: Row) -> OutboxRecord:
    if row.topic == "not a topic":
        raise NotARecord("that is not a valid topic name")
    return record_of(row, "box")


class World:
    def __init__(self, seed: int, flaws: Flaws | None = None, *, blocks: bool = False) -> None:
        self.chance = random.Random(seed)
        self.flaws = flaws or Flaws()
        self.blocks = blocks
        self.now_ms = 0
        self.database, self.cluster = Database(), Cluster()
        self.relays = [Relay(f"r{n}") for n in range(3)]
        self.named = len(self.relays)
        self.calm = False
        self.halted: list[str] = []

    # ---- what happens

    def run(self, steps: int) -> None:
        happenings = [
            (self.write, 30),
            (self.work, 40),
            (self.look, 8),
            (self.share, 8),
            (self.pass_time, 6),
            (self.kill_relay, 1),
            (self.stand_still, 3),
            (self.crash_database, 1),
        ]
        names = [happening for happening, _ in happenings]
        weights = [weight for _, weight in happenings]
        for happening in self.chance.choices(names, weights, k=steps):
            happening()
        self.until_idle()

    def until_idle(self) -> None:
        """No more troubles; everything ends, and the relays catch up."""
        self.calm = True
        for transaction in list(self.database.open.values()):
            self.database.end(transaction, commit=True)
        for _ in range(120):
            self.now_ms += 500
            self.share()
            self.look()
            for _ in range(30):
                self.work()

    def write(self) -> None:
        database, chance = self.database, self.chance
        open_ = list(database.open.values())
        if not open_ or (len(open_) < 5 and chance.random() < 0.4):
            database.begin()
            return
        transaction = chance.choice(open_)
        if chance.random() < 0.35:
            database.end(transaction, commit=chance.random() < 0.85)
            return
        locked = {key for other in open_ if other is not transaction for key in other.keys}
        free = [key for key in KEYS if key not in locked]
        if free:
            topics = ["transfers"] * 30 + ["refused", "not a topic"]
            database.insert(transaction, chance.choice(free), chance.choice(topics))

    def pass_time(self) -> None:
        self.now_ms += self.chance.choice([100, 500, 3000, 12_000])

    def kill_relay(self) -> None:
        number = self.chance.randrange(len(self.relays))
        self.relays[number] = Relay(f"r{self.named}")
        self.named += 1

    def stand_still(self) -> None:
        relay = self.chance.choice(self.relays)
        relay.still_until_ms = self.now_ms + self.chance.choice([1000, 15_000, 40_000])

    def crash_database(self) -> None:
        self.database.crash()

    def awake(self) -> list[Relay]:
        return [relay for relay in self.relays if relay.still_until_ms <= self.now_ms]

    # ---- leases, by the database's clock

    def share(self) -> None:
        for relay in self.awake():
            names = [each.name for each in self.relays if each.still_until_ms <= self.now_ms]
            leases = self.database.leases
            for lease in leases:
                if lease.owner != relay.name:
                    relay.workers.pop(lease.shard, None)
                elif lease.shard in relay.workers:
                    lease.until_ms = self.now_ms + LEASE_MS
                    relay.workers[lease.shard].lease_ends_ms = lease.until_ms
            mine = relay.workers
            for number in shares.to_give(SHARDS, names, relay.name, mine):
                del mine[number]
                leases[number].owner = None
            for number in shares.to_take(leases, names, relay.name, mine, self.now_ms):
                self.take(relay, number)

    def take(self, relay: Relay, number: int) -> None:
        lease = self.database.leases[number]
        lease.owner, lease.until_ms = relay.name, self.now_ms + LEASE_MS
        machine = Shard(number, check=check, blocks=self.blocks, most=4)
        relay.workers[number] = Worker(machine, machine.begin(), lease.until_ms)

    # ---- the horizon

    def look(self) -> None:
        database = self.database
        for relay in self.awake():
            if relay.incarnation != database.incarnation:
                relay.incarnation = database.incarnation
                if not self.flaws.keep_looked_to:
                    relay.ids = StableIds()
            last = database.next_id - 1
            if self.flaws.last_id_ahead and self.chance.random() < 0.2:
                last += 8
            xid = database.next_xid if last > relay.ids.last_seen else None
            if xid is not None:
                database.next_xid += 1
            if self.flaws.naive_horizon:
                relay.ids.up_to = max(database.rows, default=0)
            else:
                oldest = min(database.open, default=database.next_xid)
                relay.ids.saw(last_id=last, xid=xid, oldest_open=oldest)

    # ---- one step of one worker

    def work(self) -> None:
        busy = [
            (relay, number)
            for relay in self.awake()
            for number, worker in relay.workers.items()
            if not isinstance(worker.effect, core.Halt)
        ]
        if not busy:
            return
        relay, number = self.chance.choice(busy)
        worker = relay.workers[number]
        stale = self.now_ms >= worker.lease_ends_ms and self.chance.random() < 0.3
        if stale:  # it usually notices; where it does not, the cluster must
            del relay.workers[number]
            return
        event = self.perform(relay, number, worker)
        worker.effect = worker.shard.step(event)
        if isinstance(worker.effect, core.Halt):
            self.halted.append(worker.effect.sentence)

    def perform(self, relay: Relay, number: int, worker: Worker) -> core.Event:
        database, effect = self.database, worker.effect
        match effect:
            case core.Wait():
                if self.chance.random() < 0.2:
                    return self.reviewed(number)
                incarnation = 0 if self.flaws.keep_looked_to else relay.incarnation
                worker.seen = core.Stable(relay.ids.up_to, incarnation)
                return worker.seen
            case core.Read(after, up_to, most):
                current = database.incarnation
                if worker.seen.incarnation != current and not self.flaws.keep_looked_to:
                    return core.SourceLost()
                rows = [row for row in database.of_shard(number) if after < row.id <= up_to]
                some = sorted(rows, key=lambda row: row.id)[: self.chance.choice([1, most, most])]
                return core.RowsRead(some, some[-1].id if len(some) < len(rows) else up_to)
            case core.TakeOver():
                worker.epoch = self.cluster.open(number)
                position = self.cluster.positions.get(number)
                row = database.rows.get(position.row_id) if position else None
                return core.TakenOver(position, database.hints[number], row, self.blocked(number))
            case core.Begin(position):
                if self.fenced(number, worker):
                    return core.ProducerLost()
                self.cluster.positions[number] = position
                if not self.calm and self.chance.random() < 0.2:
                    return core.ProducerLost()
                database.hints[number] = max(database.hints[number] or 0, position.row_id)
                return core.Begun()
            case core.Send():
                return self.send(number, worker, effect)
            case core.Park(rows):
                for row, reason, waits in rows:
                    state = "waiting" if waits else "poison"
                    database.parked.setdefault(row.id, (row, state, reason))
                return core.Parked()
            case core.Repark(row_id, reason):
                if row_id in database.parked:
                    row = database.parked[row_id][0]
                    database.parked[row_id] = (row, "poison", reason)
                return core.Reparked()
            case core.Forget(row_ids):
                for row_id in row_ids:
                    database.parked.pop(row_id, None)
                return core.Forgotten()
            case core.Review():
                return self.reviewed(number)
        raise AssertionError(effect)

    def fenced(self, number: int, worker: Worker) -> bool:
        return worker.epoch != self.cluster.epochs[number] and not self.flaws.no_fencing

    def send(self, number: int, worker: Worker, effect: core.Send) -> core.Event:
        if self.fenced(number, worker):
            return core.ProducerLost()
        if self.cluster.refuses(effect.rows):
            return core.SendRefused("the cluster does not take that")
        luck = 1.0 if self.calm else self.chance.random()
        if luck < 0.05:
            return core.Aborted()
        if luck < 0.10:
            return core.ProducerLost()
        self.cluster.log += effect.rows
        if self.flaws.position_apart and luck < 0.2:
            return core.ProducerLost()
        self.cluster.positions[number] = effect.position
        if luck < 0.15:
            return core.ProducerLost()  # committed, and nobody heard of it
        if luck > 0.5:
            hint = self.database.hints[number] or 0
            self.database.hints[number] = max(hint, effect.position.row_id)
        return core.Committed()

    # ---- parked rows

    def blocked(self, number: int) -> dict[bytes, int]:
        found: dict[bytes, int] = {}
        for id_, (row, _, _) in sorted(self.database.parked.items()):
            if shard_of(row.key or b"", SHARDS) == number:
                found.setdefault(row.key or b"", id_)
        return found

    def reviewed(self, number: int) -> core.Event:
        ready = []
        for id_, (row, state, _) in sorted(self.database.parked.items()):
            if shard_of(row.key or b"", SHARDS) != number:
                continue
            before = [
                other
                for other, (earlier, of, _) in self.database.parked.items()
                if earlier.key == row.key and other < id_ and of == "poison"
            ]
            if state == "retry" or (state == "waiting" and not before):
                ready.append(row)
        return core.Reviewed(ready, self.blocked(number))

    # ---- what became of it

    def lost(self) -> list[int]:
        there = {row.id for row in self.cluster.log} | set(self.database.parked)
        return sorted(self.database.ever_committed.keys() - there)

    def doubled(self) -> list[int]:
        ids = [row.id for row in self.cluster.log]
        return sorted({id_ for id_ in ids if ids.count(id_) > 1})

    def swapped(self) -> list[tuple[int, int]]:
        found, last = [], defaultdict(int)
        for row in self.cluster.log:
            if row.id < last[row.key]:
                found.append((last[row.key], row.id))
            last[row.key] = max(last[row.key], row.id)
        return found
