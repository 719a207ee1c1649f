"""A walk over the files of partitions and the checkpoints of all: one bit flipped, then a start.

As `bit_flips.py`, for what lies in the folders of partitions: producers' snapshots, indexes of
aborted transactions, topic ids, leader epochs, the list of damaged ranges; and for the checkpoints
that speak of all partitions. `.log` files have tests of their own (`node/storage/test_damage.py`).
`python -m tests.unit.partition_bit_flips` takes every byte and prints the table of
`docs/reliability-runs.md`; the test takes some bytes of each file. The disk is in memory.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any

from headrace.environment import Now
from headrace.node.broker.folders.identity import UnusableFolder
from headrace.node.consensus.metadata_recovery import UnusableMetadata
from headrace.node.simulator.disk import VirtualDisk
from headrace.wire.protocol import record_batch
from headrace.wire.protocol.messages import list_offsets, offset_for_leader_epoch
from tests.unit.bit_flips import METADATA, REFUSED, SAID, SERVED, WRONG, kind_of
from tests.unit.node.broker.rig import START_MS
from tests.unit.power_cut.whole_node import DATA, NodeOnVirtualDisk, warnings

PAYMENTS, ORDERS, STATE = "payments", "orders", "state"
Files = dict[str, tuple[bytes, int]]  # path: contents without the hole at the end, size
BACK = "a deleted record is back, and that is said"
LEFT_OUT = (".log", ".checkpoint", ".lock")


def new_disk(wall_ms: int = START_MS) -> VirtualDisk:
    disk = VirtualDisk(Now(1_000, wall_ms))
    disk.make_folder(str(DATA))
    return disk


def build(*, clean: bool) -> Files:
    """Transactions over several segments, an idempotent producer, deleted and compacted records."""
    disk = new_disk()
    node = NodeOnVirtualDisk(disk, Random(1), durable=False)
    node.create(PAYMENTS)
    node.create(ORDERS)
    node.create(STATE, cleanup_policy="compact", min_cleanable_dirty_ratio=0.01)
    producer = node.producer("t")
    for number in range(3):
        for commit in (True, False):
            assert producer.send(PAYMENTS, f"{'kept' if commit else 'aborted'} {number}") == 0
            assert producer.end(commit) == 0
        node.produce(ORDERS, f"order {number}", **sequence(number))
        node.produce(ORDERS, f"from another {number}")
        node.produce(STATE, "value", records=keyed(number))
        node.advance(2_000)
        for topic in (PAYMENTS, ORDERS, STATE):
            node.logs()[topic, 0].roll(wall_ms=node.now.wall_ms)
    assert producer.send(PAYMENTS, "undecided") == 0
    assert node.commit_offset("billing", ORDERS, 2) == 0
    node.delete_before(ORDERS, 0, 1)
    node.advance(15_000)
    node.cleaner.run()
    node.advance(60_000)  # checkpoints are written
    if clean:
        node.stop()
    return contents(disk)


def sequence(number: int) -> dict[str, int]:
    return {"producer_id": 4_000, "producer_epoch": 0, "base_sequence": number}


def keyed(number: int) -> bytes:
    return record_batch.build(
        [record_batch.Record(b"key", b"value %d" % number, timestamp=START_MS)]
    )


def contents(disk: VirtualDisk, folder: str = str(DATA)) -> Files:
    files: Files = {}
    for name in disk.list(folder):
        path = f"{folder}/{name}"
        if disk.list(path):
            files |= contents(disk, path)
        elif disk.exists(path):
            data = disk.read_file(path)
            is_index = path.endswith((".index", ".timeindex"))
            files[path] = (data.rstrip(b"\0") if is_index else data, len(data))
    return files


def put(files: Files) -> VirtualDisk:
    disk = new_disk(START_MS + 200_000)
    for path, (data, size) in files.items():
        disk.make_folder(path.rpartition("/")[0])
        file = disk.open(path, create=True)
        file.append(data)
        file.resize(size)
    return disk


def seen(node: NodeOnVirtualDisk) -> dict[str, Any]:
    """All that clients can tell of these topics; asks last what changes something."""
    logs = node.logs()
    found: dict[str, Any] = {"topics": sorted(node.node.broker.image.topics)}
    for place, log in sorted(logs.items()):
        if place[0].startswith("__"):
            continue
        found[f"records of {place}"] = list(node.records(*place))
        found[f"bounds of {place}"] = log.start_offset, log.end_offset
        found[f"epoch of {place}"] = end_of_epoch(node, place[0])
        found[f"by time in {place}"] = by_time(node, place[0])
    found["committed"] = sorted(node.visible(PAYMENTS, 0))
    found["group"] = node.committed_offset("billing", ORDERS)
    repeated = node.produce(ORDERS, "order 2", **sequence(2))
    found["a batch that comes twice"] = repeated.error_code, repeated.base_offset
    found["a batch too early"] = node.produce(ORDERS, "order 9", **sequence(9)).error_code
    found["the next batch"] = node.produce(ORDERS, "order 3", **sequence(3)).error_code
    return found


def end_of_epoch(node: NodeOnVirtualDisk, topic: str) -> tuple[int, int]:
    part = offset_for_leader_epoch.OffsetForLeaderPartition(0, -1, 0)
    wanted = offset_for_leader_epoch.OffsetForLeaderTopic(topic, [part])
    request = offset_for_leader_epoch.OffsetForLeaderEpochRequest(-1, [wanted])
    [answer] = node.ask(offset_for_leader_epoch, request).topics[0].partitions
    return answer.leader_epoch, answer.end_offset


def by_time(node: NodeOnVirtualDisk, topic: str) -> list[int]:
    offsets = []
    for wall_ms in (START_MS, START_MS + 2_000, START_MS + 4_000):
        part = list_offsets.ListOffsetsPartition(0, -1, wall_ms)
        named = [list_offsets.ListOffsetsTopic(topic, [part])]
        request = list_offsets.ListOffsetsRequest(-1, 0, named)
        offsets.append(node.ask(list_offsets, request, version=9).topics[0].partitions[0].offset)
    return offsets


def verdict(files: Files, right: dict[str, Any]) -> tuple[str, str]:
    """How a start ends, and what was said."""
    with warnings() as said:
        try:
            found = seen(NodeOnVirtualDisk(put(files), Random(2), durable=False))
        except (UnusableFolder, UnusableMetadata) as refusal:
            return REFUSED, str(refusal)
        except Exception as bug:  # noqa: BLE001 - that is what is looked for
            return WRONG, f"{type(bug).__name__}: {bug}"
    wrong = [what for what in right if found[what] != right[what]]
    if wrong and all(what.endswith(f"{(ORDERS, 0)}") for what in wrong):
        records = f"records of {(ORDERS, 0)}"
        if found[records][1:] == right[records] and said:
            return BACK, said[0]
    if wrong:
        return WRONG, f"{wrong[0]}: {found[wrong[0]]}, not {right[wrong[0]]}; said: {said[:1]}"
    return (SAID, said[0]) if said else (SERVED, "")


def kind(path: str) -> str:
    return kind_of(path).rpartition("/")[2]


def walked(files: Files) -> list[str]:
    return sorted(path for path in files if METADATA not in path and not path.endswith(LEFT_OUT))


def one_of_each(files: Files) -> list[str]:
    """The first file with bytes of each kind in `payments`, in `orders` and beside them."""
    found: dict[str, str] = {}
    for path in walked(files):
        if files[path][0] and "__" not in path:
            found.setdefault(kind(path) + path.split("/")[2][:6], path)
    return sorted(found.values())


def walk(files: Files, paths: list[str], step: int) -> Iterator[tuple[str, int, str, str]]:
    """File, byte, verdict and words, for every `step`-th byte of these files."""
    right = seen(NodeOnVirtualDisk(put(files), Random(2), durable=False))
    for path in paths:
        data, size = files[path]
        name = path.removeprefix(f"{DATA}/")
        for position in range(0, len(data), min(step, max(len(data) // 3, 1))):
            damaged = bytearray(data)
            damaged[position] ^= 1 << (position * 5 % 8)
            yield name, position, *verdict(files | {path: (bytes(damaged), size)}, right)


def main() -> None:
    """The table for the docs."""
    counts: dict[str, Counter[str]] = {}
    for clean in (False, True):
        files = build(clean=clean)
        for name, position, ended, words in walk(files, walked(files), step=1):
            counts.setdefault(kind(name), Counter())[ended] += 1
            if ended == WRONG:
                sys.stderr.write(f"{clean=} {name} {position}: {words[:400]}\n")
    for name, ends in sorted(counts.items()):
        row = [str(ends[ended]) for ended in (SERVED, SAID, BACK, REFUSED, WRONG)]
        sys.stdout.write(f"| `{name}` | {sum(ends.values())} | {' | '.join(row)} |\n")


if __name__ == "__main__":
    main()
