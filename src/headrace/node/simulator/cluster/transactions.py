"""Transactional producers of a simulated cluster, and what must be true of their transactions.

A transaction writes to several partitions and commits an offset of a group with them. Its records
are visible all together or not at all. They are visible if its producer got the answer that it is
committed; they are not if it was aborted, or if its producer never asked for a commit. A producer
may leave in the middle of a transaction: its successor with the same transactional id fences it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from headrace.node.simulator.checkers import Violation
from headrace.node.simulator.cluster.producers import outcome_of, produce_request
from headrace.node.simulator.cluster.scripts import (
    OFFSETS,
    REST_MS,
    STATE,
    TRY_AGAIN,
    Ask,
    Place,
    Script,
    Scripts,
)
from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages import (
    end_txn,
    init_producer_id,
    offset_fetch,
    produce,
    txn_offset_commit,
)
from headrace.wire.protocol.record_batch import Record, build

TIMEOUT_MS = 20_000  # of a transaction whose producer is gone
MOST_TRIES = 40  # then a producer gives up, and starts again
SOURCE = "orders"  # the topic whose offsets are committed
BY_NAME = 9  # the newest version of OffsetFetch and OffsetCommit that names topics


@dataclass(slots=True)
class Transaction:
    number: int
    values: dict[bytes, Place] = field(default_factory=dict)
    asked: str = ""  # "commit" or "abort"
    outcome: str = ""  # as its producer knows it: "committed" or "aborted"
    group: str = ""  # whose offset is committed with it
    seen: set[bytes] = field(default_factory=set)  # by readers of committed records

    @property
    def may_be_there(self) -> bool:
        return self.asked == "commit" and self.outcome != "aborted"


class TransactionChecker:
    def __init__(self) -> None:
        self.all: list[Transaction] = []
        self._by_value: dict[bytes, Transaction] = {}
        self._offsets: dict[bytes, tuple[Place, int]] = {}  # where a value was read

    @property
    def committed(self) -> int:
        return sum(each.outcome == "committed" for each in self.all)

    @property
    def aborted(self) -> int:
        return sum(each.outcome == "aborted" for each in self.all)

    def begin(self, number: int) -> Transaction:
        found = Transaction(number)
        self.all.append(found)
        return found

    def send(self, transaction: Transaction, place: Place, value: bytes) -> None:
        transaction.values[value] = place
        self._by_value[value] = transaction

    def read(self, place: Place, offset: int, value: bytes) -> None:
        transaction = self._by_value.get(value)
        if transaction is None:
            raise Violation(f"{place}: nobody has sent {value!r}, which is at offset {offset}")
        if not transaction.may_be_there:
            raise Violation(
                f"{place}: {value!r} of transaction {transaction.number} was read; its producer "
                f"asked for {transaction.asked or 'nothing'} and heard {transaction.outcome!r}"
            )
        where = self._offsets.setdefault(value, (place, offset))
        if where != (place, offset) or transaction.values[value] != place:
            raise Violation(f"{value!r} was read at {where} and at {place}, offset {offset}")
        transaction.seen.add(value)

    def are_all_read(self) -> bool:
        """Returns whether readers have seen all committed values."""
        return all(
            len(each.seen) == len(each.values) for each in self.all if each.outcome == "committed"
        )

    def finish(self) -> None:
        for each in self.all:
            missing = set(each.values) - each.seen
            if missing and each.seen:
                raise Violation(f"transaction {each.number} is torn: {missing} are missing")
            if missing and each.outcome == "committed":
                raise Violation(f"transaction {each.number} was committed, and is not there")

    def offset_bounds(self, group: str) -> tuple[int, int]:
        """Returns the bounds of the group's offset: the last transaction that is certainly
        committed, and the last that may be."""
        ours = [each for each in self.all if each.group == group]
        certain = [each.number for each in ours if each.outcome == "committed"]
        possible = [each.number for each in ours if each.may_be_there]
        return max(certain, default=-1), max(possible, default=-1)


class Fenced(Exception):
    """This producer is over: another one has its transactional id, or it cannot know."""


class TransactionalProducers:
    def __init__(self, scripts: Scripts, checker: TransactionChecker, places: list[Place]) -> None:
        self.scripts = scripts
        self.checker = checker
        self.places = places
        self.busy = 0  # producers in the middle of a transaction

    def producer(self, name: str) -> Script:
        scripts, chance = self.scripts, self.scripts.chance
        while not scripts.stopped:
            state = yield from self._begin(name)
            while state is not None and not scripts.stopped:
                self.busy += 1
                try:
                    state = yield from self._transact(name, state)
                except Fenced:
                    state = None
                self.busy -= 1
                yield chance.randint(1, 400)
            yield chance.randint(1, 2_000)

    def _begin(self, name: str) -> Any:
        scripts = self.scripts
        while not scripts.stopped:
            address = scripts.coordinator(STATE, name)
            if address is None:
                yield REST_MS
                continue
            request = init_producer_id.InitProducerIdRequest(name, TIMEOUT_MS)
            answer = yield Ask(address, init_producer_id, request)
            if answer is not None and answer.error_code == ErrorCode.NONE:
                return answer.producer_id, answer.producer_epoch
            code = None if answer is None else answer.error_code
            scripts.refused(code)
            if code not in TRY_AGAIN and code != ErrorCode.PRODUCER_FENCED:
                raise Violation(f"{name}: InitProducerId was answered {code}")
            yield REST_MS
        return None

    def _transact(self, name: str, state: tuple[int, int]) -> Any:
        """One transaction; the producer's id and epoch after it, None if it leaves."""
        scripts, chance = self.scripts, self.scripts.chance
        transaction = self.checker.begin(scripts.new_number())
        sequences: dict[Place, int] = {}
        for _ in range(chance.randint(1, 4)):
            place = chance.choice(self.places)
            value = b"%06d" % scripts.new_number()
            self.checker.send(transaction, place, value)
            may_go_on = yield from self._send(
                name, state, place, value, sequences.setdefault(place, 0)
            )
            sequences[place] += 1
            if not may_go_on:
                return (yield from self._end(name, state, transaction, commit=False))
        if chance.random() < 0.5:
            transaction.group = f"copied by {name}"
            may_go_on = yield from self._commit_offset(name, state, transaction)
            if not may_go_on:
                return (yield from self._end(name, state, transaction, commit=False))
        if chance.random() < 0.1:
            return None  # it leaves; its successor or the timeout ends the transaction
        commit = chance.random() < 0.75
        return (yield from self._end(name, state, transaction, commit=commit))

    def _send(
        self, name: str, state: tuple[int, int], place: Place, value: bytes, sequence: int
    ) -> Any:
        """Send one batch; returns whether the transaction may go on."""
        scripts = self.scripts
        for _ in range(MOST_TRIES):
            found = scripts.leader(place)
            if found is None:
                yield REST_MS
                continue
            batch = build(
                [Record(None, value, timestamp=scripts.cluster.world.now.wall_ms)],
                producer_id=state[0],
                producer_epoch=state[1],
                base_sequence=sequence,
                is_transactional=True,
            )
            request = produce_request(found.topic_id, place[1], batch, name)
            code, _ = outcome_of((yield Ask(found.address, produce, request)))
            if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                return True
            scripts.refused(code)
            self._look_for_the_end(code)
            if code not in TRY_AGAIN:
                return False
            yield REST_MS
        return False

    def _commit_offset(self, name: str, state: tuple[int, int], transaction: Transaction) -> Any:
        scripts = self.scripts
        part = txn_offset_commit.TxnOffsetCommitRequestPartition(0, transaction.number)
        topic = txn_offset_commit.TxnOffsetCommitRequestTopic(SOURCE, [part])
        request = txn_offset_commit.TxnOffsetCommitRequest(
            name, transaction.group, state[0], state[1], -1, "", None, [topic]
        )
        for _ in range(MOST_TRIES):
            address = scripts.coordinator(OFFSETS, transaction.group)
            if address is None:
                yield REST_MS
                continue
            answer = yield Ask(address, txn_offset_commit, request)
            code = None if answer is None else answer.topics[0].partitions[0].error_code
            if code == ErrorCode.NONE:
                return True
            scripts.refused(code)
            self._look_for_the_end(code)
            if code not in TRY_AGAIN:
                return False
            yield REST_MS
        return False

    def _end(
        self, name: str, state: tuple[int, int], transaction: Transaction, *, commit: bool
    ) -> Any:
        scripts = self.scripts
        transaction.asked = "commit" if commit else "abort"
        request = end_txn.EndTxnRequest(name, state[0], state[1], commit)
        for _ in range(MOST_TRIES):
            address = scripts.coordinator(STATE, name)
            if address is None:
                yield REST_MS
                continue
            answer = yield Ask(address, end_txn, request)
            code = None if answer is None else answer.error_code
            if answer is not None and code == ErrorCode.NONE:
                transaction.outcome = "committed" if commit else "aborted"
                return answer.producer_id, answer.producer_epoch
            scripts.refused(code)
            if code not in TRY_AGAIN:
                raise Fenced
            yield REST_MS
        raise Fenced

    def _look_for_the_end(self, code: int | None) -> None:
        if code in (
            ErrorCode.INVALID_PRODUCER_EPOCH,
            ErrorCode.PRODUCER_FENCED,
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ):
            raise Fenced

    def offset_reader(self, name: str) -> Script:
        """Read the offset that the transactions commit again and again: it never decreases. As
        clients do, ask the known coordinator until it does not answer."""
        scripts, group = self.scripts, f"copied by {name}"
        highest, address = -1, None
        while True:
            yield scripts.chance.randint(500, 2_000)
            address = address or scripts.coordinator(OFFSETS, group)
            if address is None:
                continue
            certain, _ = self.checker.offset_bounds(group)
            answer = yield Ask(address, offset_fetch, offset_request(group, SOURCE, [0]), BY_NAME)
            found = offsets_of(answer)
            if found is None:
                address = None
                continue
            _, possible = self.checker.offset_bounds(group)
            offset = found[0]
            if offset < max(highest, certain) or offset > possible:
                raise Violation(
                    f"{group}: offset {offset}; {highest} was read and {certain} committed before, "
                    f"{possible} is the last that may be"
                )
            highest = offset


def offset_request(
    group: str, topic: str, indexes: list[int], member_id: str | None = None, epoch: int = -1
) -> Any:
    wanted = offset_fetch.OffsetFetchRequestGroup(group, member_id, epoch)
    wanted.topics = [offset_fetch.OffsetFetchRequestTopics(topic, bytes(16), indexes)]
    request = offset_fetch.OffsetFetchRequest()
    request.groups, request.require_stable = [wanted], True
    return request


def offsets_of(answer: Any) -> dict[int, int] | None:
    """Returns the offsets by partition; None if the answer is missing or an error."""
    if answer is None or answer.groups[0].error_code != ErrorCode.NONE:
        return None
    found = {}
    for topic in answer.groups[0].topics:
        for part in topic.partitions:
            if part.error_code != ErrorCode.NONE:
                return None
            found[part.partition_index] = part.committed_offset
    return found
