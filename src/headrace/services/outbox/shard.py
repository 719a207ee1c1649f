"""The relay of one shard: events in, one effect out; no clock, no database, no cluster.

Rows leave in the order of their ids. Records and the position are one transaction of Kafka, so the
position never differs from what readers of committed records see. It is the id of the last row
that was read, never the id up to which was looked: a database that crashed may draw ids again.

A row that cannot be sent is parked in a table of its own before the position passes it. With
`blocks`, later rows of its key are parked behind it and follow when it is sent again or discarded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import assert_never

from headrace.services.outbox.rows import Asked, NotARecord, OutboxRecord, Row

# The position names them all, and a record has its largest size.
MOST_RETRIED = 1000


@dataclass(slots=True, frozen=True)
class Position:
    row_id: int  # of the last row that was sent or parked; 0: none yet
    checksum: int = 0  # of that row
    retried: tuple[int, ...] = ()  # parked rows that were sent again with this position


# ---- what happens


@dataclass(slots=True)
class TakenOver:
    """The producer is open, so other producers cannot commit any more, and then these values were
    read."""

    position: Position | None  # None: the topic has none
    hint: int | None  # the position that the database knows; None: this shard was never begun
    last_row: Row | None  # the row at the position, if it is still there
    blocked: Mapping[bytes, int]  # keys with parked rows: the first of them


@dataclass(slots=True)
class Begun:
    """The first position is in the topic, and the database knows that there is one."""


@dataclass(slots=True)
class Stable:
    """All rows up to here are decided. A new incarnation: the database connection was
    opened again."""

    up_to: int
    incarnation: int


@dataclass(slots=True)
class RowsRead:
    rows: list[Row]
    up_to: int  # all rows up to this id were read: fewer than asked for, if they are large


@dataclass(slots=True)
class SourceLost:
    """The database went away, or its connection was opened again, since the ids were stable."""


@dataclass(slots=True)
class Reviewed:
    """The reviewed parked rows: which are to be sent, by id, and the first blocked one of
    each key."""

    ready: list[Row]
    blocked: Mapping[bytes, int]


@dataclass(slots=True)
class Parked:
    pass


@dataclass(slots=True)
class Tracked:
    pass


@dataclass(slots=True)
class Reparked:
    pass


@dataclass(slots=True)
class Forgotten:
    pass


@dataclass(slots=True)
class Committed:
    pass


@dataclass(slots=True)
class Aborted:
    """Nothing became visible; the same may be tried again."""


@dataclass(slots=True)
class SendRefused:
    """Aborted, because the cluster refuses one of the records for a fault of the record itself."""

    reason: str
    topics: Mapping[str, str] = field(default_factory=dict)  # that take none of them, and why


@dataclass(slots=True)
class ProducerLost:
    """Whether the transaction was committed is known only after the next take-over."""


Event = (
    TakenOver
    | Begun
    | Stable
    | RowsRead
    | SourceLost
    | Reviewed
    | Parked
    | Tracked
    | Reparked
    | Forgotten
    | Committed
    | Aborted
    | SendRefused
    | ProducerLost
)

# ---- what to do


@dataclass(slots=True)
class TakeOver:
    """Open the producer, read the position, then answer `TakenOver`."""


@dataclass(slots=True)
class Begin:
    """Commit the first position, then tell the database; the order matters."""

    position: Position


@dataclass(slots=True)
class Read:
    after: int
    up_to: int
    most: int


@dataclass(slots=True)
class Park:
    """Copy the rows, each once by its id. `waits`: it is parked only because its key is."""

    rows: list[tuple[Row, str, bool]]  # row, reason, waits


@dataclass(slots=True)
class Track:
    """Keep the rows, each once by its message id, until their consumers confirm them."""

    rows: list[tuple[Row, Asked]]


@dataclass(slots=True)
class Repark:
    """A parked row was refused again."""

    row_id: int
    reason: str


@dataclass(slots=True)
class Send:
    """One transaction: the records of these rows, and the position."""

    rows: list[Row]
    position: Position


@dataclass(slots=True)
class Forget:
    """Delete parked rows that were sent."""

    row_ids: tuple[int, ...]


@dataclass(slots=True)
class Review:
    """Look at the parked rows."""

    most: int


@dataclass(slots=True)
class Wait:
    """Until more rows are stable, a review is due, or the shard is given up."""


@dataclass(slots=True)
class Halt:
    """The shard must not go on; an operator has to decide."""

    sentence: str


Effect = TakeOver | Begin | Read | Park | Track | Repark | Send | Forget | Review | Wait | Halt


class Shard:
    """`step` is the only entry. `position` is what the cluster has committed, as far as known."""

    def __init__(
        self,
        number: int,
        *,
        check: Callable[[Row], OutboxRecord],
        blocks: bool = False,
        most: int = 5000,
    ) -> None:
        """`check` raises NotARecord for a row that can be no record."""
        self.number = number
        self.position: Position | None = None
        self._check, self._blocks, self._most = check, blocks, most
        self._limit = most  # rows per transaction; halved by a refusal, down to the guilty row
        self._stable = Stable(0, -1)
        self._looked_to = 0  # rows up to here were read; not kept anywhere
        self._looks_to = 0  # the same, once what is being sent is committed
        self._guilty: dict[int, str] = {}  # rows that the cluster refused, and why
        self._blocked: dict[bytes, int] = {}  # keys with parked rows: the first of them
        self._sending: Send | None = None
        self._asked: dict[int, Asked] = {}  # rows of the last read that want a confirmation
        self._retry = False  # what is being sent was parked before

    def begin(self) -> Effect:
        return TakeOver()

    def step(self, event: Event) -> Effect:
        match event:
            case TakenOver():
                return self._taken_over(event)
            case Begun():
                self.position = Position(0)
                return self._next()
            case Stable():
                return self._saw_stable(event)
            case RowsRead():
                return self._plan(event.rows, event.up_to)
            case SourceLost():
                return Wait()
            case Reviewed():
                return self._reviewed(event)
            case Parked():
                return self._tracked_then_sent()
            case Tracked():
                assert self._sending is not None
                return self._sending
            case Reparked() | Forgotten():
                return Review(self._limit)
            case Committed():
                return self._committed()
            case Aborted():
                return self._again()
            case SendRefused():
                return self._refused(event)
            case ProducerLost():
                self._sending, self.position = None, None
                return TakeOver()
        assert_never(event)

    # ---- taking over

    def _taken_over(self, found: TakenOver) -> Effect:
        position = found.position
        if (wrong := self._mistrust(found)) is not None:
            return Halt(wrong)
        self._blocked = dict(found.blocked) if self._blocks else {}
        self._sending = None
        if position is None or found.hint is None:
            return Begin(Position(0))
        self.position = position
        self._looked_to = position.row_id
        if position.retried:
            return Forget(position.retried)  # sent, and perhaps not deleted any more
        return self._next()

    def _mistrust(self, found: TakenOver) -> str | None:
        """Returns why this position cannot belong to this database; None: it can."""
        position, hint = found.position, found.hint
        if position is None:
            if hint is None:
                return None
            return (
                f"Shard {self.number} has sent rows up to {hint}, says the database, but the "
                "cluster has no position of it. It may be another cluster, or its topic of "
                f"positions was deleted. {self._advice}"
            )
        if position.row_id < (hint or 0):
            return (
                f"Shard {self.number} has sent rows up to {hint}, says the database, but the "
                f"cluster's position is {position.row_id}. It may be another cluster, or one that "
                f"has lost data. {self._advice}"
            )
        if position.row_id == 0:
            return None
        row = found.last_row
        if hint is None or row is None or row.checksum != position.checksum:
            return (
                f"Shard {self.number} has sent rows up to {position.row_id}, says the cluster, but "
                "the database does not have that row. It may be another database, or one that was "
                f"restored from a backup. {self._advice}"
            )
        return None

    @property
    def _advice(self) -> str:
        return (
            "See what has arrived, stop the relays, and choose where to continue: "
            f"`headrace outbox resume DATABASE_URL --shard {self.number} --after ROW`."
        )

    # ---- reading and sending

    def _next(self) -> Effect:
        if self.position is not None and self._stable.up_to > self._looked_to:
            return Read(self.position.row_id, self._stable.up_to, self._limit)
        return Wait()

    def _saw_stable(self, stable: Stable) -> Effect:
        if stable.incarnation != self._stable.incarnation and self.position is not None:
            self._looked_to = self.position.row_id
        self._stable = stable
        return self._next()

    def _plan(self, rows: list[Row], up_to: int) -> Effect:
        assert self.position is not None, "nothing is read before the position is known"
        self._looks_to = up_to
        if not rows:
            self._looked_to = self._looks_to
            return self._next()
        assert rows[0].id > self.position.row_id, "a row is never sent twice"
        sendable, parked = self._sorted(rows)
        position = Position(rows[-1].id, rows[-1].checksum)
        self._sending, self._retry = Send(sendable, position), False
        return Park(parked) if parked else self._tracked_then_sent()

    def _tracked_then_sent(self) -> Effect:
        """Tracks confirmations, then sends: a row is sent only when its confirmation is known to be
        waited for."""
        assert self._sending is not None
        if not self._asked:
            return self._sending
        rows = [(row, self._asked[row.id]) for row in self._sending.rows if row.id in self._asked]
        return Track(rows) if rows else self._sending

    def _sorted(self, rows: Sequence[Row]) -> tuple[list[Row], list[tuple[Row, str, bool]]]:
        """The rows that can be sent, and those that cannot."""
        self._asked.clear()
        if self._blocked or self._guilty:
            return self._sorted_rest(rows)
        return self._sorted_at_once(rows)

    def _sorted_rest(self, rows: Sequence[Row]) -> tuple[list[Row], list[tuple[Row, str, bool]]]:
        sendable, parked = [], []
        for row in rows:
            if row.key is not None and self._blocked.get(row.key, row.id) < row.id:
                parked.append((row, "an earlier row of its key is parked", True))
                continue
            reason = self._guilty.get(row.id) or self._fault(row)
            if reason is None:
                sendable.append(row)
                continue
            parked.append((row, reason, False))
            if self._blocks and row.key is not None:
                # A later row may have been found first: the earlier row counts.
                self._blocked[row.key] = min(row.id, self._blocked.get(row.key, row.id))
        return sendable, parked

    def _sorted_at_once(self, rows: Sequence[Row]) -> tuple[list[Row], list[tuple[Row, str, bool]]]:
        """The same result if no row is blocked or guilty: the path of every row. From the first row
        that is not a record on, `_sorted_rest` decides."""
        check, asked = self._check, self._asked
        for at, row in enumerate(rows):
            try:
                confirmation = check(row).confirmation
            except NotARecord as fault:
                parked = [(row, str(fault), False)]
                if self._blocks and row.key is not None:
                    self._blocked[row.key] = row.id
                later, more = self._sorted_rest(rows[at + 1 :])
                return [*rows[:at], *later], parked + more
            if confirmation is not None:
                asked[row.id] = confirmation
        return list(rows), []

    def _fault(self, row: Row) -> str | None:
        try:
            asked = self._check(row).confirmation
        except NotARecord as fault:
            return str(fault)
        if asked is not None:
            self._asked[row.id] = asked
        return None

    # ---- what became of it

    def _committed(self) -> Effect:
        sent, self._sending = self._sending, None
        assert sent is not None
        self.position = sent.position
        self._limit = min(self._most, self._limit * 2)
        if self._retry:
            return Forget(sent.position.retried)
        self._looked_to = self._looks_to
        self._guilty = {id_: why for id_, why in self._guilty.items() if id_ > sent.position.row_id}
        return self._next()

    def _again(self) -> Effect:
        """Reads from the position again: what is blocked or stable may have changed meanwhile."""
        self._sending = None
        return Review(self._limit) if self._retry else self._next_anew()

    def _next_anew(self) -> Effect:
        assert self.position is not None
        self._looked_to = self.position.row_id
        return self._next()

    def _refused(self, refusal: SendRefused) -> Effect:
        refused, self._sending = self._sending, None
        assert refused is not None and refused.rows, "a position alone is not refused"
        guilty = {row.id: why for row in refused.rows if (why := refusal.topics.get(row.topic))}
        if not guilty and len(refused.rows) > 1:
            self._limit = max(1, len(refused.rows) // 2)
            return Review(self._limit) if self._retry else self._next_anew()
        guilty = guilty or {refused.rows[0].id: refusal.reason}
        if self._retry:
            return Repark(*next(iter(guilty.items())))
        self._guilty |= guilty
        return self._next_anew()

    # ---- parked rows

    def _reviewed(self, review: Reviewed) -> Effect:
        """Rows that may go again go first: later ones of their keys wait for them.

        A row that was parked and that the position has not passed yet is read again: not here.
        """
        if self.position is None:
            return Wait()
        self._blocked = dict(review.blocked) if self._blocks else {}
        passed = self.position.row_id
        most = min(self._limit, MOST_RETRIED)
        rows = [row for row in review.ready if row.id <= passed][:most]
        if not rows:
            return self._next()
        self._asked.clear()
        for row in rows:
            if (reason := self._fault(row)) is not None:
                return Repark(row.id, reason)
        at = self.position
        retried = tuple(row.id for row in rows)
        self._sending = Send(rows, Position(at.row_id, at.checksum, retried))
        self._retry = True
        return self._tracked_then_sent()
