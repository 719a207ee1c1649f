"""AlterClientQuotas 0-1, DescribeClientQuotas 0-1; who is above a quota waits as long as there."""

from __future__ import annotations

from typing import Any

from headrace.wire.protocol.messages import (
    alter_client_quotas,
    create_topics,
    describe_client_quotas,
    produce,
)
from headrace.wire.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    OpData,
    RequestEntryData,
)
from headrace.wire.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
)
from tests.conformance.batches import R, build
from tests.conformance.stage import Stage
from tests.conformance.stories.asking import produce_request

PRODUCE, CONSUME = "producer_byte_rate", "consumer_byte_rate"
TIME, CHANGES, CONNECTIONS = (
    "request_percentage",
    "controller_mutation_rate",
    "connection_creation_rate",
)
EXACT, DEFAULT, ANY = 0, 1, 2

Parts = list[tuple[str, str | None]]


def entry(parts: Parts, **limits: float | None) -> RequestEntryData:
    ops = [OpData(key, 0.0 if v is None else v, v is None) for key, v in limits.items()]
    return RequestEntryData([EntityData(*part) for part in parts], ops)


def altered(*entries: RequestEntryData, validate_only: bool = False) -> AlterClientQuotasRequest:
    return AlterClientQuotasRequest(list(entries), validate_only)


def described(*parts: tuple[str, int, str | None], strict: bool = False) -> Any:
    return DescribeClientQuotasRequest([ComponentData(*part) for part in parts], strict)


def wait_for(stage: Stage, request: Any, limits: set[tuple[str, float]]) -> None:
    """A broker of Apache Kafka learns of a change a moment after its controller has answered."""

    def is_known() -> bool:
        found: Any = stage.connection.ask(describe_client_quotas, 1, request)
        return {(v.key, v.value) for entry in found.entries for v in entry.values} == limits

    stage.until(is_known)


def limits_are_set_found_and_removed(stage: Stage) -> None:
    for version in alter_client_quotas.VERSIONS:
        ann: Parts = [("user", f"ann-{version}")]
        web: Parts = [("client-id", f"web-{version}")]

        def alter(
            line: str, *entries: RequestEntryData, version: int = version, **how: bool
        ) -> None:
            stage.ask(f"v{version} {line}", alter_client_quotas, version, altered(*entries, **how))

        def describe(
            line: str,
            *parts: Any,
            version: int = version,
            strict: bool = False,
            limits: dict[str, float] | None = None,
        ) -> None:
            request = described(*parts, strict=strict)
            wait_for(stage, request, set((limits or {}).items()))
            stage.ask(f"v{version} {line}", describe_client_quotas, version, request)

        name = (EXACT, f"ann-{version}")
        alter("set a user", entry(ann, **{PRODUCE: 1024.0}))
        describe("a user", ("user", *name), limits={PRODUCE: 1024.0})
        alter("another limit", entry(ann, **{PRODUCE: None, CONSUME: 2048.0}))
        describe("what is left", ("user", *name), limits={CONSUME: 2048.0})
        alter("a user's client", entry([*ann, *web], **{TIME: 12.5}))
        # Of several entities the order is that of a hash table, so they are not compared.
        wait_for(stage, described(("user", *name)), {(CONSUME, 2048.0), (TIME, 12.5)})
        describe("strictly", ("user", *name), strict=True, limits={CONSUME: 2048.0})
        describe("with a client", ("user", *name), ("client-id", ANY, None), limits={TIME: 12.5})
        alter("a dry run", entry(ann, **{PRODUCE: 5.0}), validate_only=True)
        describe("unchanged", ("user", *name), strict=True, limits={CONSUME: 2048.0})
        alter("an address", entry([("ip", "10.1.2.3")], **{CONNECTIONS: 7.0}))
        describe("addresses", ("ip", ANY, None), limits={CONNECTIONS: 7.0})
        alter("removed", entry([("ip", "10.1.2.3")], **{CONNECTIONS: None}))
        alter("removed again", entry([("ip", "10.1.2.3")], **{CONNECTIONS: None}))
        describe("no addresses", ("ip", ANY, None))
        alter("set the default", entry([("user", None)], **{CHANGES: 1000.5}))
        describe("the default", ("user", DEFAULT, None), limits={CHANGES: 1000.5})
        alter("no default", entry([("user", None)], **{CHANGES: None}))
        alter("one of two", entry(ann, **{CONSUME: None}))
        alter("the other", entry([*ann, *web], **{TIME: None}))
        describe("nothing", ("user", *name))
        alter("nothing to do", entry(ann))
        alter("nobody")


