"""DescribeConfigs and ListConfigResources on a whole node, in every version."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headrace.wire.protocol.messages import describe_configs, list_config_resources
from headrace.wire.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from headrace.wire.protocol.messages.list_config_resources import ListConfigResourcesRequest
from tests.unit.node.broker.rig import Rig

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    rig = Rig(tmp_path / "data", log_retention_hours=72)
    rig.create("orders")
    return rig


def describe(rig: Rig, kind: int, name: str, *settings: str, version: int = 4, **how: bool) -> Any:
    resource = DescribeConfigsResource(kind, name, list(settings) or None)
    request = DescribeConfigsRequest([resource], **how)
    (result,) = rig.ask(describe_configs, request, version=version).results
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result


@pytest.mark.parametrize("version", describe_configs.VERSIONS)
def test_a_topics_setting(rig: Rig, version: int) -> None:
    rig.alter(TOPIC, "orders", retention_bytes="1000")
    documented = {"include_documentation": True} if version >= 3 else {}
    result = describe(
        rig, TOPIC, "orders", "retention.bytes", "no.such", version=version,
        include_synonyms=True, **documented,
    )  # fmt: skip
    assert (result.error_code, result.error_message) == (0, "")
    (entry,) = result.configs
    assert (entry.name, entry.value, entry.read_only) == ("retention.bytes", "1000", False)
    assert (entry.config_source, entry.is_sensitive) == (1, False)
    assert [(s.name, s.value, s.source) for s in entry.synonyms] == [
        ("retention.bytes", "1000", 1),
        ("log.retention.bytes", "-1", 5),
    ]
    if version >= 3:
        assert entry.config_type == 5
        assert entry.documentation.startswith("Size of a partition")


def test_synonyms_and_documentation_only_when_asked_for(rig: Rig) -> None:
    (entry,) = describe(rig, TOPIC, "orders", "retention.bytes").configs
    assert (entry.value, list(entry.synonyms), entry.documentation) == ("-1", [], None)
    (entry,) = describe(rig, TOPIC, "orders", "retention.ms").configs
    assert entry.value == "259200000", "the broker's file speaks of hours"


def test_no_names_are_all_names(rig: Rig) -> None:
    request = DescribeConfigsRequest([DescribeConfigsResource(TOPIC, "orders", [])])
    (result,) = rig.ask(describe_configs, request).results
    assert len(result.configs) == len(describe(rig, TOPIC, "orders").configs) == 33


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "other", 3),
        (TOPIC, "a/b", 17),
        (TOPIC, "", 17),
        (BROKER, "1", 0),
        (BROKER, "01", 0),
        (BROKER, "", 0),
        (BROKER, "2", 42),
        (BROKER, "-1", 42),
        (BROKER, "abc", 42),
        (LOGGER, "1", 0),
        (LOGGER, "", 42),
        (LOGGER, "7", 42),
        (LOGGER, "x", 42),
        (GROUP, "g", 0),
        (GROUP, "", 42),
        (METRICS, "m", 0),
        (METRICS, "", 42),
        (99, "x", 42),
        (0, "x", 42),
    ],
)
def test_codes(rig: Rig, kind: int, name: str, code: int) -> None:
    result = describe(rig, kind, name)
    assert result.error_code == code
    assert not code or not result.configs


def test_a_change_for_the_running_broker_reaches_topics_at_once(rig: Rig) -> None:
    leader = rig.node.broker.topics.by_name["orders"].replicas[0]
    assert leader.log.settings.retention_ms == 72 * 3_600_000
    rig.alter(BROKER, "1", log_retention_ms="7777")
    assert leader.log.settings.retention_ms == 7777
    rig.alter(TOPIC, "orders", retention_ms="55")
    assert leader.log.settings.retention_ms == 55
    (entry,) = describe(rig, BROKER, "1", "log.retention.ms").configs
    assert (entry.value, entry.config_source) == ("7777", 2)


def test_several_resources_are_answered_in_order_and_each_once(rig: Rig) -> None:
    resources = [
        DescribeConfigsResource(TOPIC, "orders", ["retention.ms"]),
        DescribeConfigsResource(TOPIC, "other", None),
        DescribeConfigsResource(TOPIC, "orders", ["retention.ms"]),
    ]
    results = rig.ask(describe_configs, DescribeConfigsRequest(resources)).results
    assert [(r.error_code, len(r.configs)) for r in results] == [(0, 1), (3, 0)]


def listed(rig: Rig, *kinds: int, version: int = 1) -> tuple[int, list[tuple[str, int]]]:
    request = ListConfigResourcesRequest(list(kinds))
    response = rig.ask(list_config_resources, request, version=version)
    found = [(entry.resource_name, entry.resource_type) for entry in response.config_resources]
    return response.error_code, found


def test_what_can_have_settings_is_listed(rig: Rig) -> None:
    rig.create("audit")
    rig.alter(GROUP, "g1", consumer_session_timeout_ms="46000")
    rig.alter(METRICS, "m", interval_ms="1000")
    brokers, topics = ("1", BROKER), [("audit", TOPIC), ("orders", TOPIC)]
    everything = [("g1", GROUP), ("m", METRICS), ("1", LOGGER), brokers, *topics]
    assert listed(rig) == (0, everything)
    assert listed(rig, TOPIC) == (0, topics)
    assert listed(rig, TOPIC, GROUP) == (0, [("g1", GROUP), *topics])
    assert listed(rig, version=0) == (0, [("m", METRICS)])
    for unknown in ((99,), (0,), (TOPIC, 99)):
        assert listed(rig, *unknown) == (35, [])
