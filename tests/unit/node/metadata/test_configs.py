"""Which value of a setting holds."""

from __future__ import annotations

from headrace.node.metadata.config_definitions import BROKER_SETTINGS, TOPIC_SETTINGS
from headrace.node.metadata.config_definitions.definition import Standing
from headrace.node.metadata.configs import (
    ALL_BROKERS,
    Configs,
    ResourceType,
    Source,
    broker_values,
    describe_topic,
    group_values,
    log_settings,
    node_id_of,
    topic_defaults,
    topic_values,
)
from headrace.node.storage.log_settings import LogSettings

TOPIC = (int(ResourceType.TOPIC), "orders")
THIS_BROKER = (int(ResourceType.BROKER), "7")
OTHER_BROKER = (int(ResourceType.BROKER), "8")
EVERY_BROKER = (int(ResourceType.BROKER), ALL_BROKERS)
STARTED_WITH = {"node.id": "7", "log.retention.ms": "4000"}


def retention(configs: Configs, started_with: dict[str, str] = STARTED_WITH) -> int:
    value: int = topic_values(started_with, configs, "orders")["retention.ms"]
    return value


def test_the_nearest_setting_counts() -> None:
    configs: dict[tuple[int, str], dict[str, str]] = {
        TOPIC: {"retention.ms": "1000"},
        THIS_BROKER: {"log.retention.ms": "2000"},
        EVERY_BROKER: {"log.retention.ms": "3000"},
        OTHER_BROKER: {"log.retention.ms": "9999"},
    }
    assert retention(configs) == 1000
    del configs[TOPIC]
    assert retention(configs) == 2000
    del configs[THIS_BROKER]
    assert retention(configs) == 3000
    del configs[EVERY_BROKER]
    assert retention(configs) == 4000
    assert retention({}, {}) == TOPIC_SETTINGS["retention.ms"].default


def test_a_file_may_say_it_in_hours_or_minutes() -> None:
    assert retention({}, {"log.retention.hours": "72"}) == 72 * 3_600_000
    both = {"log.retention.hours": "72", "log.retention.minutes": "5"}
    assert retention({}, both) == 5 * 60_000
    assert retention({}, {**both, "log.retention.ms": "1"}) == 1
    assert topic_values({"log.roll.hours": "2"}, {}, "t")["segment.ms"] == 2 * 3_600_000
    flushed = topic_values({"log.flush.scheduler.interval.ms": "50"}, {}, "t")
    assert flushed["flush.ms"] == 50


def test_what_was_set_while_running_is_better_than_a_finer_unit_in_the_file() -> None:
    configs = {THIS_BROKER: {"log.retention.ms": "2000"}}
    assert retention(configs, {"node.id": "7", "log.retention.minutes": "5"}) == 2000


def test_any_negative_retention_in_a_file_is_for_ever() -> None:
    assert retention({}, {"log.retention.hours": "-1"}) == -1
    assert retention({}, {"log.retention.ms": "-5"}) == -1


def test_what_cannot_be_read_is_passed_over() -> None:
    configs = {
        TOPIC: {"retention.ms": "soon", "future.setting": "1"},
        THIS_BROKER: {"log.retention.ms": "also later"},
    }
    assert retention(configs) == 4000
    assert "future.setting" not in topic_values(STARTED_WITH, configs, "orders")


def test_small_segments_for_tests() -> None:
    configs = {TOPIC: {"segment.bytes": "2097152", "internal.segment.bytes": "100"}}
    assert topic_values({}, configs, "orders")["segment.bytes"] == 100


def test_defaults_can_be_worked_out_once_for_many_topics() -> None:
    configs = {TOPIC: {"cleanup.policy": "compact"}, EVERY_BROKER: {"message.max.bytes": "99"}}
    defaults = topic_defaults(STARTED_WITH, configs)
    for topic in ("orders", "others"):
        assert topic_values(STARTED_WITH, configs, topic, defaults) == topic_values(
            STARTED_WITH, configs, topic
        )
    assert defaults["cleanup.policy"] == ("delete",), "the defaults are not changed by a topic"


def test_a_log_gets_its_settings() -> None:
    untouched = LogSettings(**log_settings(topic_values({}, {}, "t"), broker_values({}, {})))
    assert untouched == LogSettings()
    configs = {TOPIC: {"cleanup.policy": "compact,delete", "max.message.bytes": "5"}}
    started_with = {"producer.id.expiration.ms": "123"}
    settings = LogSettings(
        **log_settings(
            topic_values(started_with, configs, "orders"), broker_values(started_with, configs)
        )
    )
    assert settings.cleanup_policy == {"compact", "delete"}
    assert (settings.max_message_bytes, settings.producer_id_expiration_ms) == (5, 123)


def test_what_is_honoured_of_a_topics_settings_reaches_its_logs() -> None:
    values, broker = topic_defaults({}, {}), broker_values({}, {})
    before = log_settings(values, broker)
    for name, definition in TOPIC_SETTINGS.items():
        for_logs = definition.standing is Standing.HONOURED and not definition.internal
        # What leaders ask for, and what replicas are throttled by, is not the logs' own.
        if for_logs and name != "min.insync.replicas" and "throttled" not in name:
            assert log_settings({**values, name: ("x",)}, broker) != before, name


def test_brokers_values_are_complete_and_typed() -> None:
    configs = {THIS_BROKER: {"max.connections": "5"}, EVERY_BROKER: {"num.io.threads": "9"}}
    values = broker_values(STARTED_WITH, configs)
    assert set(values) == set(BROKER_SETTINGS)
    assert (values["node.id"], values["max.connections"], values["num.io.threads"]) == (7, 5, 9)
    assert values["headrace.durability"] == "page-cache"
    assert (node_id_of(STARTED_WITH), node_id_of({})) == (7, 1)


def test_a_group_inherits_from_the_broker() -> None:
    configs = {(int(ResourceType.GROUP), "g"): {"consumer.session.timeout.ms": "50000"}}
    started_with = {"group.consumer.heartbeat.interval.ms": "6000"}
    values = group_values(started_with, configs, "g")
    assert values["consumer.session.timeout.ms"] == 50_000
    assert values["consumer.heartbeat.interval.ms"] == 6_000
    assert values["share.auto.offset.reset"] == "latest"


def test_a_new_topic_is_told_its_settings_with_their_sources() -> None:
    configs = {
        THIS_BROKER: {"log.roll.ms": "5"},
        EVERY_BROKER: {"min.insync.replicas": "1"},
    }
    started_with = {"node.id": "7", "log.retention.hours": "72"}
    told = list(describe_topic(started_with, configs, {"max.message.bytes": "10"}))
    assert [setting.name for setting in told] == sorted(
        name for name, definition in TOPIC_SETTINGS.items() if not definition.internal
    )
    by_name = {setting.name: (setting.value, setting.source) for setting in told}
    assert by_name["max.message.bytes"] == ("10", Source.TOPIC)
    assert by_name["segment.ms"] == ("5", Source.BROKER)
    assert by_name["min.insync.replicas"] == ("1", Source.ALL_BROKERS)
    assert by_name["retention.ms"] == ("259200000", Source.FILE)
    assert by_name["flush.ms"] == ("9223372036854775807", Source.DEFAULT)
