"""`headrace track` on a real broker: made-up visitors, and the collector as a process."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest

from headrace.testing import Broker
from tests.patience import until
from tests.sockets.cli.conftest import CommandLine
from tests.sockets.nobody import nobody

TOPICS = {"page-views", "searches", "clicks"}


def values(headrace: CommandLine, topic: str) -> list[dict[str, str]]:
    lines = headrace.json_lines("consume", topic)
    return [json.loads(line["value"]) for line in lines]


@pytest.fixture
def own_broker() -> Iterator[CommandLine]:
    with Broker() as broker:
        yield CommandLine(broker.bootstrap)


def told(pattern: str, said: Path, process: subprocess.Popen[bytes]) -> str | None:
    """What a process that lives says of itself; None if it has not said it yet."""
    ended = process.poll() is not None
    found = re.search(pattern, said.read_text())
    assert found or not ended, said.read_text()
    return found[1] if found else None


@contextmanager
def collector(
    headrace: CommandLine, said: Path, *words: str
) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    command = [sys.executable, "-m", "headrace", "track", "serve", "--listen", "127.0.0.1:0"]
    with said.open("wb") as errors:
        process = subprocess.Popen(
            [*command, "--bootstrap", headrace.bootstrap, *words], stderr=errors
        )
    try:
        found = until(lambda: told(r"at (http://\S+)/track", said, process))
        yield found, process
    finally:
        process.kill()
        process.wait()


def test_the_same_visitors_come_again_with_the_same_seed(own_broker: CommandLine) -> None:
    words = ("track", "generate", "--visitors", "20", "--seed", "7", "--start", "2026-01-01")
    first = own_broker.json(*words)
    assert first.keys() == TOPICS
    assert own_broker.json(*words) == first
    views = values(own_broker, "page-views")
    assert len(views) == 2 * first["page-views"]
    by_id = sorted(views, key=lambda view: view["id"])
    assert by_id[::2] == by_id[1::2]


def test_visitors_of_now_pass_through_a_collector_that_writes_all_before_it_ends(
    own_broker: CommandLine, tmp_path: Path
) -> None:
    said = tmp_path / "said"
    with collector(own_broker, said) as (url, process):
        words = ("--visitors", "30", "--days", "1", "--collector", url)
        sent = own_broker.json("track", "generate", *words)
        process.send_signal(signal.SIGTERM)
        assert process.wait(300) == 0, said.read_text()
    assert f"{sum(sent.values())} events written, 0 lost." in said.read_text()
    assert {topic: len(values(own_broker, topic)) for topic in TOPICS} == sent


def test_what_cannot_be_is_said(headrace: CommandLine) -> None:
    assert "is not a day" in headrace.failure("track", "generate", "--start", "soon")
    url = f"http://{nobody()}"
    refused = headrace.failure("track", "generate", "--start", "2026-01-01", "--collector", url)
    assert "leave --start out" in refused
    assert "No collector answers" in headrace.failure("track", "generate", "--collector", url)
    assert "HOST:PORT" in headrace.misuse("track", "serve", "--listen", "8090")


def test_a_collector_that_must_end_without_a_cluster_says_how_much_was_lost(
    tmp_path: Path,
) -> None:
    said = tmp_path / "said"
    with Broker() as broker:
        command_line = CommandLine(broker.bootstrap)
        words = ("--grace", "0.2", "--metrics", "127.0.0.1:0")
        with collector(command_line, said, *words) as (url, process):
            broker.stop()
            sent = command_line.json("track", "generate", "--events", "7", "--collector", url)
            assert sum(sent.values()) == 7
            numbers = until(lambda: told(r"Numbers at (http://\S+/metrics)", said, process))
            with urlopen(numbers, timeout=300) as answer:
                assert b"headrace_track_queue_events 7\n" in answer.read()
            process.send_signal(signal.SIGTERM)
            assert process.wait(300) == 1
    assert "0 events written, 7 lost." in said.read_text()
    assert "7 events were accepted and not written" in said.read_text()
