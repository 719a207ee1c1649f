"""A relay: takes its share of the shards, looks for stable rows, and has a thread send each shard.

Threads: one looks for the horizon, one per shard sends, one waits for confirmations, and the
caller's own (`run`) keeps leases, writes hints and removes what was sent. Several relays of one
database share its shards.
"""

from __future__ import annotations

import logging
import secrets
import socket
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from time import monotonic

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from headrace.client.connection import ClientSettings
from headrace.client.errors import Unreachable
from headrace.prometheus_text import render
from headrace.services.outbox import positions, schema, shares
from headrace.services.outbox.confirmation_watch import ConfirmationWatch
from headrace.services.outbox.confirmations import Confirmations
from headrace.services.outbox.engines import first_line
from headrace.services.outbox.metrics import (
    ConfirmationCounters,
    Rates,
    ShardCounters,
    relay_families,
)
from headrace.services.outbox.source import Source
from headrace.services.outbox.status import shard_states, table_bytes
from headrace.services.outbox.store import Store
from headrace.services.outbox.worker import DATABASE_FAILS, Published, ShardWorker

log = logging.getLogger("headrace.outbox")

LEASES_PER_RENEWAL = 4
SILENT_LEASES = (
    3  # a relay that writes nothing for so long is dead, whatever the database's clock shows
)
LONGEST_PAUSE_S = 1.0  # so late does the database learn how far a shard has come
# While rows come, the next look follows soon; a look costs PostgreSQL 0.15 ms.
BUSY_POLL_S = 0.003
BUSY_FOR_S = 0.5
IDLE_WAIT_S = 0.5
DRAIN_S = 30.0
LONGEST_CLEAN_S = 1.0
# PostgreSQL's autovacuum looks once a minute; a table of this many dead rows has some 20 MB.
VACUUM_AFTER = 100_000


@dataclass(slots=True, kw_only=True)
class Settings:
    lease_ms: int = 10_000
    rows: int = 5000  # in one transaction, at most
    blocks: bool = False  # later rows of a parked row's key wait behind it
    keep_ms: int | None = 0  # of sent rows; None: for ever
    resends: int = 3  # of a message that is not confirmed in time
    relay: str | None = None


