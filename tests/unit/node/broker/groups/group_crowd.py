"""A crowd of members of the newer protocol that come, go, crash and miss answers.

It says at every moment who holds which partitions, by what the members themselves know: one that
has crashed holds what it had until its session is over, as nobody can know before that it stopped.
So their rebalance timeouts should be longer than the session: who is told to give something up and
does not is out after the one, with what it had; here only the other ends anybody.
"""

import random

from headrace.wire.protocol.errors import ErrorCode
from tests.unit.node.broker.groups.group_readers import require_no_overlap

E = ErrorCode
FENCED = (E.FENCED_MEMBER_EPOCH, E.UNKNOWN_MEMBER_ID)


class Crowd:
    def __init__(self, new_reader, now_ms, session_ms, *, seed, lost=0.1):
        self.new_reader = new_reader  # by its name
        self.now_ms = now_ms
        self.session_ms = session_ms
        self.chance = random.Random(seed)
        self.lost = lost  # how often an answer does not arrive
        self.alive = []
        self.crashed = []  # with the moment up to which each holds its own
        self.heard = {}  # reader -> when the server last heard of it
        self.names = 0

    def join(self, count=1):
        for _ in range(count):
            reader = self.new_reader(f"m{self.names}")
            self.names += 1
            self.alive.append(reader)
            self.beat(reader)

    def leave(self, count=1):
        for _ in range(count):
            reader = self._somebody()
            reader.owned = {}  # it gives up everything before it says so
            reader.leave()

    def crash(self, count=1):
        for _ in range(count):
            reader = self._somebody()
            self.crashed.append((reader, self.heard[reader] + self.session_ms))

    def _somebody(self):
        return self.alive.pop(self.chance.randrange(len(self.alive)))

    def beat(self, reader, *, lost=False):
        self.heard[reader] = self.now_ms()
        if lost:
            reader.miss()
        elif reader.beat().error_code in FENCED:
            reader.epoch, reader.owned = 0, {}  # as it must: it abandons all and joins anew
            reader.beat()
        assert lost or reader.last.error_code in (E.NONE, *FENCED), reader.last
        self.check()

    def round(self, share=1.0):
        """Heartbeats of so many of them, in any order, and of all that were not heard for long;
        some answers are lost."""
        chosen = self.chance.sample(self.alive, max(1, int(len(self.alive) * share)))
        overdue_ms = self.now_ms() - self.session_ms // 4
        chosen += [one for one in self.alive if self.heard[one] < overdue_ms and one not in chosen]
        for reader in chosen:
            self.beat(reader, lost=self.chance.random() < self.lost)

    def check(self):
        now_ms = self.now_ms()
        self.crashed = [(reader, until) for reader, until in self.crashed if until > now_ms]
        require_no_overlap(*self.alive, *(reader for reader, _ in self.crashed))

    def owned(self):
        return sum(len(parts) for reader in self.alive for parts in reader.owned.values())

    def comes_to_rest(self, partitions, *, within_rounds=30):
        self.lost = 0.0
        for _ in range(within_rounds):
            before = [(reader.epoch, dict(reader.owned)) for reader in self.alive]
            self.round()
            after = [(reader.epoch, dict(reader.owned)) for reader in self.alive]
            if before == after and self.owned() == partitions:
                return
        raise AssertionError(f"{self.owned()} of {partitions} partitions are read")
