"""DescribeConfigs 1-4, AlterConfigs 0-2, IncrementalAlterConfigs 0-1, ListConfigResources 0-1."""

from __future__ import annotations

from typing import Any

from headrace.node.metadata.config_definitions import BROKER_SETTINGS
from headrace.node.metadata.config_definitions.definition import ConfigType
from headrace.wire.protocol.messages import (
    alter_configs,
    describe_configs,
    incremental_alter_configs,
    list_config_resources,
)
from headrace.wire.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from headrace.wire.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.conformance.stage import Stage

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3


def describe(
    kind: int, name: str, keys: list[str] | None = None, *, more: bool = True
) -> DescribeConfigsRequest:
    return DescribeConfigsRequest([DescribeConfigsResource(kind, name, keys)], more, more)


def settings_of_a_topic(stage: Stage) -> None:
    stage.topic("settings", config={"retention.ms": "5555555", "cleanup.policy": "compact,delete"})
    for version in describe_configs.VERSIONS:

        def ask(line: str, request: DescribeConfigsRequest, version: int = version) -> None:
            stage.ask(f"v{version} {line}", describe_configs, version, request)

        ask("all", describe(TOPIC, "settings"))
        ask("all, in short", describe(TOPIC, "settings", more=False))
        ask("some", describe(TOPIC, "settings", ["retention.ms", "segment.bytes"]))
        ask("an unknown one", describe(TOPIC, "settings", ["no.such.setting"]))
        ask("an empty list", describe(TOPIC, "settings", []))
        ask("unknown topic", describe(TOPIC, "never-was"))
        ask("bad name", describe(TOPIC, "bad name"))
        ask("empty name", describe(TOPIC, ""))
        two = [
            DescribeConfigsResource(TOPIC, "settings", ["retention.ms"]),
            DescribeConfigsResource(BROKER, "1", ["log.retention.hours"]),
            DescribeConfigsResource(TOPIC, "never-was", None),
        ]
        ask("several", DescribeConfigsRequest(two))
        ask("nothing", DescribeConfigsRequest())


def settings_of_the_broker(stage: Stage) -> None:
    for version in describe_configs.VERSIONS:

        def ask(line: str, request: DescribeConfigsRequest, version: int = version) -> None:
            stage.ask(f"v{version} {line}", describe_configs, version, request)

        ask("all", describe(BROKER, "1"))
        some = ["log.retention.ms", "num.partitions", "log.dirs", "advertised.listeners", "node.id"]
        ask("some", describe(BROKER, "1", some))
        ask("of all brokers", describe(BROKER, ""))
        ask("another broker", describe(BROKER, "77"))
        ask("no number", describe(BROKER, "one"))
        ask("unknown kind", describe(99, "x"))
        ask("kind zero", describe(0, "x"))


