"""Nodes of either kind that stand in for one another on one data folder."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition

from headrace.client import ClientError
from tests.interop.brokers import TARGET, Node, make_node

WITHIN_S = 400.0
both_ways = pytest.mark.parametrize(
    "row", [("headrace", "apache"), ("apache", "headrace")], ids="-".join
)
and_back = pytest.mark.parametrize(
    "row", [("headrace", "apache", "headrace"), ("apache", "headrace", "apache")], ids="-".join
)


class Row:
    """Nodes that run one after the other on one folder, at one address."""

    def __init__(
        self, kinds: tuple[str, ...], folder: Path, settings: dict[str, str] | None = None
    ) -> None:
        self._nodes = [
            make_node(kind if TARGET == "headrace" else TARGET, folder / str(step), settings)
            for step, kind in enumerate(kinds)
        ]
        self._at = 0
        self._nodes[0].start()

    @property
    def node(self) -> Node:
        return self._nodes[self._at]

    def hand_on(self) -> Node:
        before = self.node
        before.stop()
        self._at += 1
        self.node.take_over(before)
        self.node.start()
        return self.node

    def __enter__(self) -> Row:
        return self

    def __exit__(self, *_: object) -> None:
        self.node.kill()


def until(true: Callable[[], object], what: str) -> None:
    """Apache Kafka answers requests before its coordinators have read their logs."""
    deadline = time.monotonic() + WITHIN_S
    while True:
        with contextlib.suppress(confluent_kafka.KafkaException, ClientError):
            if true():
                return
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


def found_places(consumer: Any, wanted: list[TopicPartition]) -> list[TopicPartition]:
    found: list[TopicPartition] = []
    until(lambda: found.extend(consumer.committed(wanted, timeout=60)) or found, "no places")
    return found


def commit(consumer: Any, offsets: list[TopicPartition]) -> None:
    until(lambda: consumer.commit(offsets=offsets, asynchronous=False), "no commit")
