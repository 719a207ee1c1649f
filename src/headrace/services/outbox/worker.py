"""The thread of one shard: performs the effects of its state machine, and reports the results.

A database that is away is asked again; so is a cluster. The thread ends when it is asked to, when
the lease is over, or when the shard must stop (`Halt`). Ending loses nothing and doubles nothing:
what counts is in the cluster's position.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from time import monotonic
from typing import TypeVar

from sqlalchemy.exc import SQLAlchemyError

from headrace.client.connection import ClientSettings
from headrace.client.errors import ClientError
from headrace.client.once.outcome import Committed, RecordsRefused
from headrace.services.outbox import shard as core
from headrace.services.outbox.confirmations import Confirmations
from headrace.services.outbox.engines import first_line
from headrace.services.outbox.metrics import ShardCounters
from headrace.services.outbox.rows import Asked, NotARecord, OutboxRecord, Row, record_of
from headrace.services.outbox.sender import Sender, TopicsRefuse, is_forbidden
from headrace.services.outbox.shard import Shard
from headrace.services.outbox.source import Source, Stale
from headrace.services.outbox.store import Store

log = logging.getLogger("headrace.outbox")

DATABASE_FAILS = (SQLAlchemyError, OSError)
REVIEW_EVERY_S = 1.0
PAUSE_S = 0.2
LONGEST_WAIT_S = 0.5
Found = TypeVar("Found")


class Published:
    """The stable id, from the thread that looks for it to those that wait for it."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.stable = core.Stable(0, -1)

    def publish(self, stable: core.Stable) -> None:
        with self.changed:
            if stable != self.stable:
                self.stable = stable
                self.changed.notify_all()

    def wake(self) -> None:
        with self.changed:
            self.changed.notify_all()


class GivenUp(Exception):
    """The thread was asked to end during a step that may be left undone."""