class Relay:
    """`run` until `stop`, which may be called from any thread and from a signal handler."""

    def __init__(
        self, engine: Engine, at: ClientSettings, settings: Settings | None = None
    ) -> None:
        self.settings = settings or Settings()
        self.store = Store(engine)
        self.facts = schema.Facts("", 0)  # known when the database has answered
        name = self.settings.relay or socket.gethostname()
        self.name = f"{name[:200]}-{secrets.token_hex(4)}"  # one that comes back is another one
        self.workers: dict[int, ShardWorker] = {}
        self._at = at
        self._source = Source(engine)
        self._published = Published()
        self._stopping = threading.Event()
        self._silence = shares.Silence(SILENT_LEASES * self.settings.lease_ms / 1000)
        self._finished = ShardCounters()  # of workers that have ended
        self._cleaned_to: dict[int, int] = {}
        self._horizon = threading.Thread(target=self._look, name="outbox-horizon", daemon=True)
        self._watch = ConfirmationWatch(
            at,
            Confirmations(self.store),
            resends=self.settings.resends,
            is_mine=lambda: 0 in self.workers,
            stopping=self._stopping,
        )
        self._watching = threading.Thread(
            target=lambda: self._watch.run(self.facts.outbox_id),
            name="outbox-confirmations",
            daemon=True,
        )
        self._removed = 0  # rows, since the table was vacuumed
        self._vacuuming: threading.Thread | None = None
        self._hinted: dict[int, int] = {}
        self._problems: dict[int, str | None] = {}
        self._rates = Rates()
        self._database_problem: str | None = None

    def stop(self) -> None:
        self._stopping.set()

    def run(self) -> None:
        """Raises OutboxError if there is no outbox, or none to count on. If the database or cluster
        is away, waits for it."""
        if not self._is_ready():
            return
        log.info("relay %s of outbox %s begins", self.name, self.facts.outbox_id)
        self._horizon.start()
        self._watching.start()
        try:
            while not self._stopping.is_set():
                more = self._turn()
                pause_s = self.settings.lease_ms / 1000 / LEASES_PER_RENEWAL
                self._stopping.wait(0.01 if more else min(pause_s, LONGEST_PAUSE_S))
        finally:
            self._stopping.set()
            self._drain()

    def _is_ready(self) -> bool:
        """Waits for the database and the cluster; returns False if it was stopped before."""
        said_before = None
        while not self._stopping.is_set():
            try:
                self.facts = self.store.sound()
                positions.ensure(self._at)
                return True
            except DATABASE_FAILS as failure:
                said = f"the database does not answer: {first_line(failure)}"
            except Unreachable as failure:
                said = str(failure)
            if said != said_before:
                log.warning("%s", said)
            said_before = said
            self._stopping.wait(LONGEST_PAUSE_S)
        return False

    def metrics(self) -> str:
        counters = ShardCounters()
        counters.add(self._finished)
        for worker in list(self.workers.values()):
            counters.add(worker.counters)
        known = {number: each.position or 0 for number, each in self.workers.items()}
        open_, unconfirmed = Confirmations(self.store).counts()
        confirmations = ConfirmationCounters(
            open_, unconfirmed, self._watch.resent, self._watch.given_up
        )
        families = relay_families(
            self.name,
            counters,
            len(self.workers),
            shard_states(self.store, known),
            confirmations,
            table_bytes(self.store),
        )
        return render(families)

    # ---- leases

    def _turn(self) -> bool:
        """Renews leases and does the regular work. Returns whether there is more to remove."""
        try:
            self._share()
            self._report()
            more = self._clean()
            self._database_problem = None
            return more
        except DATABASE_FAILS as failure:
            said = first_line(failure)
            if said != self._database_problem:
                log.warning("the database does not answer: %s", said)
            self._database_problem = said
            return False

    def _share(self) -> None:
        lease_ms, me = self.settings.lease_ms, self.name
        for number, worker in list(self.workers.items()):
            if worker.halted is None and not worker.alive:
                self._end(number)  # it gave up, or met a bug: start it again
                continue
            asked_at = monotonic()
            if self.store.take(number, me, lease_ms):
                worker.lease_ends_at = asked_at + lease_ms / 1000
            else:
                log.warning("shard %d belongs to another relay now", number)
                self._end(number)
        view = self.store.look(me, lease_ms)
        self._bury_the_silent({name: at for name, at in view.relays.items() if name != me})
        for number in shares.to_give(self.facts.shards, view.relays, me, self.workers):
            self._end(number)
        for number in shares.to_take(view.leases, view.relays, me, self.workers, view.now_ms):
            self._take(number)

    def _bury_the_silent(self, others: Mapping[str, int]) -> None:
        for name in self._silence.of(others, monotonic()):
            if self.store.bury(name, others[name]):
                log.warning(
                    "relay %s has not renewed its leases for long; its shards are free", name
                )

    def _take(self, number: int) -> None:
        asked_at = monotonic()
        if not self.store.take(number, self.name, self.settings.lease_ms):
            return
        worker = ShardWorker(
            number,
            at=self._at,
            outbox_id=self.facts.outbox_id,
            store=self.store,
            source=self._source,
            published=self._published,
            blocks=self.settings.blocks,
            most=self.settings.rows,
        )
        worker.lease_ends_at = asked_at + self.settings.lease_ms / 1000
        self.workers[number] = worker
        worker.start()

    def _end(self, number: int) -> None:
        """Ends a worker; its lease is released as soon as none of its work is under way."""
        worker = self.workers.pop(number)
        worker.stop()
        if not worker.join(DRAIN_S):
            log.warning("shard %d is still in a transaction; its lease runs out by itself", number)
            return
        self._finished.add(worker.counters)
        if worker.position:
            self.store.save_hint(number, worker.position)
        self.store.release(number, self.name)

    def _drain(self) -> None:
        """Ends open transactions; then the shards are free for other relays at once."""
        for worker in self.workers.values():
            worker.stop()
        try:
            for number in list(self.workers):
                self._end(number)
            self.store.leave(self.name)
        except DATABASE_FAILS as failure:
            log.warning("leases are not given back, they run out: %s", first_line(failure))
        self._published.wake()
        self._horizon.join(DRAIN_S)
        self._watching.join(DRAIN_S)
        if self._vacuuming is not None:
            self._vacuuming.join(DRAIN_S)
        self._source.close()
        log.info("relay %s has ended", self.name)

    # ---- house-keeping

    def _report(self) -> None:
        """Writes hints, problems and rates that have changed."""
        sent = {number: worker.counters.rows for number, worker in self.workers.items()}
        for number, rows_per_s in self._rates.changed(sent, monotonic()).items():
            self.store.save_rate(number, rows_per_s)
        for number, worker in self.workers.items():
            position = worker.position
            if position and self._hinted.get(number) != position:
                self.store.save_hint(number, position)
                self._hinted[number] = position
            problem = worker.halted or worker.problem
            if self._problems.get(number, "") != problem:
                self.store.save_problem(number, problem)
                self._problems[number] = problem

    def _clean(self) -> bool:
        """Remove sent rows of each shard for a while; whether there is more to remove.

        As fast as rows come, or the table grows under load: a turn also writes leases and hints,
        so one range per turn was 10,000 rows/s. The last row stays, it proves the position.
        """
        if self.settings.keep_ms is None:
            return False
        until = monotonic() + min(LONGEST_CLEAN_S, self.settings.lease_ms / 1000 / 8)
        left = set(self.workers)
        while left and monotonic() < until:
            left = {number for number in left if self._clean_some(number, self.settings.keep_ms)}
        if self._removed >= VACUUM_AFTER:
            self._vacuum_aside()
        return bool(left)

    def _clean_some(self, number: int, keep_ms: int) -> bool:
        hint, after = self._hinted.get(number), self._cleaned_to.get(number, 0)
        if hint is None or hint <= after + 1:
            return False
        most = self.store.database.DELETE_AT_ONCE
        found = self.store.clean(number, after=after, before=hint, keep_ms=keep_ms, most=most)
        if found is None:
            return False
        self._cleaned_to[number] = found[0]
        self._removed += found[1]
        return True

    def _vacuum_aside(self) -> None:
        """In a thread of its own: it may take longer than a lease."""
        if self._vacuuming is not None and self._vacuuming.is_alive():
            return
        self._removed = 0
        self._vacuuming = threading.Thread(target=self._vacuum, name="outbox-vacuum", daemon=True)
        self._vacuuming.start()

    def _vacuum(self) -> None:
        try:
            self.store.vacuum()
        except DATABASE_FAILS as failure:
            log.warning("the table is not vacuumed: %s", first_line(failure))

    # ---- the horizon

    def _look(self) -> None:
        busy_until, problem = monotonic(), None
        while not self._stopping.is_set():
            try:
                before = self._published.stable
                stable = self._source.poll()
                self._published.publish(stable)
                if stable != before:
                    busy_until = monotonic() + BUSY_FOR_S
                idle_s = monotonic() - busy_until
                if idle_s < 0:
                    self._stopping.wait(BUSY_POLL_S)
                else:
                    self._source.wait(IDLE_WAIT_S, idle_s)
                problem = None
            except (SQLAlchemyError, OSError) as failure:
                said = first_line(failure)
                if said != problem:
                    log.warning("the database does not answer: %s", said)
                problem = said
                self._stopping.wait(0.2)
            except Exception:  # without this thread nothing would be sent any more, silently
                log.exception("a bug in the search for stable rows; it starts again")
                self._source.close()
                self._stopping.wait(1.0)
