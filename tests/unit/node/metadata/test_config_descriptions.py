"""Settings as clients see them; what is expected was seen at Apache Kafka 4.3.1."""

from __future__ import annotations

from typing import Any

from headrace.node.metadata import config_descriptions as described
from headrace.node.metadata.config_definitions import BROKER_SETTINGS, TOPIC_SETTINGS
from headrace.node.metadata.config_definitions.definition import Change, ConfigType
from headrace.node.metadata.config_descriptions import ConfigSynonym, Description
from headrace.node.metadata.configs import ALL_BROKERS, Configs, ResourceType, Source

TOPIC = (int(ResourceType.TOPIC), "orders")
THIS_BROKER = (int(ResourceType.BROKER), "1")
EVERY_BROKER = (int(ResourceType.BROKER), ALL_BROKERS)
STARTED_WITH = {"node.id": "1", "broker.id": "1", "log.retention.hours": "72"}


def everything(name: str) -> bool:
    return True


def only(descriptions: list[Description]) -> Description:
    (found,) = descriptions
    return found


def topic(name: str, configs: Configs, started_with: dict[str, str] = STARTED_WITH) -> Description:
    return only(described.of_topic(started_with, configs, "orders", name.__eq__))


def broker(name: str, configs: Configs, started_with: dict[str, str] = STARTED_WITH) -> Description:
    return only(described.of_broker(started_with, configs, name.__eq__))


def synonyms(found: Description) -> list[tuple[Any, ...]]:
    return [tuple(place) for place in found.synonyms]


def test_a_topics_own_value_comes_before_the_brokers() -> None:
    found = topic("cleanup.policy", {TOPIC: {"cleanup.policy": "delete, compact"}})
    assert (found.value, found.source, found.type) == ("delete,compact", 1, ConfigType.LIST)
    assert synonyms(found) == [
        ("cleanup.policy", "delete,compact", 1),
        ("log.cleanup.policy", "delete", 5),
    ]
    assert not found.read_only and not found.sensitive


def test_a_second_choice_of_the_broker_is_shown_as_a_default() -> None:
    found = topic("retention.ms", {})
    assert (found.value, found.source, synonyms(found)) == ("259200000", Source.DEFAULT, [])


def test_all_places_of_a_topics_value() -> None:
    configs = {
        THIS_BROKER: {"log.retention.ms": "7777"},
        EVERY_BROKER: {"log.retention.ms": "8888"},
    }
    found = topic("retention.ms", configs)
    assert (found.value, found.source) == ("7777", Source.BROKER)
    assert synonyms(found) == [
        ("log.retention.ms", "7777", 2),
        ("log.retention.ms", "8888", 3),
        ("log.retention.hours", "72", 4),
        ("log.retention.hours", "168", 5),
    ]


def test_a_topic_shows_all_but_internal_settings_unless_set() -> None:
    shown = {found.name for found in described.of_topic({}, {}, "orders", everything)}
    own = {"headrace.validate.records", "headrace.skip.damaged"}
    assert shown == set(TOPIC_SETTINGS) - {"internal.segment.bytes", *own}
    assert (
        topic("internal.segment.bytes", {TOPIC: {"internal.segment.bytes": "100"}}).value == "100"
    )


def test_everything_but_a_brokers_fixed_settings_can_be_changed() -> None:
    """Also where a topic's setting has the name of a broker's."""
    topics = described.of_topic({}, {}, "orders", everything)
    groups = described.of_group({}, {}, "g", everything)
    assert not any(found.read_only for found in (*topics, *groups))
    brokers = described.of_broker({}, {}, everything)
    assert {found.name for found in brokers if not found.read_only} == {
        name
        for name, definition in BROKER_SETTINGS.items()
        if definition.change is not Change.RESTART
    }