def changes(stage: Stage) -> None:
    for version in incremental_alter_configs.VERSIONS:
        name = f"changes-v{version}"
        stage.topic(name)

        def ask(
            line: str,
            *changes: tuple[str, int, str | None],
            kind: int = TOPIC,
            of: str = name,
            dry: bool = False,
            version: int = version,
        ) -> None:
            configs = [AlterableConfig(*change) for change in changes]
            resource = AlterConfigsResource(kind, of, configs)
            request = IncrementalAlterConfigsRequest([resource], dry)
            line = f"v{version} {line}"
            stage.ask(line, incremental_alter_configs, version, request)

        ask("set", ("retention.ms", SET, "1000000"))
        ask("set two", ("retention.ms", SET, "2000000"), ("segment.ms", SET, "3000000"))
        ask("append", ("cleanup.policy", APPEND, "compact"))
        wait_for(stage, name, "cleanup.policy", "delete,compact")
        ask("append what is there", ("cleanup.policy", APPEND, "compact"))
        ask("subtract", ("cleanup.policy", SUBTRACT, "delete"))
        ask("subtract what is not there", ("cleanup.policy", SUBTRACT, "delete"))
        ask("delete", ("segment.ms", DELETE, None))
        ask("delete what is not set", ("segment.bytes", DELETE, None))
        ask("append to a number", ("retention.ms", APPEND, "5"))
        ask("set to null", ("retention.ms", SET, None))
        ask("append null", ("cleanup.policy", APPEND, None))
        ask("unknown setting", ("no.such.setting", SET, "1"))
        ask("delete an unknown setting", ("no.such.setting", DELETE, None))
        ask("bad value", ("retention.ms", SET, "many"))
        ask("out of range", ("segment.bytes", SET, "1"))
        # No unknown operation: Apache's controller meets a null pointer and steps down over it.
        ask("twice", ("retention.ms", SET, "1"), ("retention.ms", SET, "2"))
        ask("empty name", ("", SET, "1"))
        ask("nothing")
        ask("one good, one bad", ("segment.ms", SET, "7000000"), ("no.such", SET, "1"))
        ask("only validated", ("retention.ms", SET, "4000000"), dry=True)
        ask("only validated, bad", ("retention.ms", SET, "many"), dry=True)
        ask("unknown topic", ("retention.ms", SET, "1"), of="never-was")
        ask("bad topic name", ("retention.ms", SET, "1"), of="bad name")
        ask("empty topic name", ("retention.ms", SET, "1"), of="")
        ask("unknown kind", ("retention.ms", SET, "1"), kind=99)
        ask("kind zero", ("retention.ms", SET, "1"), kind=0)
        ask("last", ("flush.ms", SET, "123456"))
        wait_for(stage, name, "flush.ms", "123456")
        stage.ask(f"v{version} in the end", describe_configs, 4, describe(TOPIC, name))


def several_resources(stage: Stage) -> None:
    stage.topic("several-changes")
    one = AlterConfigsResource(TOPIC, "several-changes", [AlterableConfig("flush.ms", SET, "1")])
    bad = AlterConfigsResource(TOPIC, "never-was", [AlterableConfig("flush.ms", SET, "1")])
    for version in incremental_alter_configs.VERSIONS:
        for line, resources in {"one bad": [one, bad], "twice": [one, one], "none": []}.items():
            request = IncrementalAlterConfigsRequest(resources)
            stage.ask(f"v{version} {line}", incremental_alter_configs, version, request)


def changes_to_the_broker(stage: Stage) -> None:
    for version in incremental_alter_configs.VERSIONS:

        def ask(
            line: str, of: str, *changes: tuple[str, int, str | None], version: int = version
        ) -> None:
            resource = AlterConfigsResource(BROKER, of, [AlterableConfig(*one) for one in changes])
            request = IncrementalAlterConfigsRequest([resource])
            stage.ask(f"v{version} {line}", incremental_alter_configs, version, request)

        ask("one broker", "1", ("log.cleaner.backoff.ms", SET, "16000"))
        ask("all brokers", "", ("log.cleaner.backoff.ms", SET, "17000"))
        wait_for(stage, "1", "log.cleaner.backoff.ms", "16000", kind=BROKER)
        ask("a topic's default", "", ("log.retention.ms", SET, "9999999"))
        ask("read only", "1", ("log.dirs", SET, "/elsewhere"))
        ask("read only for all", "", ("node.id", SET, "5"))
        ask("bad value", "1", ("log.cleaner.backoff.ms", SET, "soon"))
        ask("unknown setting", "1", ("no.such.setting", SET, "1"))
        ask("another broker", "77", ("log.cleaner.backoff.ms", SET, "1"))
        ask("no number", "one", ("log.cleaner.backoff.ms", SET, "1"))
        wait_for(stage, "1", "log.retention.ms", "9999999", kind=BROKER)
        keys = ["log.cleaner.backoff.ms", "log.retention.ms"]
        request = describe(BROKER, "1", keys)
        stage.ask(f"v{version} described", describe_configs, 4, request)
        stage.ask(f"v{version} described for all", describe_configs, 4, describe(BROKER, "", keys))
        stage.topic(f"inherits-v{version}")
        inherited = describe(TOPIC, f"inherits-v{version}", ["retention.ms", "retention.bytes"])
        stage.ask(f"v{version} a topic inherits", describe_configs, 4, inherited)
        ask("undone for one", "1", ("log.cleaner.backoff.ms", DELETE, None))
        undone = [("log.cleaner.backoff.ms", DELETE, None), ("log.retention.ms", DELETE, None)]
        ask("undone for all", "", *undone)
        wait_for(stage, "1", "log.cleaner.backoff.ms", "15000", kind=BROKER)