def limits_that_make_no_sense(stage: Stage) -> None:
    version = alter_client_quotas.VERSIONS[-1]
    user: Parts = [("user", "nonsense")]
    for line, wrong in {
        "no entity": entry([], **{PRODUCE: 1.0}),
        "unknown type": entry([("group", "x")], **{PRODUCE: 1.0}),
        "empty name": entry([("user", "")], **{PRODUCE: 1.0}),
        "user and address": entry([*user, ("ip", "10.0.0.1")], **{PRODUCE: 1.0}),
        "unknown limit": entry(user, speed=1.0),
        "of addresses": entry(user, **{CONNECTIONS: 1.0}),
        "of users": entry([("ip", "10.0.0.1")], **{PRODUCE: 1.0}),
        "zero": entry(user, **{PRODUCE: 0.0}),
        "negative": entry(user, **{TIME: -1.0}),
        "a fraction": entry(user, **{PRODUCE: 1.5}),
        "a fraction of connections": entry([("ip", "10.0.0.1")], **{CONNECTIONS: 1.5}),
        "too large": entry(user, **{PRODUCE: 1e30}),
        "too many connections": entry([("ip", "10.0.0.1")], **{CONNECTIONS: 2.0**31}),
    }.items():
        stage.ask(line, alter_client_quotas, version, altered(wrong))
    filters: dict[str, list[tuple[str, int, str | None]]] = {
        "empty type": [("", EXACT, "x")],
        "twice": [("user", EXACT, "x"), ("user", ANY, None)],
        "unknown": [("group", EXACT, "x")],
        "unknown match": [("user", 3, None)],
        "exact without a name": [("user", EXACT, None)],
        "default with a name": [("user", DEFAULT, "x")],
        "any with a name": [("user", ANY, "x")],
        "address and user": [("ip", ANY, None), ("user", ANY, None)],
    }
    for line, parts in filters.items():
        stage.ask(f"filter: {line}", describe_client_quotas, 1, described(*parts))


def changes_beyond_a_quota(stage: Stage) -> None:
    """How long to wait is left out: it depends on the moment. The codes are compared."""
    stage.publish()  # makes its topic before that is limited
    everybody: Parts = [("user", None)]
    stage.ask("set", alter_client_quotas, 1, altered(entry(everybody, **{CHANGES: 0.01})))
    wait_for(stage, described(("user", DEFAULT, None)), {(CHANGES, 0.01)})
    stage.publish()
    try:
        for number in range(3):
            topic = create_topics.CreatableTopic(f"limited-{number}", 3, 1)
            request = create_topics.CreateTopicsRequest([topic], 5_000)
            answer: Any = stage.connection.ask(create_topics, 7, request)
            waits = answer.throttle_time_ms > 0
            stage.keep(f"topic {number}", [waits, *(found.error_code for found in answer.topics)])
            stage.drop()  # a connection that has to wait is not read
    finally:
        stage.ask("removed", alter_client_quotas, 1, altered(entry(everybody, **{CHANGES: None})))
        stage.publish()


def a_producer_above_its_quota(stage: Stage) -> None:
    """Told to wait for the same time to the millisecond: both measure over ten seconds."""
    topic = stage.topic("above-a-quota")
    everybody: Parts = [("user", None)]
    batch = build(R(b"x" * 30_000))
    stage.ask("set", alter_client_quotas, 1, altered(entry(everybody, **{PRODUCE: 1000.0})))
    wait_for(stage, described(("user", DEFAULT, None)), {(PRODUCE, 1000.0)})
    stage.publish()
    try:
        for version in (9, 12):
            answer: Any = stage.connection.ask(
                produce, version, produce_request(version, topic, batch)
            )
            stage.keep(
                f"v{version} is taken", answer.responses[0].partition_responses[0].error_code
            )
            if version == 9:  # later ones depend on how long ago it was
                stage.keep("wait", answer.throttle_time_ms)
            else:
                stage.keep("a longer wait", answer.throttle_time_ms > 30_000)
            stage.drop()
    finally:
        stage.ask("removed", alter_client_quotas, 1, altered(entry(everybody, **{PRODUCE: None})))
        stage.publish()


STORIES = (
    limits_are_set_found_and_removed,
    limits_that_make_no_sense,
    changes_beyond_a_quota,
    a_producer_above_its_quota,
)
