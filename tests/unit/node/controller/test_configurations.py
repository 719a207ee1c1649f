"""Changes of settings: what each request answers and what it writes.

Codes were seen at Apache Kafka 4.3.1, asked with the same requests.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from headrace.node.controller.configurations import (
    Alteration,
    Alterations,
    Judge,
    Operation,
    Resource,
    alter_incrementally,
    changed,
    late,
    refused_by_this_broker,
    replace_all,
)
from headrace.node.controller.handlers import alter_configs as alter_handler
from headrace.node.controller.handlers import incremental_alter_configs as incremental_handler
from headrace.node.metadata.config_definitions.definition import BadValue
from headrace.node.metadata.image import BrokerImage, MetadataImage, TopicImage
from headrace.node.serving.api import Call, WaitingRequest
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from headrace.wire.protocol.messages import alter_configs, incremental_alter_configs
from tests.unit.node.consensus.quorum_of_one import QuorumOfOne

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = Operation
GIVEN = {"node.id": "1"}
NONE, INVALID_CONFIG, INVALID_REQUEST = 0, 40, 42


def image(configs: Mapping[tuple[int, str], Mapping[str, str]] | None = None) -> MetadataImage:
    topic = TopicImage("orders", bytes(16), ())
    return MetadataImage("cluster", topics={"orders": topic}, configs=configs or {})


def altered(
    resource: tuple[Any, ...], configs: Mapping[tuple[int, str], Mapping[str, str]] | None = None
) -> tuple[int, dict[str, str | None]]:
    """The code of one resource and the values that its records set."""
    kind, name, *alterations = resource
    wanted = Resource(kind, name, [Alteration(*alteration) for alteration in alterations])
    decided = alter_incrementally(image(configs), GIVEN, [wanted], validate_only=False)
    return answer_of(decided)


def answer_of(decided: Alterations) -> tuple[int, dict[str, str | None]]:
    (outcome,) = decided.outcomes
    assert (outcome.message is None) == (outcome.code == ErrorCode.NONE)
    assert outcome.code == ErrorCode.NONE or not decided.records
    return outcome.code, {record.name: record.value for record in decided.records}


@pytest.mark.parametrize(
    ("resource", "code"),
    [
        ((TOPIC, "orders", ("retention.ms", SET, "1000")), NONE),
        ((TOPIC, "orders"), NONE),
        ((TOPIC, "other", ("retention.ms", SET, "1000")), 3),
        ((TOPIC, "other"), 3),
        ((TOPIC, "other", ("retention.ms", SET, "x")), INVALID_CONFIG),
        ((TOPIC, "a/b", ("retention.ms", SET, "1000")), 17),
        ((TOPIC, "", ("retention.ms", SET, "1000")), INVALID_REQUEST),
        ((TOPIC, "orders", ("foo.bar", SET, "1")), INVALID_CONFIG),
        ((TOPIC, "orders", ("foo.bar", APPEND, "1")), INVALID_CONFIG),
        ((TOPIC, "orders", ("foo.bar", DELETE, None)), NONE),
        ((TOPIC, "orders", ("retention.ms", SET, None)), INVALID_REQUEST),
        ((TOPIC, "orders", ("cleanup.policy", APPEND, None)), INVALID_REQUEST),
        ((TOPIC, "orders", ("retention.ms", SET, "1"), ("retention.ms", SET, "2")), 42),
        ((TOPIC, "orders", ("retention.ms", SET, "1"), ("retention.ms", DELETE, None)), 42),
        ((TOPIC, "orders", ("retention.ms", APPEND, "1")), INVALID_CONFIG),
        ((TOPIC, "orders", ("retention.ms", SUBTRACT, "1")), INVALID_CONFIG),
        ((TOPIC, "orders", ("cleanup.policy", APPEND, "foo")), INVALID_CONFIG),
        ((TOPIC, "orders", ("remote.storage.enable", SET, "true")), INVALID_CONFIG),
        # Apache answers -1 to this one.
        ((TOPIC, "orders", ("retention.ms", 9, "1")), INVALID_REQUEST),
        ((BROKER, "1", ("log.retention.ms", 9, "1")), INVALID_REQUEST),
        ((BROKER, "1", ("log.retention.ms", SET, "7777")), NONE),
        ((BROKER, "01", ("log.retention.ms", SET, "7777")), NONE),
        ((BROKER, "", ("log.retention.ms", SET, "7777")), NONE),
        ((BROKER, "2", ("log.retention.ms", SET, "1")), INVALID_REQUEST),
        ((BROKER, "abc", ("log.retention.ms", SET, "1")), INVALID_REQUEST),
        ((BROKER, "-5", ("log.retention.ms", SET, "1")), INVALID_REQUEST),
        ((BROKER, "1", ("node.id", SET, "3")), INVALID_REQUEST),
        ((BROKER, "1", ("node.id", DELETE, None)), NONE),
        ((BROKER, "1", ("foo.bar", SET, "1")), NONE),
        ((BROKER, "1", ("foo", APPEND, "x")), INVALID_CONFIG),
        ((BROKER, "1", ("log.retention.ms", APPEND, "5")), INVALID_CONFIG),
        ((GROUP, "g", ("consumer.session.timeout.ms", SET, "50000")), NONE),
        ((GROUP, "g", ("consumer.session.timeout.ms", SET, "5")), INVALID_CONFIG),
        ((GROUP, "g", ("consumer.session.timeout.ms", APPEND, "5")), INVALID_CONFIG),
        ((GROUP, "g", ("foo", DELETE, None)), NONE),
        ((GROUP, "g", ("share.auto.offset.reset", SET, "earliest")), NONE),
        ((GROUP, "g", ("streams.num.standby.replicas", SET, "1")), NONE),
        ((GROUP, "g", ("streams.num.standby.replicas", SET, "3")), INVALID_CONFIG),
        ((GROUP, "g", ("share.auto.offset.reset", DELETE, None)), NONE),
        ((GROUP, "", ("consumer.session.timeout.ms", SET, "50000")), INVALID_REQUEST),
        ((METRICS, "m", ("interval.ms", SET, "100")), NONE),
        ((METRICS, "m", ("interval.ms", SET, "99")), INVALID_REQUEST),
        ((METRICS, "m", ("metrics", APPEND, "x")), INVALID_CONFIG),
        ((METRICS, "", ("interval.ms", SET, "100")), INVALID_REQUEST),
        ((LOGGER, "1", ("nope", SET, "INFO")), INVALID_CONFIG),
        ((LOGGER, "1", ("nope", DELETE, None)), INVALID_CONFIG),
        ((LOGGER, "1", ("root", DELETE, None)), INVALID_REQUEST),
        ((LOGGER, "1", ("root", APPEND, "INFO")), INVALID_REQUEST),
        ((LOGGER, "2", ("root", SET, "INFO")), INVALID_REQUEST),
        ((LOGGER, "", ("root", SET, "INFO")), INVALID_REQUEST),
        ((99, "x", ("a", SET, "1")), INVALID_REQUEST),
        ((0, "x", ("a", SET, "1")), INVALID_REQUEST),
        ((-1, "x", ("a", SET, "1")), INVALID_REQUEST),
    ],
)
def test_codes(resource: tuple[Any, ...], code: int) -> None:
    assert altered(resource)[0] == code


def test_lists_grow_and_shrink() -> None:
    own: dict[tuple[int, str], dict[str, str]] = {}

    def after(operation: Operation, value: str) -> str | None:
        code, written = altered((TOPIC, "orders", ("cleanup.policy", operation, value)), own)
        assert code == NONE
        if written:
            own[TOPIC, "orders"] = {"cleanup.policy": written["cleanup.policy"] or ""}
        return own.get((TOPIC, "orders"), {}).get("cleanup.policy")

    assert after(APPEND, "compact") == "delete,compact", "the default counts if nothing is set"
    assert after(APPEND, "compact,delete") == "delete,compact"
    assert after(SUBTRACT, "delete") == "compact"
    assert after(SUBTRACT, "delete") == "compact"
    assert after(SUBTRACT, "compact") == ""


def test_only_what_changes_is_written() -> None:
    own = {(TOPIC, "orders"): {"retention.ms": "5", "retention.bytes": "6"}}
    code, written = altered(
        (
            TOPIC,
            "orders",
            ("retention.ms", SET, "5"),
            ("retention.bytes", DELETE, None),
            ("flush.ms", DELETE, None),
            ("max.message.bytes", SET, "7"),
        ),
        own,
    )
    assert (code, written) == (NONE, {"retention.bytes": None, "max.message.bytes": "7"})


def test_a_brokers_setting_is_written_again_though_unchanged() -> None:
    own = {(BROKER, "1"): {"log.roll.ms": "5", "log.retention.ms": "6"}}
    assert altered((BROKER, "1", ("log.roll.ms", SET, "5")), own)[1] == {"log.roll.ms": "5"}


def test_a_brokers_settings_are_kept_under_its_id_however_it_is_written() -> None:
    wanted = Resource(BROKER, "01", [Alteration("log.roll.ms", SET, "5")])
    decided = alter_incrementally(image(), GIVEN, [wanted], validate_only=False)
    assert [record.resource_name for record in decided.records] == ["1"]
    assert decided.outcomes[0].name == "01", "the answer names it as the request did"


def test_what_is_there_already_must_fit_too() -> None:
    own = {(TOPIC, "orders"): {"min.compaction.lag.ms": "100"}}
    change = (TOPIC, "orders", ("max.compaction.lag.ms", SET, "50"))
    assert altered(change, own)[0] == INVALID_CONFIG
    assert altered(change)[0] == NONE


def test_a_resource_changes_whole_or_not_at_all_and_others_go_on() -> None:
    resources = [
        Resource(TOPIC, "orders", [Alteration("retention.ms", SET, "55")]),
        Resource(TOPIC, "nope", [Alteration("retention.ms", SET, "55")]),
        Resource(
            BROKER,
            "1",
            [Alteration("log.roll.ms", SET, "5"), Alteration("log.retention.ms", SET, "bad")],
        ),
    ]
    decided = alter_incrementally(image(), GIVEN, resources, validate_only=False)
    assert [outcome.code for outcome in decided.outcomes] == [NONE, 3, INVALID_REQUEST]
    assert [(record.name, record.value) for record in decided.records] == [("retention.ms", "55")]
    tried = alter_incrementally(image(), GIVEN, resources, validate_only=True)
    assert (tried.outcomes, tried.records) == (decided.outcomes, [])


@pytest.mark.parametrize("alter", [alter_incrementally, replace_all])
def test_a_resource_named_twice_is_refused_twice(alter: Any) -> None:
    resources = [
        Resource(TOPIC, "orders", [Alteration("retention.ms", SET, "1")]),
        Resource(TOPIC, "orders", [Alteration("retention.bytes", SET, "1")]),
        Resource(BROKER, "1", []),
    ]
    decided = alter(image(), GIVEN, resources, validate_only=False)
    assert [outcome.code for outcome in decided.outcomes] == [42, 42, 0]
    assert not decided.records


def test_the_minimum_of_replicas_when_all_brokers_share_it() -> None:
    """Eligible leader replicas (KIP-966) need one number for the cluster."""
    own = {(BROKER, ""): {"min.insync.replicas": "1"}}
    shared = MetadataImage("cluster", configs=own, features={"eligible.leader.replicas.version": 1})

    def code(name: str, operation: Operation, value: str | None) -> int:
        wanted = Resource(BROKER, name, [Alteration("min.insync.replicas", operation, value)])
        return answer_of(alter_incrementally(shared, GIVEN, [wanted], validate_only=False))[0]

    assert code("1", SET, "2") == INVALID_CONFIG
    assert code("1", DELETE, None) == INVALID_CONFIG
    assert code("", SET, "2") == NONE
    assert code("", DELETE, None) == INVALID_CONFIG
    everything = replace_all(
        shared,
        GIVEN,
        [Resource(BROKER, "", [Alteration("log.roll.ms", SET, "5")])],
        validate_only=False,
    )
    assert answer_of(everything)[0] == INVALID_CONFIG


# ---- the older request


def replaced(
    resource: tuple[Any, ...], configs: Mapping[tuple[int, str], Mapping[str, str]] | None = None
) -> tuple[int, dict[str, str | None]]:
    kind, name, *settings = resource
    wanted = Resource(kind, name, [Alteration(key, SET, value) for key, value in settings])
    return answer_of(replace_all(image(configs), GIVEN, [wanted], validate_only=False))


def test_what_is_not_named_is_deleted() -> None:
    own = {(TOPIC, "orders"): {"retention.ms": "5", "flush.ms": "6"}}
    assert replaced((TOPIC, "orders", ("retention.bytes", "100"), ("flush.ms", "6")), own) == (
        NONE,
        {"retention.ms": None, "retention.bytes": "100"},
    )
    assert replaced((TOPIC, "orders"), own)[1] == {"retention.ms": None, "flush.ms": None}


@pytest.mark.parametrize(
    ("resource", "code"),
    [
        ((TOPIC, "orders", ("retention.bytes", None)), INVALID_REQUEST),
        ((TOPIC, "orders", ("foo", "1")), INVALID_CONFIG),
        ((TOPIC, "orders", ("retention.ms", "x")), INVALID_CONFIG),
        ((TOPIC, "other", ("retention.ms", "1")), 3),
        ((TOPIC, "orders", ("retention.ms", "1"), ("retention.ms", "2")), INVALID_REQUEST),
        ((BROKER, "1", ("node.id", "1")), INVALID_REQUEST),
        ((BROKER, "1", ("foo", "1")), NONE),
        ((BROKER, "1", ("log.roll.ms", "x")), INVALID_REQUEST),
        ((GROUP, "g", ("consumer.session.timeout.ms", "46000")), NONE),
        ((LOGGER, "1", ("root", "INFO")), INVALID_REQUEST),
        ((99, "1", ("root", "INFO")), INVALID_REQUEST),
    ],
)
def test_codes_of_the_older_request(resource: tuple[Any, ...], code: int) -> None:
    assert replaced(resource)[0] == code


def test_too_much_at_once_is_refused_as_a_whole() -> None:
    many = [Alteration(f"setting.{number}", SET, "1") for number in range(10_001)]
    with pytest.raises(KafkaError) as refusal:
        alter_incrementally(image(), GIVEN, [Resource(BROKER, "1", many)], validate_only=False)
    assert refusal.value.code == ErrorCode.POLICY_VIOLATION


# ---- over the wire


def ask(quorum: QuorumOfOne, handler: Any, messages: Any, version: int, request: Any) -> Any:
    pieces: list[Any] = []
    messages.ENCODE_REQUEST[version](request, pieces.append)
    decoded, _ = messages.DECODE_REQUEST[version](memoryview(b"".join(pieces)), 0)
    call = Call(quorum.now, version, "test", None, 1)  # type: ignore[arg-type]
    answer = handler.API.handle(quorum.controller, decoded, call)
    if isinstance(answer, WaitingRequest):
        assert answer.attempt(False) is None, "nothing is answered before it is committed"
        quorum.flush()
        answer = answer.attempt(False)
    pieces = []
    messages.ENCODE_RESPONSE[version](answer, pieces.append)
    response, _ = messages.DECODE_RESPONSE[version](memoryview(b"".join(pieces)), 0)
    return [
        (r.error_code, r.resource_type, r.resource_name, bool(r.error_message))
        for r in response.responses
    ]


@pytest.mark.parametrize("version", incremental_alter_configs.VERSIONS)
def test_incremental_alter_configs(tmp_path: Path, version: int) -> None:
    quorum = QuorumOfOne(tmp_path)
    quorum.create("orders")
    resources = [
        incremental_alter_configs.AlterConfigsResource(
            TOPIC,
            "orders",
            [incremental_alter_configs.AlterableConfig("retention.ms", SET, "7")],
        ),
        incremental_alter_configs.AlterConfigsResource(TOPIC, "other", []),
    ]
    request = incremental_alter_configs.IncrementalAlterConfigsRequest(resources)
    answered = ask(quorum, incremental_handler, incremental_alter_configs, version, request)
    assert answered == [(0, TOPIC, "orders", False), (3, TOPIC, "other", True)]
    assert quorum.controller.committed_image.config(TOPIC, "orders") == {"retention.ms": "7"}


@pytest.mark.parametrize("version", alter_configs.VERSIONS)
def test_alter_configs(tmp_path: Path, version: int) -> None:
    quorum = QuorumOfOne(tmp_path)
    quorum.create("orders", retention_ms="5")
    settings = [alter_configs.AlterableConfig("flush.ms", "7")]
    resource = alter_configs.AlterConfigsResource(TOPIC, "orders", settings)
    request = alter_configs.AlterConfigsRequest([resource])
    answered = ask(quorum, alter_handler, alter_configs, version, request)
    assert answered == [(0, TOPIC, "orders", False)]
    assert quorum.controller.committed_image.config(TOPIC, "orders") == {"flush.ms": "7"}
    only_tried = alter_configs.AlterConfigsRequest(
        [alter_configs.AlterConfigsResource(TOPIC, "orders", [])], validate_only=True
    )
    ask(quorum, alter_handler, alter_configs, version, only_tried)
    assert quorum.controller.committed_image.config(TOPIC, "orders") == {"flush.ms": "7"}


def test_a_request_whose_time_is_up_says_so_only_of_what_is_open() -> None:
    resources = [Resource(TOPIC, "orders", []), Resource(TOPIC, "nope", [])]
    decided = alter_incrementally(image(), GIVEN, resources, validate_only=False)
    assert [outcome.code for outcome in late(decided.outcomes)] == [
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]


def of_three_brokers() -> MetadataImage:
    brokers = {
        number: BrokerImage(number, 1, bytes(16), (), {}, None, False, False, ())
        for number in (1, 2, 3)
    }
    return MetadataImage("cluster", brokers=brokers)


def test_the_controller_changes_settings_of_any_broker_that_is_registered() -> None:
    asked_to_judge = []

    def judge(name: str, settings: Any) -> None:
        asked_to_judge.append(name)

    for name, code in (("1", NONE), ("3", NONE), ("4", INVALID_REQUEST)):
        wanted = Resource(BROKER, name, [Alteration("log.cleaner.backoff.ms", SET, "16000")])
        decided = alter_incrementally(
            of_three_brokers(),
            GIVEN,
            [wanted],
            validate_only=False,
            require_usable=partial(judge, name),
        )
        assert [outcome.code for outcome in decided.outcomes] == [code]
        assert [record.resource_name for record in decided.records] == ([name] if not code else [])
    assert asked_to_judge == ["1"], "what another was started with is not known here"


@pytest.mark.parametrize(
    ("cordoned", "code"),
    [("*", NONE), ("/one", NONE), ("/one,/two/", NONE), ("", NONE), ("/one,/tow", INVALID_REQUEST)],
)
def test_only_data_folders_of_the_broker_can_be_cordoned(cordoned: str, code: int) -> None:
    given = {**GIVEN, "log.dirs": "/one/,/two"}
    cordon = Resource(BROKER, "1", [Alteration("cordoned.log.dirs", SET, cordoned)])
    image = of_three_brokers()
    [outcome] = alter_incrementally(image, given, [cordon], validate_only=True).outcomes
    assert outcome.code == code
    if code:
        assert "/tow, which is not in log.dirs (/one, /two)" in (outcome.message or "")


def test_the_broker_that_is_asked_judges_its_own_settings_before_they_are_handed_on() -> None:
    def refuse_all_of_them(settings: Mapping[str, str]) -> None:
        raise BadValue("the certificate cannot be read")

    def refused(*names: str, usable: bool = True) -> list[int] | None:
        resources = [
            Resource(BROKER, name, [Alteration("log.cleaner.backoff.ms", SET, "16000")])
            for name in names
        ]
        judge = Judge(lambda _: None, (lambda _: None) if usable else refuse_all_of_them)
        found = refused_by_this_broker(of_three_brokers(), GIVEN, resources, changed, judge)
        return None if found is None else [outcome.code for outcome in found]

    assert refused("") is None and refused("1") is None
    assert refused("2") == [INVALID_REQUEST], "that broker knows what it was started with"
    assert refused("two") == [INVALID_REQUEST]
    assert refused("1", usable=False) == [INVALID_REQUEST]
    assert refused("", "3") == [INVALID_REQUEST] * 2, "handed on whole or not at all"
