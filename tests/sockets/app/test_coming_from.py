"""examples/coming-from: each program does what its table in the guide says."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.testing import Broker

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "examples" / "coming-from"
SAYS = {
    "rocketmq.py": {
        "ordered: created of order-1",
        "ordered: paid of order-1",
        "ordered: shipped of order-1",
        "delayed: reminded of order-3",
        "transactional: committed of order-4",
        "1 in the dead letters",
    },
    "rabbitmq.py": {
        "confirmed",
        "mail to ann, attempt 1",
        "mail to bob, attempt 2",
        "noted cleo",
        "mail to dan, attempt 1",
        "noted dan",
    },
    "redis_queues.py": {
        "ZREM: cancelled",
        "due: timer a",
        "due: timer b, moved",
        "read, and died before the ack: event 0",
        "read: event 0",
        "read: event 2",
        "session 7 expired",
    },
    "delay_queue.py": {"removed: True", "taken: quick", "taken: slow"},
    "cloud_kafka.py": {"copied: True"},
    "celery_tasks.py": {
        "add = 3 after 1",
        "flaky = 7 after 2",
        "later = 11 after 1",
        "tick: cancelled",
    },
}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(delay=True) as running:
        yield running


def run(broker: Broker, program: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, str(FOLDER / program)],
        env={**os.environ, "HEADRACE_BOOTSTRAP": broker.bootstrap},
        capture_output=True,
        text=True,
        check=False,
        timeout=110,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def test_every_program_is_run_here_and_told_of_in_the_guide() -> None:
    programs = {path.name for path in FOLDER.glob("*.py")}
    assert programs == set(SAYS)
    guide = (ROOT / "docs" / "guide" / "coming-from.md").read_text()
    assert all(f"coming-from/{name}" in guide for name in programs)


@pytest.mark.integration
@pytest.mark.parametrize("program", SAYS)
def test_a_program_does_what_the_guide_says(broker: Broker, program: str) -> None:
    said = run(broker, program)
    assert SAYS[program] <= set(said), said
    if program == "rocketmq.py":
        ordered = [line for line in said if line.startswith("ordered")]
        assert [line.split()[1] for line in ordered] == ["created", "paid", "shipped"]
        assert not any("rolled back" in line for line in said)
    if program == "redis_queues.py":
        assert said.count("session 7 expired") == 1
