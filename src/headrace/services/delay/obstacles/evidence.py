"""The outcome of a transaction of our group whose marker is missing behind the group's offsets.

How it is decided and ended: `client/once/hanging.py`. The offsets stay unstable for ever, while the
deliveries are visible. A record of that producer in one of the targets which is committed, and not
done by the stable progress, was committed together with these offsets.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct

from headrace.client.admin.transactional_ids import (
    OpenTransaction,
    TransactionalIds,
    TransactionDescription,
)
from headrace.client.connection import ClientSettings
from headrace.client.errors import ClientError
from headrace.client.once import hanging
from headrace.client.once.hanging import Decision, HasEnded
from headrace.services.delay.intake import Place
from headrace.services.delay.partitions.inquiry import Answer, Round
from headrace.services.delay.timeline.progress import IntakeProgress, from_commit
from headrace.wire.contract import headers as names
from headrace.wire.contract.delay_topics import FAR, outcomes_of, rejected_of, target_of
from headrace.wire.protocol.messages import offset_commit_key, offset_commit_value
from headrace.wire.protocol.record_batch import BatchHeader, Record

OFFSETS_TOPIC = "__consumer_offsets"
# Deliveries are written before the offsets, at most a transaction's time; clocks differ a little.
BEFORE_MS = 15_000
_OFFSET_KEYS = (0, 1)  # both say the same
_VERSION = Struct(">h")


@dataclass(slots=True)
class HeldOffsets:
    """The offsets that an open transaction wants to commit for our group."""

    partition: int  # of the offsets' topic
    found: OpenTransaction
    written_ms: int
    pending: dict[Place, IntakeProgress]


def read_held(
    connection: ClientSettings, partition: int, found: OpenTransaction, group: str
) -> HeldOffsets | None:
    """Returns the offsets; None if the transaction is not ours, or has ended meanwhile."""
    left = HeldOffsets(partition, found, 0, {})
    try:
        for header, record in hanging.open_records(connection, (OFFSETS_TOPIC, partition), found):
            commit = _commit_of(record, group)
            if commit is None:
                return None
            place, progress = commit
            left.written_ms = left.written_ms or header.base_timestamp
            left.pending[place] = progress
    except HasEnded:
        return None
    return left if left.pending else None


def _commit_of(record: Record, group: str) -> tuple[Place, IntakeProgress] | None:
    key, value = record.key, record.value
    if key is None or value is None or _version(key) not in _OFFSET_KEYS:
        return None
    name, _ = offset_commit_key.DECODE[0](memoryview(key), _VERSION.size)
    if name.group != group:
        return None
    said, _ = offset_commit_value.DECODE[_version(value)](memoryview(value), _VERSION.size)
    progress = _progress(said.offset, said.metadata.rstrip("\0"))
    return (name.topic, name.partition), progress


def _progress(offset: int, said: str | None) -> IntakeProgress:
    try:
        return from_commit(offset, said).progress
    except ValueError as fault:
        raise ClientError(f"{fault}.") from fault


def _judged(answer: Answer) -> IntakeProgress:
    """The committed offset for the topic as it is now."""
    if answer.offset is None:
        return IntakeProgress()
    try:
        return from_commit(answer.offset, answer.metadata).progress_of(answer.topic_id)
    except ValueError as fault:
        raise ClientError(f"{fault}.") from fault


def _version(text: bytes) -> int:
    return int(_VERSION.unpack_from(text)[0])


def decide(
    connection: ClientSettings, group: str, left: HeldOffsets, known: TransactionDescription | None
) -> Decision:
    """Decides whether it was committed. Raises ClientError if that cannot be determined."""
    decision = hanging.by_coordinator(known, left.found)
    if decision is not None:
        return decision
    stable = _stable(connection, group, left)

    def recognizes(place: Place, header: BatchHeader, record: Record) -> str | None:
        if not _is_beyond(record, stable):
            return None
        return f"{_text(record, names.SOURCE)} in {place[0]}-{place[1]}"

    since_ms = dict.fromkeys(_topics(left), _since_ms(left))
    return hanging.by_records(connection, left.found, since_ms, recognizes)


def _topics(left: HeldOffsets) -> set[str]:
    targets = {target_of(companion) for companion, _ in left.pending}
    return {of for t in targets for of in (t, rejected_of(t), outcomes_of(t))}


def _stable(connection: ClientSettings, group: str, left: HeldOffsets) -> dict[str, IntakeProgress]:
    """By `companion/partition`, as sources have it: what is committed without this transaction."""
    asking = Round(connection, group, dict.fromkeys(left.pending, 0), stable=False)
    asking.join()
    stable = {}
    for place in left.pending:
        answer = asking.answers.get(place)
        if answer is None:
            raise ClientError(f"{place[0]}-{place[1]}: what is committed is not known now.")
        stable[f"{place[0]}/{place[1]}"] = _judged(answer)
    return stable


def _since_ms(left: HeldOffsets) -> int:
    """Before the first delivery: by the broker's clock, and by the one that knew them to be due."""
    since_ms = left.written_ms
    due_ms = max(progress.watermark[0] for progress in left.pending.values())
    if due_ms >= 0:
        since_ms = min(since_ms, due_ms)
    return max(since_ms - BEFORE_MS, 0)


def _is_beyond(record: Record, stable: dict[str, IntakeProgress]) -> bool:
    place, _, offset = _text(record, names.SOURCE).rpartition("/")
    progress = stable.get(place)
    if progress is None or not offset.isdecimal():
        return False
    if int(offset) >= progress.position:
        return True
    # An outcome tells when its schedule was due; it is done with its own offset.
    due = "" if _text(record, names.OUTCOME) else _text(record, names.DUE_AT)
    return due.isdecimal() and (int(due), int(offset)) > progress.watermark


def _text(record: Record, name: str) -> str:
    """Returns the last header of this name as text: the service's own headers follow those of the
    sender."""
    for header in reversed(record.headers):
        if header.key == name:
            return (header.value or b"").decode(errors="replace")
    return ""


def end(ids: TransactionalIds, left: HeldOffsets, decision: Decision) -> int:
    """Writes the missing markers, wherever they are missing. Returns how many."""
    mark = (OFFSETS_TOPIC, left.partition)
    return hanging.end(ids, left.found, decision, mark=mark, topics=_topics(left) | {FAR})
