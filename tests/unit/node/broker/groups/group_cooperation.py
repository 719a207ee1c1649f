"""A crowd of the classic protocol whose members give up only what goes to another (KIP-429).

Like `group_crowd.Crowd` it knows at every moment who holds what; those that crashed hold theirs
until their session is over.
"""

from headrace.wire.protocol.errors import ErrorCode
from tests.unit.node.broker.groups.group_classics import ClassicReader, share_out
from tests.unit.node.broker.rig import WAITS

E = ErrorCode
SESSION_MS = 10_000  # what the rig's JoinGroup asks for
STEP_MS = 2_500


class Cooperation:
    def __init__(self, rig, group, topic, partitions):
        self.rig, self.group, self.topic = rig, group, topic
        self.places = [(topic, index) for index in range(partitions)]
        self.alive = []
        self.joining = []  # whose JoinGroup waits
        self.stalled = []  # they live, and do not come to rebalances
        self.crashed = []  # with the moment up to which each holds its own

    def join(self, count=1):
        for _ in range(count):
            reader = ClassicReader(self.rig, self.group, self.topic)
            self.alive.append(reader)
            self._join(reader)

    def _join(self, reader):
        answer = reader.join()
        if answer == WAITS:
            self.joining.append(reader)
        else:
            assert answer.error_code == E.NONE, answer

    def leave(self, readers):
        for reader in readers:
            self.alive.remove(reader)
            reader.owned = set()
            [left] = self.rig.leave(self.group, reader.id).members
            assert left.error_code == E.NONE

    def crash(self, readers):
        until_ms = self.rig.now.monotonic_ms + SESSION_MS
        for reader in readers:
            self.alive.remove(reader)
            self.crashed.append((reader, until_ms))

    def check(self):
        now_ms = self.rig.now.monotonic_ms
        self.crashed = [(reader, until) for reader, until in self.crashed if until > now_ms]
        holders = [*self.alive, *(reader for reader, _ in self.crashed)]
        held = [place for reader in holders for place in reader.owned]
        assert len(held) == len(set(held)), "a partition has two owners"

    def rebalance(self):
        """Until nobody has to give anything up any more."""
        while True:
            self._gather()
            if not self._share_out():
                return

    def _gather(self):
        """All come; whoever does not is waited for, and the others go on meanwhile."""
        for reader in self.alive:
            if reader not in self.joining and reader not in self.stalled:
                self._join(reader)
        for _ in range(20):
            self.joining = [reader for reader in self.joining if reader.hear() == WAITS]
            for reader in [one for one in self.stalled if one in self.alive]:
                if reader.beat() == E.UNKNOWN_MEMBER_ID:
                    self.alive.remove(reader)  # its time is over
            if not self.joining:
                return
            self.rig.advance(STEP_MS)
            self.check()
        raise AssertionError("the rebalance never ends")

    def _share_out(self):
        """Whether somebody gave something up, so that it has to be done once more."""
        present = [reader for reader in self.alive if reader not in self.stalled]
        [leader] = [reader for reader in present if reader.leads]
        parts = share_out(leader.members, self.places)
        assert set(parts) == {reader.id for reader in present}
        before = {reader: reader.owned for reader in present}
        waiting = [reader for reader in present if reader is not leader]
        for reader in waiting[::2]:
            assert reader.sync() == WAITS
        assert leader.sync(parts).error_code == E.NONE
        for reader in waiting[::2]:
            assert reader.hear_part().error_code == E.NONE
        for reader in waiting[1::2]:
            assert reader.sync().error_code == E.NONE
        self.check()
        return any(not owned <= reader.owned for reader, owned in before.items())

    def pass_time(self, milliseconds):
        for _ in range(0, milliseconds, STEP_MS):
            self.rig.advance(STEP_MS)
            for reader in self.alive:
                assert reader.beat() in (E.NONE, E.REBALANCE_IN_PROGRESS)
            self.check()

    def owned(self):
        return sum(len(reader.owned) for reader in self.alive)
