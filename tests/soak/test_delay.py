"""Delayed messages for long: a million of them, and ROUNDS deaths (40 if nobody says otherwise)."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest

from tests.interop.brokers import TARGET, make_node
from tests.soak.delay_checking import Verdict
from tests.soak.delay_rounds import Delays, Survived, run_rounds
from tests.soak.report import write_row

ROUNDS = min(int(os.environ.get("ROUNDS", "40")), 40)
SEED = int(os.environ.get("SEED") or random.SystemRandom().randrange(2**31))
CROWD = int(os.environ.get("CROWD", "1000000"))
WITHIN_MS = 120_000


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("instances", [1, 3])
def test_a_million_messages_with_chance_delays(tmp_path: Path, instances: int) -> None:
    began = time.monotonic()
    with (
        make_node(TARGET, tmp_path / "node") as node,
        Delays(node, tmp_path, "crowded", instances) as delays,
    ):
        delays.crowd(SEED, count=CROWD, within_ms=WITHIN_MS)
        verdict = delays.end()
    refuse_if_wrong(verdict, tmp_path)
    assert verdict.delivered == verdict.asked == CROWD
    tell_crowd(verdict, instances, time.monotonic() - began)


@pytest.mark.timeout(600 + 40 * ROUNDS)
@pytest.mark.parametrize("instances", [1, 2])
def test_deaths_lose_and_double_nothing(tmp_path: Path, instances: int) -> None:
    began = time.monotonic()
    with make_node(TARGET, tmp_path / "node") as node:
        survived = run_rounds(node, tmp_path, ROUNDS, SEED, instances=instances)
    refuse_if_wrong(survived.verdict, tmp_path)
    assert survived.verdict.delivered > 100 * ROUNDS, "too few messages to say anything"
    assert survived.verdict.cancelled and survived.verdict.too_late, "no cancel ever raced"
    tell_rounds(survived, time.monotonic() - began)


def refuse_if_wrong(verdict: Verdict, folder: Path) -> None:
    if verdict.wrong:
        pytest.fail(f"with SEED={SEED}, data kept in {folder}:\n{verdict.told()}", pytrace=False)


def tell_crowd(verdict: Verdict, instances: int, took_s: float) -> None:
    write_row(
        f"{verdict.asked:,} delayed messages with delays of 0 to {WITHIN_MS // 1000} s, "
        f"{instances_of(instances)} (seed {SEED})",
        f"none early, none lost, none doubled, due order kept; latest by "
        f"{verdict.largest_lateness_ms / 1000:.1f} s; {took_s:.0f} s in all",
    )


def tell_rounds(survived: Survived, took_s: float) -> None:
    verdict = survived.verdict
    events = ", ".join(f"{what} {times} times" for what, times in survived.events.items())
    write_row(
        f"delayed messages, {instances_of(survived.instances)}, {survived.rounds} rounds "
        f"(seed {survived.seed}): {events}",
        f"{verdict.asked:,} requests, {verdict.delivered:,} messages delivered, "
        f"{verdict.cancelled:,} cancelled and {verdict.too_late:,} cancelled too late, "
        f"{verdict.replaced:,} replaced: none early, none lost, none doubled, every answer to a "
        f"cancel is what happened; latest by {verdict.largest_lateness_ms / 1000:.1f} s; "
        f"{took_s:.0f} s in all",
    )


def instances_of(count: int) -> str:
    where = "Apache Kafka 4.3.1" if TARGET == "apache" else "Headrace"
    return f"{count} instance{'s' if count > 1 else ''} on {where}"
