"""Members of consumer groups of a simulated cluster, by the classic protocol and by KIP-848's.

A member reads its partitions from the committed offsets on, and commits as it reads. Two rules are
checked: a committed offset never decreases for a later OffsetFetch; and each group reaches the end
of each partition when the faults are over. A member that gets no answer to a commit leaves, and
rejoins under a new member id: if that commit arrives late, it is fenced.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import suppress
from typing import Any

from headrace.node.simulator.checkers import Violation
from headrace.node.simulator.cluster.consumers import end_of, fetch_request, what_came
from headrace.node.simulator.cluster.scripts import (
    OFFSETS,
    REST_MS,
    TRY_AGAIN,
    Ask,
    Script,
    Scripts,
)
from headrace.node.simulator.cluster.transactions import BY_NAME, offset_request, offsets_of
from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages import (
    consumer_group_heartbeat,
    fetch,
    heartbeat,
    join_group,
    leave_group,
    offset_commit,
    offset_fetch,
    sync_group,
)

SESSION_MS, REBALANCE_MS = 10_000, 15_000
BEAT_MS = 2_000
TURNS = 6  # of reading and committing, at most, between two heartbeats
LEAVES = 0.02  # the probability that a member leaves after a round

# Refusals of a commit that leave the membership as it is.
NOT_OVER = (ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.REBALANCE_IN_PROGRESS)

Steps = Generator[Ask | int, Any, Any]


class OffsetChecker:
    """Checks the offsets that brokers have acknowledged to groups as committed."""

    def __init__(self) -> None:
        self._committed: dict[tuple[str, int], int] = {}
        self.commits = 0

    def committed(self, group: str, offsets: dict[int, int]) -> None:
        self.commits += 1
        for index, offset in offsets.items():
            self._committed[group, index] = max(offset, self.known(group, index))

    def known(self, group: str, index: int) -> int:
        return self._committed.get((group, index), -1)

    def all_known(self, group: str, indexes: list[int]) -> dict[int, int]:
        return {index: self.known(group, index) for index in indexes}

    def found(self, group: str, offsets: dict[int, int], known_before: dict[int, int]) -> None:
        """Check an answer with these offsets, asked for when `known_before` was committed."""
        for index, offset in offsets.items():
            if offset < known_before[index]:
                raise Violation(
                    f"{group}: the offset of partition {index} went back from "
                    f"{known_before[index]} to {offset}"
                )
            self._committed[group, index] = max(offset, self.known(group, index))


class MustRejoin(Exception):
    """This membership is over."""


class Groups:
    def __init__(
        self, scripts: Scripts, checker: OffsetChecker, topic: str, partitions: int
    ) -> None:
        self.scripts = scripts
        self.checker = checker
        self.topic = topic
        self.partitions = partitions

    # Common to both protocols

    def _coordinator(self, group: str) -> Steps:
        while True:
            address = self.scripts.coordinator(OFFSETS, group)
            if address is not None:
                return address
            yield REST_MS

    def _positions(self, group: str, indexes: list[int], member: str | None, epoch: int) -> Steps:
        for _ in range(10):
            address = yield from self._coordinator(group)
            known = self.checker.all_known(group, indexes)
            request = offset_request(group, self.topic, indexes, member, epoch)
            found = offsets_of((yield Ask(address, offset_fetch, request, BY_NAME)))
            if found is not None:
                self.checker.found(group, found, known)
                return {index: max(offset, 0) for index, offset in found.items()}
            yield REST_MS
        raise MustRejoin

    def _read(self, positions: dict[int, int]) -> Steps:
        """Read each partition from its position; returns the new positions of those that had
        records."""
        moved: dict[int, int] = {}
        for index, position in positions.items():
            leader = self.scripts.leader((self.topic, index))
            if leader is None:
                continue
            request = fetch_request(leader, index, position)
            request.max_wait_ms = 50
            code, records, _ = what_came((yield Ask(leader.address, fetch, request)))
            if code == ErrorCode.OFFSET_OUT_OF_RANGE:
                raise Violation(f"a committed offset {position} of {index} is out of range")
            if records:
                moved[index] = end_of(records)
        return moved

    def _commit(self, group: str, offsets: dict[int, int], member: str, epoch: int) -> Steps:
        parts = [offset_commit.OffsetCommitRequestPartition(*each) for each in offsets.items()]
        topic = offset_commit.OffsetCommitRequestTopic(self.topic, partitions=parts)
        request = offset_commit.OffsetCommitRequest(group, epoch, member, topics=[topic])
        address = yield from self._coordinator(group)
        answer = yield Ask(address, offset_commit, request, BY_NAME)
        if answer is None:
            raise MustRejoin
        codes = {part.error_code for part in answer.topics[0].partitions}
        if codes == {ErrorCode.NONE}:
            self.checker.committed(group, offsets)
            return
        self.scripts.refused(max(codes))
        if max(codes) in TRY_AGAIN or max(codes) in NOT_OVER:
            return  # nothing was committed; the next one takes it along
        raise MustRejoin

    # The classic protocol

    def classic_member(self, group: str) -> Script:
        chance = self.scripts.chance
        while True:
            yield chance.randint(1, 1_000)
            joining = join_group.JoinGroupRequest(
                group, SESSION_MS, REBALANCE_MS, "", None, "consumer", [self._subscription()]
            )
            with suppress(MustRejoin):
                yield from self._classic_membership(joining)
            if joining.member_id:
                address = yield from self._coordinator(group)
                leaving = leave_group.LeaveGroupRequest(group)
                leaving.members = [leave_group.MemberIdentity(joining.member_id)]
                yield Ask(address, leave_group, leaving)

    def _subscription(self) -> Any:
        name = self.topic.encode()
        told = b"\0\0\0\0\0\1" + len(name).to_bytes(2, "big") + name + b"\xff\xff\xff\xff"
        return join_group.JoinGroupRequestProtocol("range", told)

    def _classic_membership(self, joining: Any) -> Steps:
        while True:
            generation, owned = yield from self._join(joining)
            yield from self._classic_generation(joining, generation, owned)

    def _join(self, joining: Any) -> Steps:
        group = joining.group_id
        for _ in range(20):
            address = yield from self._coordinator(group)
            answer = yield Ask(address, join_group, joining, None, REBALANCE_MS + 5_000)
            code = None if answer is None else answer.error_code
            if code == ErrorCode.MEMBER_ID_REQUIRED:
                joining.member_id = answer.member_id
                continue
            if answer is not None and code == ErrorCode.NONE:
                joining.member_id = answer.member_id
                owned = yield from self._sync(joining, answer)
                if owned is not None:
                    return answer.generation_id, owned
                continue
            self.scripts.refused(code)
            if code == ErrorCode.UNKNOWN_MEMBER_ID:
                joining.member_id = ""
            elif code not in TRY_AGAIN and code != ErrorCode.REBALANCE_IN_PROGRESS:
                raise Violation(f"{group}: JoinGroup was answered {code}")
            yield REST_MS
        raise MustRejoin

    def _sync(self, joining: Any, joined: Any) -> Steps:
        """The partitions of this member; None: join again."""
        members = sorted(each.member_id for each in joined.members)
        shares = [
            sync_group.SyncGroupRequestAssignment(
                member,
                bytes(index for index in range(self.partitions) if index % len(members) == at),
            )
            for at, member in enumerate(members)
        ]
        request = sync_group.SyncGroupRequest(
            joining.group_id,
            joined.generation_id,
            joining.member_id,
            None,
            "consumer",
            "range",
            shares,
        )
        address = yield from self._coordinator(joining.group_id)
        answer = yield Ask(address, sync_group, request, None, REBALANCE_MS + 5_000)
        if answer is None or answer.error_code != ErrorCode.NONE:
            self.scripts.refused(None if answer is None else answer.error_code)
            yield REST_MS
            return None
        return list(answer.assignment)

    def _classic_generation(self, joining: Any, generation: int, owned: list[int]) -> Steps:
        """Until the group rebalances."""
        group, member = joining.group_id, joining.member_id
        positions: dict[int, int] = {}
        if owned:
            positions = yield from self._positions(group, owned, None, -1)
        while True:
            address = yield from self._coordinator(group)
            alive = heartbeat.HeartbeatRequest(group, generation, member)
            answer = yield Ask(address, heartbeat, alive)
            code = None if answer is None else answer.error_code
            if code == ErrorCode.REBALANCE_IN_PROGRESS:
                return
            if code != ErrorCode.NONE:
                self.scripts.refused(code)
                if code not in TRY_AGAIN:
                    raise MustRejoin
            yield from self._work(group, positions, member, generation)
            if not self.scripts.stopped and self.scripts.chance.random() < LEAVES:
                raise MustRejoin

    def _work(self, group: str, positions: dict[int, int], member: str, epoch: int) -> Steps:
        started_ms = self.scripts.cluster.world.now_ms
        for _ in range(TURNS):
            if positions:
                moved = yield from self._read(positions)
                positions.update(moved)
                behind = {
                    index: at
                    for index, at in positions.items()
                    if at > max(self.checker.known(group, index), 0)
                }
                if behind:
                    yield from self._commit(group, behind, member, epoch)
            yield self.scripts.chance.randint(100, 700)
            if self.scripts.cluster.world.now_ms - started_ms >= BEAT_MS:
                return

    # KIP-848

    def consumer_member(self, group: str) -> Script:
        scripts = self.scripts
        while True:
            yield scripts.chance.randint(1, 1_000)
            member = f"member-{scripts.new_number()}"
            with suppress(MustRejoin):
                yield from self._consumer_membership(group, member)
            address = yield from self._coordinator(group)
            leaving = consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(group, member, -1)
            yield Ask(address, consumer_group_heartbeat, leaving)

    def _consumer_membership(self, group: str, member: str) -> Steps:
        epoch = 0
        owned: list[Any] = []
        positions: dict[int, int] = {}
        while True:
            address = yield from self._coordinator(group)
            request = consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(group, member, epoch)
            request.rebalance_timeout_ms = REBALANCE_MS
            # Always a full heartbeat: an answer that was lost may have held a new assignment.
            request.subscribed_topic_names, request.topic_partitions = [self.topic], owned
            answer = yield Ask(address, consumer_group_heartbeat, request)
            code = None if answer is None else answer.error_code
            if answer is None or code != ErrorCode.NONE:
                self.scripts.refused(code)
                if code not in TRY_AGAIN:
                    raise MustRejoin
                yield REST_MS
                continue
            epoch = answer.member_epoch
            if answer.assignment is not None:
                topics = answer.assignment.topic_partitions
                given = [index for topic in topics for index in topic.partitions]
                is_new = set(given) != {index for topic in owned for index in topic.partitions}
                owned = topics
                positions = {i: at for i, at in positions.items() if i in given}
                new = [index for index in given if index not in positions]
                if new:
                    found = yield from self._positions(group, new, member, epoch)
                    positions.update(found)
                if is_new:
                    continue  # tell the coordinator that it is done
            yield from self._work(group, positions, member, epoch)
            if not self.scripts.stopped and self.scripts.chance.random() < LEAVES:
                raise MustRejoin

    def watcher(self, group: str) -> Script:
        """No member: asks how far the group is, of the coordinator that it knows, as clients do,
        until that one does not answer."""
        scripts, indexes, address = self.scripts, list(range(self.partitions)), None
        while True:
            yield scripts.chance.randint(500, 2_000)
            address = address or scripts.coordinator(OFFSETS, group)
            if address is None:
                continue
            known = self.checker.all_known(group, indexes)
            request = offset_request(group, self.topic, indexes)
            found = offsets_of((yield Ask(address, offset_fetch, request, BY_NAME)))
            if found is None:
                address = None
            else:
                self.checker.found(group, found, known)

    def seldom(self, group: str) -> Script:
        """No member, and alone: it commits every few seconds, each time one more than before. So a
        coordinator that is cut off often has nothing that waits to be committed."""
        scripts, offset = self.scripts, 0
        while not scripts.stopped:
            yield scripts.chance.randint(5_000, 15_000)
            offset += 1
            part = offset_commit.OffsetCommitRequestPartition(0, offset)
            topic = offset_commit.OffsetCommitRequestTopic(self.topic, partitions=[part])
            request = offset_commit.OffsetCommitRequest(group, -1, "", topics=[topic])
            while not (yield from self._committed_alone(request)):
                yield REST_MS
            self.checker.committed(group, {0: offset})

    def _committed_alone(self, request: Any) -> Steps:
        address = yield from self._coordinator(request.group_id)
        answer = yield Ask(address, offset_commit, request, BY_NAME)
        code = None if answer is None else answer.topics[0].partitions[0].error_code
        if code == ErrorCode.NONE:
            return True
        self.scripts.refused(code)
        if code not in TRY_AGAIN:
            raise Violation(f"{request.group_id}: a commit without members was answered {code}")
        return False

    # The end

    def lag(self, group: str, ends: dict[int, int]) -> dict[int, int]:
        """Returns how far the group is behind, by the answers that its members got."""
        return {
            index: end - max(self.checker.known(group, index), 0)
            for index, end in ends.items()
            if end > max(self.checker.known(group, index), 0)
        }
