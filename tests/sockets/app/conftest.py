"""What the tests of apps share: a broker, topics, and waiting for a condition."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from headrace.client import Admin, Record
from headrace.client.connection import ClientSettings
from headrace.client.lookup.record_reader import RecordReader
from headrace.testing import Broker
from tests.patience import until


@dataclass
class Cluster:
    broker: Broker

    @property
    def bootstrap(self) -> str:
        return self.broker.bootstrap

    def topic(self, name: str, partitions: int = 1) -> str:
        Admin(self.bootstrap).topics.create(name, partitions=partitions)
        return name

    def topic_id(self, name: str) -> str:
        return Admin(self.bootstrap).topics.ids([name])[name]

    def made_anew(self, name: str, partitions: int = 1) -> str:
        """Deleted, and another one of the same name made."""
        Admin(self.bootstrap).topics.delete(name)
        return self.topic(name, partitions)

    def records(self, topic: str) -> list[Record]:
        """All that lies in a topic now."""
        reader = RecordReader(ClientSettings({"bootstrap.servers": self.bootstrap}), topic)
        try:
            return list(reader.records())
        finally:
            reader.close()

    def committed(self, group: str) -> dict[tuple[str, int], int | None]:
        [found] = Admin(self.bootstrap).groups.describe([group])
        return {(p.topic, p.partition): p.committed for p in found.progress}

    def until(self, true: Callable[[], object], what: str = "") -> None:
        until(true, what or "it did not come to pass", every_s=0.002)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Broker() as broker:
        yield Cluster(broker)
