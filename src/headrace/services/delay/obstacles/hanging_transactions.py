"""Our transactions that were decided, but whose marker is missing for the group's offsets.

Apache Kafka 4.3.1, killed while a transaction was in PrepareCommit, was seen to write
CompleteCommit after its restart without the marker in `__consumer_offsets`: the offsets stay
unstable for ever (a hanging transaction, KIP-664), while the deliveries are visible.

The coordinator knows the decision, if it has not begun anything since; otherwise the targets show
it: a record of that producer which is committed, and not done by the stable progress, was committed
together with these offsets. If none is, to abort them doubles nothing. An instance that cannot read
all of it decides nothing. Nothing is written here before the decision, and then the offsets' marker
comes last: as long as it is missing, all of this is done again.
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
from headrace.client.lookup.raw_log import LARGEST_BATCH_BYTES, RawLog
from headrace.contract import headers as names
from headrace.contract.delay_topics import FAR, outcomes_of, rejected_of, target_of
from headrace.protocol.messages import offset_commit_key, offset_commit_value
from headrace.protocol.record_batch import Record, walk
from headrace.services.delay.intake import Place
from headrace.services.delay.partitions.inquiry import Answer, Round
from headrace.services.delay.timeline.progress import IntakeProgress, from_commit

OFFSETS_TOPIC = "__consumer_offsets"
# For offsets and targets together: some plans, and what others wrote meanwhile.
BUDGET_BYTES = 256 << 20
# Deliveries are written before the offsets, at most a transaction's time; clocks differ a little.
BEFORE_MS = 15_000
COMMITTED, ABORTED = "CompleteCommit", "CompleteAbort"
_OFFSET_KEYS = (0, 1)  # both say the same
_VERSION = Struct(">h")


@dataclass(slots=True)
class Hanging:
    """The offsets that an open transaction wants to commit for our group."""

    partition: int  # of the offsets' topic
    found: OpenTransaction
    written_ms: int
    pending: dict[Place, IntakeProgress]


@dataclass(slots=True)
class Decision:
    commit: bool
    why: str


def read_hanging(
    connection: ClientSettings, partition: int, found: OpenTransaction, group: str
) -> Hanging | None:
    """None if it is not ours, or has ended meanwhile."""
    log = RawLog(connection, {OFFSETS_TOPIC}, BUDGET_BYTES)
    hanging = Hanging(partition, found, 0, {})
    for header, batch in log.batches(OFFSETS_TOPIC, partition, found.start_offset):
        if header.producer_id != found.producer_id:
            continue
        if header.is_control:
            return None
        if header.producer_epoch != found.producer_epoch:
            raise ClientError("A later producer of the same id went on in it.")
        hanging.written_ms = hanging.written_ms or header.base_timestamp
        for record in walk(batch, LARGEST_BATCH_BYTES):
            commit = _commit_of(record, group)
            if commit is None:
                return None
            place, progress = commit
            hanging.pending[place] = progress
    return hanging if hanging.pending else None


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
    connection: ClientSettings, group: str, hanging: Hanging, known: TransactionDescription | None
) -> Decision:
    """Raises ClientError if it cannot be seen."""
    found = hanging.found
    if (
        known is not None
        and known.state in (COMMITTED, ABORTED)
        and (known.producer_id, known.producer_epoch) == (found.producer_id, found.producer_epoch)
    ):
        return Decision(known.state == COMMITTED, f"its coordinator says {known.state}")
    stable = _stable(connection, group, hanging)
    topics = _topics(hanging)
    log = RawLog(connection, topics, BUDGET_BYTES)
    since_ms = _since_ms(hanging)
    aborted = None
    for topic, partition in log.partitions():
        start = log.offset_at(topic, partition, since_ms)
        ended = log.ended(
            topic,
            partition,
            start,
            producer_id=found.producer_id,
            producer_epoch=found.producer_epoch,
        )
        for _, record, committed in ended:
            if not _is_beyond(record, stable):
                continue
            where = f"{_text(record, names.SOURCE)} in {topic}-{partition}"
            if committed:
                return Decision(True, f"{where} is committed")
            aborted = f"{where} is aborted"
    return Decision(False, aborted or "nothing of it is visible")


def _topics(hanging: Hanging) -> set[str]:
    targets = {target_of(companion) for companion, _ in hanging.pending}
    return {of for t in targets for of in (t, rejected_of(t), outcomes_of(t))}


def _stable(connection: ClientSettings, group: str, hanging: Hanging) -> dict[str, IntakeProgress]:
    """By `companion/partition`, as sources have it: what is committed without this transaction."""
    asking = Round(connection, group, dict.fromkeys(hanging.pending, 0), stable=False)
    asking.join()
    stable = {}
    for place in hanging.pending:
        answer = asking.answers.get(place)
        if answer is None:
            raise ClientError(f"{place[0]}-{place[1]}: what is committed is not known now.")
        stable[f"{place[0]}/{place[1]}"] = _judged(answer)
    return stable


def _since_ms(hanging: Hanging) -> int:
    """Before the first delivery: by the broker's clock, and by the one that knew them to be due."""
    since_ms = hanging.written_ms
    due_ms = max(progress.watermark[0] for progress in hanging.pending.values())
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
    """Of the last header of this name: the service's own come behind those of the sender."""
    for header in reversed(record.headers):
        if header.key == name:
            return (header.value or b"").decode(errors="replace")
    return ""


def end(
    ids: TransactionalIds, connection: ClientSettings, hanging: Hanging, decision: Decision
) -> int:
    """The missing markers, wherever they are missing; how many."""
    count = 0
    for topic, partition in RawLog(connection, _topics(hanging) | {FAR}, 0).partitions():
        count += ids.end_open_in(topic, partition, hanging.found, commit=decision.commit)
    still = [
        each for each in ids.open_in(OFFSETS_TOPIC, hanging.partition) if each == hanging.found
    ]
    for each in still:
        ids.end_in(OFFSETS_TOPIC, hanging.partition, each, commit=decision.commit)
        count += 1
    return count
