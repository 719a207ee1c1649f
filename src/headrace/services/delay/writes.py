"""Plans of transactions as records: their topics and headers.

A delivery that its target cannot take (no such partition, too large, no key where keys are wanted)
goes to the rejected topic instead: it counts as done either way.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from zlib import crc32

from headrace.client.faults import TOO_LARGE_RECORD
from headrace.client.once.outcome import RefusedRecord
from headrace.client.transaction_writer import TransactionWriter
from headrace.services.delay.deliverer import Header
from headrace.services.delay.timeline.transaction_plan import Delivery, TransactionPlan
from headrace.services.delay.topics import Pair
from headrace.wire.contract import headers as names
from headrace.wire.contract.delay_topics import FAR, outcomes_of, rejected_of

log = logging.getLogger(__name__)

# A batch's header, a record's lengths and similar overhead.
ROOM_BYTES = 128
# Only records of this share of the limit are checked closely.
LARGE_SHARE = 2


def write(
    calls: TransactionWriter, pair: Pair, partition: int, plan: TransactionPlan, now_ms: int
) -> int:
    """Writes everything but the offset. Returns how many deliveries were rejected instead."""
    rejected = 0
    if plan.deliveries:
        rejected = _deliver(calls, pair, partition, plan.deliveries, now_ms)
    for outcome in plan.outcomes:
        said: list[Header] = [
            (names.OUTCOME, outcome.outcome.encode()),
            (names.CANCEL, outcome.id.encode()),
            (names.SOURCE, f"{pair.companion}/{partition}/{outcome.offset}".encode()),
        ]
        if outcome.target is not None:
            said.append((names.DUE_AT, b"%d" % outcome.target[0]))
        topic, at = outcomes_of(pair.target), partition % pair.outcomes_partitions
        calls.send(topic, at, outcome.key, outcome.id.encode(), said, now_ms)
    for rejection in plan.rejections:
        offset, _, key, value, given = rejection.record
        refused = Delivery(key, value, list(given or ()), partition, 0, offset, 0)
        reject(calls, pair, partition, refused, rejection.reason, now_ms)
    if plan.far:
        at = crc32(f"{pair.companion}/{partition}".encode()) % pair.far_partitions
        for far in plan.far:
            calls.send(FAR, at, far.key, far.value, far.headers, now_ms)
    rejected += len(plan.rejections)
    if rejected:
        log.warning(
            "%s-%d: %d delayed records are rejected; %s has them, each with its reason",
            pair.companion, partition, rejected, rejected_of(pair.target),
        )  # fmt: skip
    return rejected


def _deliver(
    calls: TransactionWriter, pair: Pair, partition: int, deliveries: list[Delivery], now_ms: int
) -> int:
    target, partitions = pair.target, pair.target_partitions
    large = pair.largest_bytes // LARGE_SHARE
    send = calls.send
    rejected = 0
    for delivery in deliveries:
        key, value, headers, to, *_ = delivery
        if (
            to >= partitions
            or (value is not None and len(value) > large)
            or (key is None and pair.wants_keys)
        ):
            reason = why_not(pair, delivery)
            if reason is not None:
                reject(calls, pair, partition, delivery, reason, now_ms)
                rejected += 1
                continue
        send(target, to, key, value, headers, now_ms)
    return rejected


def why_not(pair: Pair, delivery: Delivery) -> str | None:
    """Returns why the target would refuse this; None: it would not, as far as we know."""
    key, value, headers, to, *_ = delivery
    if to >= pair.target_partitions:
        return f"{pair.target} has {pair.target_partitions} partitions, there is no {to}"
    if key is None and pair.wants_keys:
        return f"{pair.target} is compacted, so its records need a key"
    size = size_bytes(key, value, headers)
    if size > pair.largest_bytes:
        limit = pair.largest_bytes
        return f"{size} bytes are too large for {pair.target}: max.message.bytes is {limit}"
    return None


def size_bytes(key: bytes | None, value: bytes | None, headers: list[Header]) -> int:
    """Returns the size of a batch with this record alone, or a few bytes more."""
    size = ROOM_BYTES + len(key or b"") + len(value or b"")
    return size + sum(len(name) + len(said or b"") + 10 for name, said in headers)


# Headers of a rejected record that replace those of an earlier service.
SAID_ANEW = (names.SOURCE, names.SOURCE_TOPIC_ID, names.REJECTED_REASON)


def reject(
    calls: TransactionWriter,
    pair: Pair,
    partition: int,
    delivery: Delivery,
    reason: str,
    now_ms: int,
) -> None:
    key, value, headers, _, _, offset, _ = delivery
    kept = [each for each in headers if each[0] not in SAID_ANEW]
    kept.append((names.REJECTED_REASON, reason.encode()))
    kept.append((names.SOURCE, f"{pair.companion}/{partition}/{offset}".encode()))
    at = partition % pair.rejected_partitions
    calls.send(rejected_of(pair.target), at, key, value, kept, now_ms)


def cramped(targets: set[str], refusals: list[RefusedRecord]) -> dict[str, int]:
    """Returns our own topics that refuse a record for its size, and the record's size: it cannot be
    written elsewhere."""
    found: dict[str, int] = {}
    for each in refusals:
        if each.fault.code == TOO_LARGE_RECORD and each.topic not in targets:
            size = size_bytes(each.key, each.value, [])
            found[each.topic] = max(found.get(each.topic, 0), size)
    return found


def writes_to(pair: Pair, plan: TransactionPlan, topic: str) -> bool:
    """Returns whether a plan of this pair may have written to the topic."""
    if topic == FAR:
        return bool(plan.far)
    return topic in (pair.target, rejected_of(pair.target), outcomes_of(pair.target))


def guilty(
    pair: Pair, deliveries: list[Delivery], refusals: list[RefusedRecord]
) -> Iterator[tuple[int, str]]:
    """Returns which deliveries made the target refuse a batch: intake offset and reason.

    A refusal names every record of a batch; the one that is too large is found by its size. If none
    exceeds the known limit, the limit has changed, and the largest record is the cause.
    """
    why = {
        (each.partition, each.key, each.value): each
        for each in refusals
        if each.topic == pair.target
    }
    large: list[tuple[int, int, str]] = []
    for key, value, headers, partition, _, offset, _ in deliveries:
        refusal = why.get((partition, key, value))
        if refusal is None:
            continue
        if refusal.fault.code == TOO_LARGE_RECORD:
            large.append((size_bytes(key, value, headers), offset, str(refusal.fault)))
        else:
            yield offset, str(refusal.fault)
    if large:
        limit = min(pair.largest_bytes, max(large)[0] - 1)
        yield from ((offset, reason) for size, offset, reason in large if size > limit)