def every_setting_of_the_broker(stage: Stage) -> None:
    """Which of them a client may change, for one broker and for all: validated, not stored."""
    samples = {
        ConfigType.BOOLEAN: "true",
        ConfigType.DOUBLE: "0.5",
        ConfigType.LIST: "a,b",
        ConfigType.STRING: "x",
        ConfigType.CLASS: "java.lang.String",
        ConfigType.PASSWORD: "secret",
    }
    for definition in BROKER_SETTINGS.values():
        if definition.name.startswith("headrace.") or definition.internal:
            continue
        for of in ("1", ""):
            for value in (definition.format(definition.default), samples.get(definition.type, "4")):
                change = AlterableConfig(definition.name, SET, value or "")
                resource = AlterConfigsResource(BROKER, of, [change])
                request = IncrementalAlterConfigsRequest([resource], True)
                answer: Any = stage.connection.ask(incremental_alter_configs, 1, request)
                line = f"{definition.name} for {of or 'all'}"
                told = stage.answers.setdefault(line, {})
                told[f"to {value or 'nothing'}"] = answer.responses[0].error_code


def whole_replacement(stage: Stage) -> None:
    """AlterConfigs sets what it names and takes everything else back to its default."""
    for version in alter_configs.VERSIONS:
        name = f"replaced-v{version}"
        stage.topic(name, config={"segment.ms": "1111111"})

        def ask(
            line: str,
            *settings: tuple[str, str | None],
            kind: int = TOPIC,
            of: str = name,
            dry: bool = False,
            version: int = version,
        ) -> None:
            configs = [alter_configs.AlterableConfig(*one) for one in settings]
            resource = alter_configs.AlterConfigsResource(kind, of, configs)
            request = alter_configs.AlterConfigsRequest([resource], dry)
            stage.ask(f"v{version} {line}", alter_configs, version, request)

        ask("set", ("retention.ms", "1000000"))
        wait_for(stage, name, "retention.ms", "1000000")
        ask("bad value", ("retention.ms", "many"))
        ask("unknown setting", ("no.such.setting", "1"))
        ask("null", ("retention.ms", None))
        ask("twice", ("retention.ms", "1"), ("retention.ms", "2"))
        ask("only validated", ("retention.ms", "4000000"), dry=True)
        ask("unknown topic", ("retention.ms", "1"), of="never-was")
        ask("unknown kind", ("retention.ms", "1"), kind=99)
        ask("broker", ("log.cleaner.backoff.ms", "16001"), kind=BROKER, of="1")
        ask("broker, read only", ("log.dirs", "/elsewhere"), kind=BROKER, of="1")
        ask("broker, nothing", kind=BROKER, of="1")
        stage.ask(f"v{version} then", describe_configs, 4, describe(TOPIC, name))
        ask("nothing left")
        wait_for(stage, name, "retention.ms", "604800000")
        stage.ask(f"v{version} in the end", describe_configs, 4, describe(TOPIC, name))


def resources_with_settings(stage: Stage) -> None:
    stage.topic("with-settings")
    for version in list_config_resources.VERSIONS:
        for kinds in ([], [GROUP], [BROKER], [99], [GROUP, METRICS]):
            request = list_config_resources.ListConfigResourcesRequest(kinds)
            line = f"v{version} {kinds}"
            stage.ask(line, list_config_resources, version, request)


def wait_for(stage: Stage, name: str, key: str, value: str, *, kind: int = TOPIC) -> None:
    """A broker learns of a change from its metadata log, a moment after the answer."""

    def is_so() -> bool:
        answer: Any = stage.connection.ask(describe_configs, 4, describe(kind, name, [key]))
        found = answer.results[0].configs
        return bool(found) and found[0].value == value

    stage.until(is_so)


STORIES = (
    settings_of_a_topic,
    settings_of_the_broker,
    changes,
    several_resources,
    changes_to_the_broker,
    every_setting_of_the_broker,
    whole_replacement,
    resources_with_settings,
)