class ShardWorker:
    def __init__(
        self,
        number: int,
        *,
        at: ClientSettings,
        outbox_id: str,
        store: Store,
        source: Source,
        published: Published,
        blocks: bool,
        most: int,
    ) -> None:
        self.number = number
        self.counters = ShardCounters()
        self.lease_ends_at = 0.0  # monotonic; set by the relay
        self.problem: str | None = None
        self.halted: str | None = None
        self._at, self._outbox_id = at, outbox_id
        self._store, self._source, self._published = store, source, published
        self._confirmations = Confirmations(store)
        self._blocks = blocks
        self._shard = Shard(number, check=self._check, blocks=blocks, most=most)
        self._sender: Sender | None = None
        self._checks_rights = False  # a sender was lost because it may not write to some topic
        self._said_parked: set[int] = set()  # rows behind the position that were reported
        self._records: dict[int, OutboxRecord] = {}  # of the rows that were read last
        self._seen = core.Stable(0, -2)
        self._review_at = 0.0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"outbox-{number}", daemon=True)

    @property
    def position(self) -> int | None:
        at = self._shard.position
        return None if at is None else at.row_id

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """The transaction under way is ended first; `join` waits for that."""
        self._stopping.set()
        self._published.wake()

    def join(self, timeout_s: float) -> bool:
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    # ---- the loop

    def _run(self) -> None:
        effect = self._shard.begin()
        try:
            while not isinstance(effect, core.Halt):
                if self._gives_up():
                    break
                effect = self._shard.step(self._perform(effect))
            else:
                self.halted = effect.sentence
                log.error("%s", effect.sentence)
        except GivenUp:
            pass
        except Exception as bug:
            self.problem = f"a bug of the relay: {bug!r}"
            log.exception("a bug in shard %d; the relay starts it again", self.number)
        finally:
            self._close_sender()

    def _perform(self, effect: core.Effect) -> core.Event:
        match effect:
            case core.Wait():
                return self._wait()
            case core.Read():
                return self._read(effect)
            case core.Send():
                return self._send(effect)
            case core.TakeOver():
                return self._take_over()
            case core.Begin():
                return self._begin(effect)
            case core.Park():
                return self._park(effect)
            case core.Track():
                self._insist(lambda: self._track(effect.rows))
                return core.Tracked()
            case core.Repark():
                self._insist(lambda: self._store.repark(effect.row_id, effect.reason))
                return core.Reparked()
            case core.Forget():
                self._insist(lambda: self._store.forget(effect.row_ids))
                return core.Forgotten()
            case core.Review():
                return self._review(effect.most)
        raise AssertionError(f"unknown effect {effect}")

    def _gives_up(self) -> bool:
        """Returns whether to give up. A relay that was suspended may wake long after its lease has
        ended."""
        return self._stopping.is_set() or monotonic() >= self.lease_ends_at

    def _wait(self) -> core.Event:
        if monotonic() >= self._review_at:
            return self._review(1000)
        published = self._published
        with published.changed:
            if published.stable == self._seen and not self._stopping.is_set():
                published.changed.wait(LONGEST_WAIT_S)
            self._seen = published.stable
        return self._seen

    # ---- the cluster

    def _take_over(self) -> core.Event:
        self._close_sender()
        while True:
            try:
                sender = self._sender = Sender(
                    self._at,
                    self._outbox_id,
                    self.number,
                    rows_of=self._rows_of,
                    checks_rights=self._checks_rights,
                )
                position = sender.open(self._gives_up)
                break
            except ClientError as failure:
                self._close_sender()
                self._trouble(str(failure))
        row_id = 0 if position is None else position.row_id
        hint = self._insist(lambda: self._store.hint(self.number))
        row = self._insist(lambda: self._store.row(self.number, row_id)) if row_id else None
        blocked = self._insist(lambda: self._store.blocked(self.number))
        self.problem = None
        log.info("took over shard %d after row %d", self.number, row_id)
        return core.TakenOver(position, hint, row, blocked)

    def _rows_of(self, after: int, position: core.Position) -> list[Row]:
        """The rows of a transaction that moved the position from there to here."""
        return self._insist(
            lambda: self._store.rows(self.number, after, position.row_id, position.retried)
        )

    def _begin(self, effect: core.Begin) -> core.Event:
        assert self._sender is not None
        outcome = self._sender.send([], effect.position)
        if not isinstance(outcome, Committed) or outcome.is_spent:
            self._trouble(outcome.why)
            return core.ProducerLost()
        self._insist(lambda: self._store.save_hint(self.number, effect.position.row_id))
        return core.Begun()

    def _send(self, effect: core.Send) -> core.Event:
        assert self._sender is not None
        made = self._records
        records = [made.get(row.id) or record_of(row, self._outbox_id) for row in effect.rows]
        began = monotonic()
        outcome = self._sender.send(records, effect.position)
        if isinstance(outcome, TopicsRefuse):
            if outcome.for_long:
                return core.SendRefused(outcome.why, outcome.for_long)
            return self._not_sent(outcome.why, core.Aborted())
        if outcome.is_spent:
            self._checks_rights = is_forbidden(outcome)
            return self._not_sent(outcome.why, core.ProducerLost())
        if isinstance(outcome, RecordsRefused):
            return core.SendRefused(outcome.why, {})
        if not isinstance(outcome, Committed):
            return self._not_sent(outcome.why, core.Aborted())
        self.problem = None
        self.counters.sent(len(records), monotonic() - began)
        return core.Committed()

    def _not_sent(self, why: str, event: core.Event) -> core.Event:
        self.counters.aborted += 1
        self._trouble(why)
        return event

    def _close_sender(self) -> None:
        if self._sender is not None:
            self._sender.close()
            self._sender = None

    # ---- the database

    def _check(self, row: Row) -> OutboxRecord:
        """Makes the record and keeps it for `_send`: to make it costs as much as to send it.

        One row with unforeseen contents must not hold up all others for ever.
        """
        try:
            record = self._records[row.id] = record_of(row, self._outbox_id)
        except NotARecord:
            raise
        except Exception as bug:
            log.exception("a bug of the relay: no record can be made of row %d", row.id)
            raise NotARecord(f"a bug of the relay: {bug!r}") from bug
        return record

    def _read(self, effect: core.Read) -> core.Event:
        try:
            rows, up_to = self._source.read(
                self.number,
                after=effect.after,
                up_to=effect.up_to,
                most=effect.most,
                incarnation=self._seen.incarnation,
            )
        except Stale:
            self._stopping.wait(0.01)
            self._seen = core.Stable(0, -2)  # ask for the new one
            return core.SourceLost()
        except DATABASE_FAILS as failure:
            self._trouble(f"the database cannot be read: {first_line(failure)}")
            return core.SourceLost()
        self._records.clear()
        return core.RowsRead(rows, up_to)

    def _park(self, effect: core.Park) -> core.Event:
        """Parks rows. The same rows are parked again if what was to be sent with them failed: they
        are reported once."""
        self._insist(lambda: self._store.park(self.number, effect.rows))
        said = {id_ for id_ in self._said_parked if id_ > (self.position or 0)}
        self._said_parked = said | {row.id for row, _, _ in effect.rows}
        self.counters.parked += len(self._said_parked) - len(said)
        for row, reason, waits in effect.rows:
            if not waits and row.id not in said:
                log.error(
                    "row %d for %s is parked, `headrace outbox show` has it: %s",
                    row.id, row.topic, reason,
                )  # fmt: skip
        return core.Parked()

    def _track(self, rows: list[tuple[Row, Asked]]) -> None:
        self._confirmations.track(self._outbox_id, self.number, rows)

    def _review(self, most: int) -> core.Event:
        self._review_at = monotonic() + REVIEW_EVERY_S
        ready = self._insist(lambda: self._store.ready(self.number, most))
        blocked = self._insist(lambda: self._store.blocked(self.number)) if self._blocks else {}
        return core.Reviewed(ready, blocked)

    def _insist(self, call: Callable[[], Found]) -> Found:
        """Repeats the call until the database answers."""
        while True:
            try:
                return call()
            except DATABASE_FAILS as failure:
                self._trouble(f"the database does not answer: {first_line(failure)}")

    def _trouble(self, problem: str) -> None:
        """Logs a problem once, waits a little, and raises if the worker shall end."""
        if problem != self.problem:
            log.warning("shard %d waits: %s", self.number, problem)
        self.problem = problem
        if self._stopping.wait(PAUSE_S) or self._gives_up():
            raise GivenUp
