"""Below which id every row of a PostgreSQL outbox is decided: visible, or never there.

Ids are drawn in one order and committed in another, so `id > last` skips rows. This holds instead:
a transaction gets its own transaction id before it draws a row id (the table's default makes sure
of it). Let L be the last id drawn, and X a transaction id that was given out after L was read:
every transaction that drew an id up to L has a transaction id below X. When all transactions below
X are decided, so are all ids up to L.

Each poll gives L, X and the oldest transaction that is still open; pairs (L, X) wait in a queue. A
long transaction that does not touch the outbox is not waited for: a caller that knows the holders
of the table's lock says so (`release`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

# More pairs than that say nothing more: a long transaction holds them all, and the newest is kept.
MOST_PAIRS = 64
XIDS = 2**32


class StableIds:
    """Valid for as long as the server does not restart: a crash can draw the same ids again."""

    def __init__(self) -> None:
        self.up_to = 0
        self._pairs: deque[tuple[int, int]] = deque()  # (L, X), both ascending

    @property
    def last_seen(self) -> int:
        """A poll needs a new transaction id only if more ids than that were drawn."""
        return self._pairs[-1][0] if self._pairs else self.up_to

    @property
    def waits(self) -> bool:
        return bool(self._pairs)

    def saw(self, *, last_id: int, xid: int | None, oldest_open: int) -> int:
        """A poll's answer; `xid` is None where no more ids were drawn than `last_seen`."""
        if xid is not None and last_id > self.last_seen:
            if len(self._pairs) == MOST_PAIRS:
                self._pairs.pop()
            self._pairs.append((last_id, xid))
        self._move_up(lambda pair_xid: pair_xid <= oldest_open)
        return self.up_to

    def release(self, holders: Iterable[int]) -> int:
        """`holders` are the transaction ids (32 bits) of all who hold the table's lock, asked after
        the pairs were seen and before the rows are read."""
        held = list(holders)
        self._move_up(lambda xid: not any(precedes(holder, xid) for holder in held))
        return self.up_to

    def _move_up(self, is_stable: object) -> None:
        assert callable(is_stable)
        while self._pairs and is_stable(self._pairs[0][1]):
            self.up_to = self._pairs.popleft()[0]


def precedes(xid32: int, xid: int) -> bool:
    """Whether a transaction id of 32 bits, as locks show it, is older than a whole one."""
    return (xid32 - xid) % XIDS >= XIDS // 2
