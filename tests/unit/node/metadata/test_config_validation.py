"""What may be stored for whom."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from headrace.node.metadata.config_definitions import BROKER_SETTINGS
from headrace.node.metadata.config_definitions.definition import BadValue, Change, Standing
from headrace.node.metadata.config_validation import (
    connections_by_address,
    fault_between_settings,
    not_supported_by_name,
    validate_broker_configs,
    validate_client_metrics_configs,
    validate_group_configs,
    validate_topic_config,
    validate_topic_configs,
)
from headrace.node.metadata.configs import broker_values, topic_defaults
from headrace.wire.protocol.errors import ErrorCode, KafkaError

CURRENT = broker_values({}, {})
DEFAULTS = topic_defaults({}, {})


def code_of_topic(settings: Mapping[str, str]) -> ErrorCode:
    try:
        validate_topic_configs(settings, DEFAULTS)
    except KafkaError as refusal:
        assert refusal.message and refusal.message.endswith(".")
        return refusal.code
    return ErrorCode.NONE


def code_of_broker(settings: Mapping[str, str], *, of_one_broker: bool = True) -> ErrorCode:
    try:
        validate_broker_configs(settings, of_one_broker=of_one_broker, current=CURRENT)
    except KafkaError as refusal:
        assert refusal.message and refusal.message.endswith(".")
        return refusal.code
    return ErrorCode.NONE


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ({}, ErrorCode.NONE),
        ({"retention.ms": "1000", "cleanup.policy": "compact"}, ErrorCode.NONE),
        ({"no.such.setting": "1"}, ErrorCode.INVALID_CONFIG),
        ({"message.format.version": "3.0"}, ErrorCode.INVALID_CONFIG),
        ({"retention.ms": "x"}, ErrorCode.INVALID_CONFIG),
        ({"min.compaction.lag.ms": "100", "max.compaction.lag.ms": "50"}, ErrorCode.INVALID_CONFIG),
        ({"min.compaction.lag.ms": "50", "max.compaction.lag.ms": "50"}, ErrorCode.NONE),
        ({"remote.storage.enable": "true"}, ErrorCode.INVALID_CONFIG),
        ({"remote.storage.enable": "false"}, ErrorCode.NONE),
        ({"remote.log.copy.disable": "true", "local.retention.ms": "5000"}, ErrorCode.NONE),
        ({"min.insync.replicas": "5", "internal.segment.bytes": "100"}, ErrorCode.NONE),
    ],
)
def test_settings_of_a_topic(settings: dict[str, str], code: ErrorCode) -> None:
    assert code_of_topic(settings) == code


def test_one_setting_by_itself() -> None:
    assert validate_topic_config("retention.ms", "5") == 5
    with pytest.raises(KafkaError, match="retention.ms must be at least -1, not '-2'"):
        validate_topic_config("retention.ms", "-2")


@pytest.mark.parametrize(
    ("settings", "of_one", "of_all"),
    [
        ({"log.retention.ms": "7777"}, 0, 0),
        ({"log.retention.ms": "x"}, 42, 42),
        ({"log.retention.ms": "0"}, 42, 42),
        ({"log.retention.ms": "-5"}, 0, 0),
        ({"log.segment.bytes": "5"}, 42, 42),
        ({"log.retention.hours": "5"}, 42, 42),
        ({"node.id": "3"}, 42, 42),
        ({"advertised.listeners": "PLAINTEXT://x:1"}, 42, 42),
        ({"nobody.knows": "1"}, 0, 0),
        ({"listeners": "PLAINTEXT://localhost:9092"}, 0, 42),
        ({"listeners": "PLAINTEXT://localhost:9999"}, 42, 42),
        ({"ssl.keystore.password": "abc"}, 42, 42),
        ({"ssl.keystore.location": "/tmp/x"}, 42, 42),
        ({"ssl.keystore.type": "PEM"}, 42, 42),
        ({"ssl.client.auth": "maybe"}, 42, 42),
        ({"sasl.jaas.config": "x"}, 0, 42),
        ({"listener.name.plaintext.ssl.keystore.location": "/tmp/x"}, 0, 42),
        ({"listener.name.plaintext.ssl.principal.mapping.rules": "DEFAULT"}, 42, 42),
        ({"listener.name.plaintext.num.io.threads": "9"}, 42, 42),
        ({"max.connections": "100"}, 0, 0),
        ({"max.connections.per.ip.overrides": "127.0.0.1:50"}, 0, 0),
        ({"max.connections.per.ip.overrides": "bad"}, 42, 42),
        ({"num.io.threads": "9"}, 0, 0),
        ({"num.io.threads": "100"}, 42, 42),
        ({"num.io.threads": "3"}, 42, 42),
        ({"metric.reporters": "foo.Bar"}, 42, 42),
        ({"config.providers": "file"}, 42, 42),
        ({"leader.replication.throttled.rate": "1000"}, 0, 0),
        ({"leader.replication.throttled.rate": "x"}, 42, 42),
        ({"log.cleanup.policy": "compact,delete"}, 0, 0),
        ({"group.consumer.assignment.interval.ms": "99999"}, 42, 42),
        ({"cordoned.log.dirs": ""}, 0, 42),
        ({"cordoned.log.dirs": "*"}, 0, 42),
        ({"super.users": "User:admin"}, 42, 42),
    ],
)
def test_settings_of_brokers(settings: dict[str, str], of_one: int, of_all: int) -> None:
    """The codes are those that Apache Kafka 4.3.1 answered, but for what is not supported here."""
    assert code_of_broker(settings) == of_one
    assert code_of_broker(settings, of_one_broker=False) == of_all


def test_nothing_unsupported_can_be_set_on_a_running_broker() -> None:
    for name, definition in BROKER_SETTINGS.items():
        if definition.standing is Standing.UNSUPPORTED and definition.change is not Change.RESTART:
            wish: Any = definition.default
            text = {True: "false", False: "true"}.get(wish) if isinstance(wish, bool) else "17"
            assert code_of_broker({name: text or ""}) == ErrorCode.INVALID_REQUEST, name


def test_the_rest_of_a_broker_must_fit_too() -> None:
    strict = {**CURRENT, "log.cleaner.min.compaction.lag.ms": 100}
    with pytest.raises(KafkaError, match="must not be above"):
        validate_broker_configs(
            {"log.cleaner.max.compaction.lag.ms": "50"}, of_one_broker=True, current=strict
        )


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"log.retention.hours": 0}, "log.retention.hours"),
        ({"log.roll.ms": 0}, "log.roll.ms"),
        ({"default.replication.factor": 0}, "default.replication.factor"),
        ({"group.min.session.timeout.ms": 5, "group.max.session.timeout.ms": 4}, "group.min"),
        ({"group.consumer.session.timeout.ms": 70_000}, "group.consumer.session.timeout.ms"),
        ({"queued.max.request.bytes": 1000}, "queued.max.request.bytes"),
        ({"max.connections.per.ip.overrides": "here"}, "max.connections.per.ip.overrides"),
    ],
)
def test_values_that_do_not_go_together(settings: dict[str, Any], named: str) -> None:
    assert fault_between_settings(CURRENT) is None
    fault = fault_between_settings({**CURRENT, **settings})
    assert fault is not None and fault.startswith(named)


@pytest.mark.parametrize(
    ("settings", "good"),
    [
        ({"consumer.session.timeout.ms": "50000"}, True),
        ({"consumer.session.timeout.ms": "5"}, False),
        ({"consumer.session.timeout.ms": "70000"}, False),
        ({"consumer.heartbeat.interval.ms": "100"}, False),
        ({"consumer.assignment.interval.ms": "20000"}, False),
        ({"foo": "1"}, False),
        ({"share.auto.offset.reset": "by_duration:PT1H30M"}, True),
        ({"share.auto.offset.reset": "by_duration:P"}, False),
        ({"share.auto.offset.reset": "none"}, False),
        ({"share.isolation.level": "READ_COMMITTED"}, False),
        ({"share.record.lock.duration.ms": "14000"}, False),
        ({"share.record.lock.duration.ms": "20000"}, True),
        ({"share.delivery.count.limit": "11"}, False),
        ({"share.partition.max.record.locks": "5000"}, False),
        ({"streams.num.standby.replicas": "2"}, True),
        ({"streams.num.standby.replicas": "3"}, False),
        ({"share.renew.acknowledge.enable": "maybe"}, False),
        ({"headrace.share.release.backoff.ms": "60000"}, True),
        ({"headrace.share.release.backoff.ms": "60001"}, False),
        ({"headrace.share.release.backoff.ms": "-1"}, False),
        ({"headrace.share.release.backoff.ms": "3600001"}, False),
        ({"headrace.share.release.backoff.max.ms": "0"}, False),
        ({"headrace.share.release.backoff.max.ms": "86400001"}, False),
        (
            {
                "headrace.share.release.backoff.ms": "3600000",
                "headrace.share.release.backoff.max.ms": "86400000",
            },
            True,
        ),
    ],
)
def test_settings_of_a_group(settings: dict[str, str], good: bool) -> None:
    if good:
        validate_group_configs(settings, CURRENT)
    else:
        with pytest.raises(KafkaError) as refusal:
            validate_group_configs(settings, CURRENT)
        assert refusal.value.code == ErrorCode.INVALID_CONFIG


def test_a_group_must_live_longer_than_its_heartbeat() -> None:
    wide = {**CURRENT, "group.consumer.min.session.timeout.ms": 1}
    with pytest.raises(KafkaError, match="must be below"):
        validate_group_configs({"consumer.session.timeout.ms": "4000"}, wide)


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ({"metrics": "a.b,c", "interval.ms": "100", "match": "client_id=a.*"}, 0),
        ({"match": "client_id=a,client_source_port=5"}, 0),
        ({"metrics": ""}, 0),
        ({"interval.ms": "99"}, 42),
        ({"interval.ms": "3600001"}, 42),
        ({"interval.ms": "x"}, 40),
        ({"match": "foo=1"}, 40),
        ({"match": "client_id=["}, 40),
        ({"match": "bad"}, 40),
        ({"match": "client_software_name=a=b"}, 40),
        ({"foo": "1"}, 42),
    ],
)
def test_settings_of_client_metrics(settings: dict[str, str], code: int) -> None:
    found = ErrorCode.NONE
    try:
        validate_client_metrics_configs(settings)
    except KafkaError as refusal:
        found = refusal.code
    assert found == code


def test_bounds_for_single_addresses() -> None:
    assert connections_by_address(" 127.0.0.1:5, host:6 ") == {"127.0.0.1": 5, "host": 6}
    assert connections_by_address("::1:7") == {"::1": 7}
    assert connections_by_address("") == {}
    with pytest.raises(BadValue):
        connections_by_address("host:many")


def test_settings_of_listeners() -> None:
    assert not_supported_by_name("listener.name.internal.num.io.threads")
    assert not_supported_by_name("listener.name.internal.plain.sasl.jaas.config") is None
    assert not_supported_by_name("listener.name") is None
