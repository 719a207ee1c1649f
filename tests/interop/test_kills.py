"""kill -9 under load, in short: ROUNDS deaths of the broker, and a tail torn by hand."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.conformance.batches import R, build
from tests.conformance.stage import Stage
from tests.interop.brokers import make_node
from tests.soak.kills import run_rounds
from tests.soak.readback import read_partition

ROUNDS = int(os.environ.get("ROUNDS", "3"))
SEED = int(os.environ.get("SEED", "7"))


@pytest.mark.timeout(600 + 30 * ROUNDS)
def test_nothing_acknowledged_is_lost_by_kill_9(target: str, tmp_path: Path) -> None:
    with make_node(target, tmp_path) as node:
        outcome = run_rounds(node, ROUNDS, SEED)
    assert outcome.acknowledged > 100 * ROUNDS


@pytest.mark.parametrize("damage", ["cut", "flip", "append", "zeros"])
def test_a_torn_tail_is_cut_and_the_rest_is_served(
    target: str, tmp_path: Path, damage: str
) -> None:
    """What a power cut leaves: the last batch half there, wrong, or followed by rubbish."""
    with make_node(target, tmp_path) as node:
        stage = Stage(node)
        topic = stage.topic("torn")
        for number in range(20):
            stage.produce(topic, build(R(b"%d" % number), R(b"x" * 300)))
        stage.drop()
        node.kill()
        log = node.data / "torn-0" / f"{0:020}.log"
        log.write_bytes(damaged(log.read_bytes(), damage))
        node.start()
        values = [stored.value for stored in read_partition(node.port, topic.id, 0)]
        kept = 20 if damage in ("append", "zeros") else 19
        assert values[::2] == [b"%d" % number for number in range(kept)]
        stage = Stage(node)
        assert stage.produce(topic, build(R(b"after"))) == 2 * kept
        stage.drop()


def damaged(data: bytes, damage: str) -> bytes:
    match damage:
        case "cut":
            return data[:-5]
        case "flip":
            return data[:-5] + bytes([data[-5] ^ 1]) + data[-4:]
        case "append":
            return data + b"\x07rubbish" * 20
    return data + bytes(4096)
