"""A log that is loaded in slices: others have their turn, and may write a marker meanwhile."""

from headrace.node.coordination import shard as shards
from headrace.wire.protocol import control_records
from tests.unit.node.coordination.test_shard import NOW, Counters, new_shard


def test_a_large_log_is_loaded_step_by_step(monkeypatch):
    monkeypatch.setattr(shards, "RECORDS_PER_STEP", 10)
    shard = new_shard()
    for number in range(100):
        shard.run(NOW, Counters.add, f"{number % 50}")
    again = new_shard(shard.journal)
    steps = sum(1 for _ in again.load_in_slices(NOW))
    assert steps == 100 // 10 + 50 // 10, "reading, then replaying the last of each name"
    assert again.machine.counts == shard.machine.counts
    assert again.applied_to == shard.journal.end_offset


def test_a_marker_that_comes_while_the_log_is_loaded_counts(monkeypatch):
    monkeypatch.setattr(shards, "RECORDS_PER_STEP", 1)
    shard = new_shard()
    shard.run(NOW, Counters.add, "a")
    shard.run(NOW, Counters.add, "b", (7, 0))
    shard.run(NOW, Counters.add, "c")
    again = new_shard(shard.journal)
    for number, _ in enumerate(again.load_in_slices(NOW)):
        if number == 3:  # all is read, not all is replayed
            journal = shard.journal
            journal.append(
                control_records.end_txn_batch(
                    commit=True,
                    coordinator_epoch=0,
                    producer_id=7,
                    producer_epoch=0,
                    timestamp=NOW.wall_ms,
                    base_offset=journal.end_offset,
                    leader_epoch=journal.epoch,
                ),
                NOW.wall_ms,
            )
    assert again.machine.counts == {"a": 1, "b": 1, "c": 1}
    assert again.applied_to == shard.journal.end_offset == 4
