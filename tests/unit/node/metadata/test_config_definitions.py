"""The tables of settings against Kafka's own, and how text becomes a value."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace
from headrace.node.metadata.config_definitions import (
    BROKER_SETTINGS,
    CLIENT_METRICS_SETTINGS,
    GROUP_SETTINGS,
    KAFKA_BROKER_SETTINGS,
    REPLICATION_RATES,
    TOPIC_SETTINGS,
)
from headrace.node.metadata.config_definitions.definition import (
    BadValue,
    Change,
    ConfigType,
    Definition,
    Standing,
    java_double,
)
from headrace.node.metadata.config_definitions.headrace import DEFAULTS, OWN

TABLES = {
    "topic": TOPIC_SETTINGS,
    "broker": KAFKA_BROKER_SETTINGS,
    "group": GROUP_SETTINGS,
    "client-metrics": CLIENT_METRICS_SETTINGS,
}
EVERY_DEFINITION = [
    definition
    for table in (*TABLES.values(), BROKER_SETTINGS, REPLICATION_RATES)
    for definition in table.values()
]
CHANGES = {
    "restart": Change.RESTART,
    "per-broker": Change.PER_BROKER,
    "cluster-wide": Change.CLUSTER_WIDE,
}


class Fact(NamedTuple):
    kind: str
    name: str
    type: str
    default: str
    range: str
    change: str


def facts() -> list[Fact]:
    lines = (Path(__file__).parent / "kafka_4_3_settings.txt").read_text("utf-8").splitlines()
    return [Fact(*line.split(" ")) for line in lines if not line.startswith("#")]


# Of later versions of Kafka, under their names.
LATER = {"errors.deadletterqueue.topic.name"}  # KIP-1191


def test_every_setting_of_kafka_is_there_and_no_other() -> None:
    for kind, table in TABLES.items():
        kafkas = {name for name in table if not name.startswith("headrace.")} - LATER
        assert kafkas == {fact.name for fact in facts() if fact.kind == kind}


@pytest.mark.parametrize("kind", TABLES)
def test_types_and_defaults_are_kafkas(kind: str) -> None:
    for fact in facts():
        if fact.kind == kind:
            ours = TABLES[kind][fact.name]
            shown = ours.format(ours.default)
            default = "-" if shown is None else (shown or '""')
            assert (ours.type.name.lower(), default) == (fact.type, fact.default), fact.name


def test_what_can_change_while_a_broker_runs_is_kafkas() -> None:
    for fact in facts():
        ours = TABLES[fact.kind][fact.name]
        assert ours.internal == (fact.change == "internal"), fact.name
        if fact.change in CHANGES:
            assert ours.change is CHANGES[fact.change], fact.name


@pytest.mark.parametrize("kind", TABLES)
def test_ranges_are_kafkas(kind: str) -> None:
    for fact in facts():
        if fact.kind != kind or fact.range in ("-", "special"):
            continue
        ours = TABLES[kind][fact.name]
        for text, allowed in edges(fact):
            assert accepts(ours, text) is allowed, (fact.name, text)


def edges(fact: Fact) -> list[tuple[str, bool]]:
    """Values just inside and just outside of a range that Kafka states."""
    inside, _, extra = fact.range.partition("|")
    names = re.fullmatch(r"(any-case:)?\[(.*)\]", inside)
    assert names is not None
    parts = names[2].split(",")
    if "..." not in parts:
        return [(part, True) for part in parts] + [("no-such-value", False)]
    step: float = 0.001 if fact.type == "double" else 1
    number: type = float if fact.type == "double" else int
    found = [(parts[0], True), (str(number(parts[0]) - step), False)]
    if parts[-1] != "...":
        found += [(parts[-1], True), (str(number(parts[-1]) + step), False)]
    if extra:
        found.append((extra, True))
    return found


def accepts(definition: Definition, text: str) -> bool:
    try:
        definition.parse(text)
    except BadValue:
        return False
    return True


def test_our_defaults_differ_from_kafkas_where_it_is_said() -> None:
    own = {definition.name for definition in OWN}
    assert set(BROKER_SETTINGS) == set(KAFKA_BROKER_SETTINGS) | own
    for name, kafkas in KAFKA_BROKER_SETTINGS.items():
        differs = BROKER_SETTINGS[name].default != kafkas.default
        assert differs == (name in DEFAULTS), name


def test_a_node_of_one_can_create_its_internal_topics() -> None:
    for name, definition in BROKER_SETTINGS.items():
        if name.endswith(("replication.factor", "min.isr")):
            assert definition.default == 1, name


def test_a_default_is_a_value_that_can_be_written() -> None:
    for definition in EVERY_DEFINITION:
        text = definition.format(definition.default)
        if text is not None:
            assert definition.parse(text) == definition.default, definition.name


def test_documentation_is_one_or_two_plain_sentences() -> None:
    for definition in EVERY_DEFINITION:
        text = definition.documentation
        assert 20 <= len(text) <= 260 and text.endswith("."), definition.name
        assert "<" not in text.replace("<ISO", "") and "  " not in text, definition.name
        assert bool(definition.why) is (definition.standing is not Standing.HONOURED)


def test_what_is_called_honoured_is_read_by_somebody() -> None:
    """By its name, outside of the tables; or by way of the topics and groups that inherit it."""
    package = Path(headrace.__file__).parent
    tables = package / "metadata" / "config_definitions"
    code = "".join(
        path.read_text("utf-8")
        for path in package.rglob("*.py")
        if tables not in path.parents and path.name != "config_validation.py"
    )
    inherited = {
        synonym.name
        for table in (TOPIC_SETTINGS, GROUP_SETTINGS)
        for definition in table.values()
        for synonym in definition.synonyms
    }
    for table in (TOPIC_SETTINGS, BROKER_SETTINGS):
        for name, definition in table.items():
            if definition.standing is Standing.HONOURED and name not in inherited:
                assert f'"{name}"' in code, f"{name} is honoured by nobody"


def test_synonyms_are_settings_of_the_broker_with_the_same_default() -> None:
    for table in (TOPIC_SETTINGS, GROUP_SETTINGS):
        for definition in table.values():
            brokers = [KAFKA_BROKER_SETTINGS[synonym.name] for synonym in definition.synonyms]
            defaults = [
                kafkas.default * synonym.factor if synonym.factor != 1 else kafkas.default
                for kafkas, synonym in zip(brokers, definition.synonyms, strict=True)
                if kafkas.default is not None
            ]
            assert set(map(str, defaults)) <= {str(definition.default)}, definition.name


# ---- text and values


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("retention.ms", " 5 ", 5),
        ("retention.ms", "+7", 7),
        ("retention.ms", "9223372036854775807", 2**63 - 1),
        ("cleanup.policy", "delete, compact", ("delete", "compact")),
        ("cleanup.policy", "compact,compact", ("compact",)),
        ("cleanup.policy", "", ()),
        ("unclean.leader.election.enable", " TRUE", True),
        ("min.cleanable.dirty.ratio", "0.30", 0.3),
        ("min.cleanable.dirty.ratio", "1e-3", 0.001),
        ("compression.gzip.level", "-1", -1),
        ("leader.replication.throttled.replicas", "*", ("*",)),
        ("leader.replication.throttled.replicas", "0:1,1:2", ("0:1", "1:2")),
    ],
)
def test_text_that_kafka_reads(name: str, text: str, value: Any) -> None:
    assert TOPIC_SETTINGS[name].parse(text) == value


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("retention.ms", ""),
        ("retention.ms", "x"),
        ("retention.ms", "1.5"),
        ("retention.ms", "0x10"),
        ("retention.ms", "1_000"),
        ("retention.ms", "9223372036854775808"),
        ("max.message.bytes", "3000000000"),
        ("cleanup.policy", "delete,"),
        ("cleanup.policy", "none"),
        ("unclean.leader.election.enable", "yes"),
        ("min.cleanable.dirty.ratio", "abc"),
        ("min.cleanable.dirty.ratio", "NaN"),
        ("compression.gzip.level", "0"),
        ("compression.type", "none"),
        ("message.timestamp.type", "createtime"),
        ("leader.replication.throttled.replicas", "foo"),
    ],
)
def test_text_that_is_refused_in_one_sentence(name: str, text: str) -> None:
    with pytest.raises(BadValue, match=rf"^{re.escape(name)} .*\.$"):
        TOPIC_SETTINGS[name].parse(text)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.5, "0.5"),
        (0.0, "0.0"),
        (1.0, "1.0"),
        (0.001, "0.001"),
        (0.0005, "5.0E-4"),
        (1e7, "1.0E7"),
        (123456.75, "123456.75"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
    ],
)
def test_numbers_are_shown_as_java_shows_them(value: float, text: str) -> None:
    assert java_double(value) == text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_shown_numbers_are_the_same_numbers(value: float) -> None:
    assert float(java_double(value)) == value


def test_passwords_are_sensitive() -> None:
    sensitive = {name for name, found in BROKER_SETTINGS.items() if found.sensitive}
    assert "ssl.key.password" in sensitive and "delegation.token.secret.key" in sensitive
    assert all(BROKER_SETTINGS[name].type is ConfigType.PASSWORD for name in sensitive)