def test_a_brokers_settings() -> None:
    found = broker("log.retention.hours", {})
    assert (found.value, found.source, found.read_only) == ("72", Source.FILE, True)
    assert synonyms(found) == [("log.retention.hours", "72", 4), ("log.retention.hours", "168", 5)]
    unset = broker("log.retention.ms", {})
    assert (unset.value, unset.source, unset.read_only, synonyms(unset)) == (None, 5, False, [])
    live = broker("log.roll.ms", {THIS_BROKER: {"log.roll.ms": "99"}})
    assert (live.value, live.source) == ("99", Source.BROKER)
    assert synonyms(live) == [("log.roll.ms", "99", 2), ("log.roll.hours", "168", 5)]
    assert broker("node.id", {}).source is Source.FILE


def test_a_broker_shows_what_it_was_given_and_never_what_it_cannot_judge() -> None:
    secret = broker("ssl.key.password", {}, {"ssl.key.password": "secret"})
    assert (secret.value, secret.sensitive, secret.source) == (None, True, Source.FILE)
    assert synonyms(secret) == [("ssl.key.password", None, 4)]
    unknown = broker("unknown.thing", {}, {"unknown.thing": "5"})
    assert unknown == Description(
        name="unknown.thing",
        value=None,
        source=Source.FILE,
        read_only=True,
        sensitive=True,
        type=ConfigType.UNKNOWN,
        documentation=None,
        synonyms=[ConfigSynonym("unknown.thing", None, Source.FILE)],
    )


def test_a_broker_shows_everything_but_internal_settings() -> None:
    shown = {found.name for found in described.of_broker({}, {}, everything)}
    assert shown == {name for name, found in BROKER_SETTINGS.items() if not found.internal}


def test_settings_of_all_brokers_are_only_those() -> None:
    configs = {
        EVERY_BROKER: {"log.retention.ms": "8888", "foo.bar": "1", "ssl.key.password": "x"},
        THIS_BROKER: {"log.roll.ms": "1"},
    }
    retention, unknown, secret = described.of_all_brokers(configs, everything)
    assert (retention.value, synonyms(retention)) == ("8888", [("log.retention.ms", "8888", 3)])
    assert (unknown.name, unknown.value, unknown.read_only) == ("foo.bar", None, True)
    assert (secret.value, secret.sensitive, synonyms(secret)) == (
        None,
        True,
        [("ssl.key.password", None, 3)],
    )


def test_a_groups_settings() -> None:
    configs = {(int(ResourceType.GROUP), "g"): {"consumer.session.timeout.ms": "46000"}}
    shown = {f.name: f for f in described.of_group(STARTED_WITH, configs, "g", everything)}
    session = shown["consumer.session.timeout.ms"]
    assert (session.value, session.source) == ("46000", Source.GROUP)
    assert synonyms(session) == [
        ("consumer.session.timeout.ms", "46000", 8),
        ("group.consumer.session.timeout.ms", "45000", 5),
    ]
    alone = shown["share.auto.offset.reset"]
    assert synonyms(alone) == [("share.auto.offset.reset", "latest", 5)]
    assert len(shown) == 20


def test_client_metrics() -> None:
    configs = {(int(ResourceType.CLIENT_METRICS), "m"): {"interval.ms": "1000"}}
    shown = {f.name: f for f in described.of_client_metrics(configs, "m", everything)}
    assert set(shown) == {"metrics", "interval.ms", "match"}
    assert synonyms(shown["interval.ms"]) == [("interval.ms", "1000", 7)]
    assert (shown["metrics"].value, synonyms(shown["metrics"])) == ("", [])


def test_secrets_of_single_listeners_and_mechanisms_are_not_shown() -> None:
    secret = 'PlainLoginModule required user_alice="wonder";'
    names = (
        "sasl.jaas.config",
        "plain.sasl.jaas.config",
        "listener.name.out.plain.sasl.jaas.config",
        "listener.name.out.ssl.keystore.key",
        "listener.name.out.ssl.key.password",
    )
    given = dict.fromkeys(names, secret) | {"listener.name.out.ssl.client.auth": "required"}
    for name in names:
        found = broker(name, {}, given)
        assert found.sensitive and found.value is None, name
        assert all(place.value is None for place in found.synonyms), name
    assert broker("listener.name.out.ssl.client.auth", {}, given).value == "required"
