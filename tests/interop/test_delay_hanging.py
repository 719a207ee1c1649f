"""Offsets that Apache Kafka holds in a transaction which its coordinator has closed.

The stories of tests/sockets/services/delay/test_hanging_transactions.py, told to the broker that
has this fault; two of them in `make full` only.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.node.process.clock import MovableClock
from tests.interop.brokers import Node, make_node
from tests.sockets.services.delay import test_hanging_transactions as stories

impatient = stories.impatient


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Node]:
    settings = {"transaction.partition.verification.enable": "false"}
    with make_node("apache", tmp_path / "node", settings) as node:
        node.clock = MovableClock()  # type: ignore[attr-defined]  # as the service's clock wants
        yield node


@pytest.mark.parametrize(
    ("commit", "remembered"),
    [
        (True, True),
        (False, False),
        pytest.param(True, False, marks=pytest.mark.full),
        pytest.param(False, True, marks=pytest.mark.full),
    ],
)
def test_it_is_ended_as_it_was_decided(
    broker: Node,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    commit: bool,
    remembered: bool,
) -> None:
    stories.test_it_is_ended_as_it_was_decided(
        broker, tmp_path / "store", caplog, commit, remembered
    )


def test_nothing_is_begun_over_an_own_one_that_was_aborted(
    broker: Node, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stories.test_nothing_is_begun_over_an_own_one_that_was_aborted(
        broker, tmp_path / "store", caplog
    )
