"""Lag over time on a real broker: many groups in one look, samples, and the group's page."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from headrace.client.admin.group_lags import GroupLags
from headrace.client.admin.groups import Groups, Move
from headrace.client.connection import ClientSettings, connection
from headrace.client.producer.producer import Producer
from headrace.console.access.cluster_access import ClusterAccess
from headrace.console.history import sampler as sampler_module
from headrace.console.history.sampler import Sampler
from headrace.testing import Broker
from tests.console.full_cluster import HOSTILE_GROUP, fill
from tests.console.served import Served
from tests.patience import until
from tests.sockets.fills import FILLS


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        fill(running.bootstrap)
        yield running


@pytest.fixture
def at(broker: Broker) -> ClientSettings:
    return connection(bootstrap=broker.bootstrap)


async def sample_and_close(sampler: Sampler) -> None:
    await sampler.sample()
    await close(sampler)


async def close(sampler: Sampler) -> None:
    await sampler.close()
    await sampler.access.close()


def test_one_look_says_of_every_group_what_each_says_of_itself(at: ClientSettings) -> None:
    groups = Groups(at)
    names = [each.group for each in groups.all()]
    with GroupLags(at) as lags:
        found = lags.of([*names, "nobody"])
    assert HOSTILE_GROUP in names
    assert {name: found[name].lag for name in names} == {
        each.group: each.lag for each in groups.describe(names)
    }
    orders = found["billing"].topics["orders"]
    assert orders.committed + orders.lag == orders.end == 120
    assert found["nobody"].topics == {}


def test_samples_are_kept_in_a_file_of_the_cluster(at: ClientSettings, tmp_path: Path) -> None:
    now_s = 1_900_000_800
    for second in (0, 60):
        asyncio.run(
            sample_and_close(
                Sampler(ClusterAccess(at), tmp_path, wall_s=partial(float, now_s + second))
            )
        )
    [file] = tmp_path.iterdir()
    assert file.name.startswith("lag-") and file.suffix == ".sqlite"
    again = Sampler(ClusterAccess(at), tmp_path, wall_s=lambda: now_s + 120)
    asyncio.run(again.sample())
    assert not again.problem
    assert again.store.topics_of("billing") == ["orders"]
    asyncio.run(close(again))


@pytest.mark.integration
def test_a_cluster_that_does_not_answer_is_told_of_and_asked_again() -> None:
    sampler = Sampler(ClusterAccess(connection(bootstrap="127.0.0.1:1", timeout_s=1)))
    asyncio.run(sample_and_close(sampler))
    assert "127.0.0.1:1" in sampler.problem


def test_the_page_of_a_group_draws_its_lag(broker: Broker) -> None:
    with Served(broker.bootstrap) as served:
        sampler = served.site.console.sampler
        assert sampler is not None
        served.run(sampler.sample())
        answer = served.visitor().get("/groups/one?name=billing&range=15m")
        assert "Lag over time" in answer.said() and '<polyline class="stroke"' in answer.text
        assert "Catching up not known yet" in answer.said()
        assert "There is no sample" not in answer.said()
        other = served.visitor().get("/groups/one?name=billing&topic=not-one-of-its&range=x")
        assert other.status == 200 and 'aria-current="true">hour<' in other.text


def test_rates_in_and_out_come_of_two_samples(
    broker: Broker, at: ClientSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A round of the console's own between ours would see the records first.
    monkeypatch.setattr(sampler_module, "EVERY_S", 3_600.0)
    monkeypatch.setattr(sampler_module, "LONGEST_PAUSE_S", 3_600.0)
    with Served(broker.bootstrap) as served:
        sampler = served.site.console.sampler
        assert sampler is not None
        until(lambda: sampler.at_s is not None)
        served.run(sampler.sample())
        with Producer(at, settings=FILLS) as producer:
            for number in range(50):
                producer.send("payments", f"more {number}")
        groups = Groups(at)
        ends = groups.ends(groups.partitions_of("orders"))
        groups.move("billing", [Move(*place, None, to, to) for place, to in ends.items()])
        served.run(sampler.sample())
        assert sampler.written.per_s["payments"] > 0 and sampler.written.per_s["orders"] == 0
        assert sampler.read_per_s is not None and sampler.read_per_s > 0
        visitor = served.visitor()
        assert "Groups, largest lag" in visitor.get("/topics").said()
        overview = visitor.get("/").said()
        assert "Read by groups:" in overview
        assert "Messages per second read by all groups" in visitor.get("/").text
        [*_, last] = sampler.store.throughput(0)
        assert last.written_per_s > 0 and last.read_per_s > 0
