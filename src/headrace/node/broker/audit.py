"""Writes the audit to the log and, if configured, to the topic `headrace.audit`.

`headrace.audit=log` writes each line to the logger `headrace.audit`; `topic` does so and appends
the line to the topic, which is created with the first line; `auto`, the default, is `log` where the
node authenticates clients, so that a node on a laptop logs nothing. Lines for a topic that is not
there yet, or whose disk refuses, wait up to a bound and are then dropped and counted. `AUDITED`
names the noted fields of each admin request: names and errors, no value of any setting.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Any

from headrace.environment import Now
from headrace.node.broker.broker import Broker
from headrace.node.serving.audit_lines import Auditor, Details, error_name
from headrace.wire.protocol.acls import Operation, Permission, ResourceType
from headrace.wire.protocol.errors import KafkaError
from headrace.wire.protocol.record_batch import Record, build

log = logging.getLogger(__name__)
audit_log = logging.getLogger("headrace.audit")

AUDIT_TOPIC = "headrace.audit"
# Kept longer than other topics: audits are read late.
TOPIC_SETTINGS = {"retention.ms": str(30 * 24 * 3600 * 1000), "cleanup.policy": "delete"}
MOST_WAITING_FOR_THE_TOPIC = 10_000
LINES_PER_BATCH = 500
ASK_AGAIN_MS = 10_000  # for a topic that could not be created


class AuditTrail:
    """Takes the noted lines, a few times a second; never delays a request."""

    __slots__ = ("auditor", "dropped", "_broker", "_to_topic", "_waiting", "_asked_ms")

    def __init__(self, auditor: Auditor, broker: Broker, *, to_topic: bool) -> None:
        self.auditor = auditor
        self.dropped = 0  # lines that were not written to the topic
        self._broker = broker
        self._to_topic = to_topic
        self._waiting: deque[tuple[int, str]] = deque()
        self._asked_ms: int | None = None

    def write(self) -> None:
        now = self._broker.now
        if self.auditor.waiting:
            lines = self.auditor.take()
            for line in lines:
                audit_log.info("%s", line)
            if self._to_topic:
                self._keep(lines, now)
        if self._waiting:
            self._write_to_topic(now)

    def _keep(self, lines: Iterable[str], now: Now) -> None:
        for line in lines:
            if len(self._waiting) >= MOST_WAITING_FOR_THE_TOPIC:
                self._waiting.popleft()
                self.dropped += 1
            self._waiting.append((now.wall_ms, line))

    def _write_to_topic(self, now: Now) -> None:
        topic = self._broker.topics.by_name.get(AUDIT_TOPIC)
        if topic is None:
            self._ask_for_topic(now)
            return
        leader = topic.leader_if_here(0)
        if leader is None:
            return  # these lines wait for the topic
        while self._waiting:
            lines = [self._waiting[at] for at in range(min(LINES_PER_BATCH, len(self._waiting)))]
            records = [Record(key=None, value=line.encode(), timestamp=ms) for ms, line in lines]
            try:
                leader.append(memoryview(bytearray(build(records))), now.wall_ms, acks_all=False)
                leader.log.write_at_once()
            except KafkaError:  # a full disk: these lines wait
                leader.high_watermark = min(leader.high_watermark, leader.log.end_offset)
                return
            for _ in lines:
                self._waiting.popleft()
            self._broker.coordinator_appended(leader)

    def _ask_for_topic(self, now: Now) -> None:
        if self._asked_ms is not None and now.monotonic_ms - self._asked_ms < ASK_AGAIN_MS:
            return
        self._asked_ms = now.monotonic_ms
        try:
            self._broker.controller.create_internal_topic(
                AUDIT_TOPIC, 1, -1, TOPIC_SETTINGS, lambda: True, now
            )
        except KafkaError as refusal:
            log.warning("the topic %s cannot be made: %s", AUDIT_TOPIC, refusal)


# ---- the noted fields of each admin request
# -------------------------------------------------------


def _outcomes(answers: Iterable[tuple[str, int]]) -> dict[str, Any]:
    """Returns the names that succeeded, and errors by the names that failed."""
    done: list[str] = []
    refused: dict[str, list[str]] = {}
    for name, code in answers:
        error = error_name(code)
        if error is None:
            done.append(name)
        else:
            refused.setdefault(error, []).append(name)
    return {"done": done or None, "refused": refused or None}


def _dry(request: Any) -> dict[str, Any]:
    return {"validate_only": True} if request.validate_only else {}


def _topics_created(request: Any, answer: Any) -> dict[str, Any]:
    if answer is None:
        return {"topics": [topic.name for topic in request.topics]}
    return {**_outcomes((t.name, t.error_code) for t in answer.topics), **_dry(request)}


def _topics_deleted(request: Any, answer: Any) -> dict[str, Any]:
    if answer is None:
        return {}
    return _outcomes((t.name or t.topic_id.hex(), t.error_code) for t in answer.responses)


def _partitions_created(request: Any, answer: Any) -> dict[str, Any]:
    if answer is None:
        return {"topics": [topic.name for topic in request.topics]}
    wanted = {topic.name: topic.count for topic in request.topics}
    found = ((f"{t.name}: {wanted.get(t.name)} partitions", t.error_code) for t in answer.results)
    return {**_outcomes(found), **_dry(request)}


def _settings_altered(request: Any, answer: Any) -> dict[str, Any]:
    """Returns the names of the settings, without values: these may be secrets."""
    kinds = {2: "topic", 4: "broker", 8: "logger", 16: "client-metrics", 32: "group"}
    names = {
        (resource.resource_type, resource.resource_name): ", ".join(
            config.name for config in resource.configs
        )
        for resource in request.resources
    }

    def title(kind: int, name: str) -> str:
        return f"{kinds.get(kind, kind)} {name or '(default)'}: {names.get((kind, name), '')}"

    if answer is None:
        return {"settings": [title(*resource) for resource in names]}
    found = ((title(r.resource_type, r.resource_name), r.error_code) for r in answer.responses)
    return {**_outcomes(found), **_dry(request)}


def _features_updated(request: Any, answer: Any) -> dict[str, Any]:
    wanted = [f"{update.feature}={update.max_version_level}" for update in request.feature_updates]
    code = 0 if answer is None else answer.error_code
    return {"features": wanted, "error": error_name(code), **_dry(request)}


def entity_title(entity: Iterable[Any]) -> str:
    parts = (f"{part.entity_type} {part.entity_name or '(default)'}" for part in entity)
    return ", ".join(parts)


def _quotas_altered(request: Any, answer: Any) -> dict[str, Any]:
    asked = [
        f"{entity_title(entry.entity)}: "
        + ", ".join(
            f"{op.key} " + ("removed" if op.remove else f"{op.value:g}") for op in entry.ops
        )
        for entry in request.entries
    ]
    if answer is None:
        return {"quotas": asked}
    found = zip(asked, (entry.error_code for entry in answer.entries), strict=False)
    return {**_outcomes(found), **_dry(request)}


def _records_deleted(request: Any, answer: Any) -> dict[str, Any]:
    if answer is None:
        return {}
    return _outcomes(
        (f"{topic.name}-{part.partition_index} before {part.low_watermark}", part.error_code)
        for topic in answer.topics
        for part in topic.partitions
    )


def _groups_deleted(request: Any, answer: Any) -> dict[str, Any]:
    if answer is None:
        return {"groups": list(request.groups_names)}
    return _outcomes((group.group_id, group.error_code) for group in answer.results)


def _offsets_deleted(request: Any, answer: Any) -> dict[str, Any]:
    if answer is None or answer.error_code:
        return {"group": request.group_id, "error": error_name(answer.error_code if answer else 0)}
    found = (
        (f"{topic.name}-{part.partition_index}", part.error_code)
        for topic in answer.topics
        for part in topic.partitions
    )
    return {"group": request.group_id, **_outcomes(found)}


def _users_altered(request: Any, answer: Any) -> dict[str, Any]:
    """Returns the users who got or lost a password, without passwords or hashes."""
    asked = [f"{user.name}: set" for user in request.upsertions]
    asked += [f"{user.name}: removed" for user in request.deletions]
    if answer is None:
        return {"users": asked}
    return {"users": asked, **_outcomes((user.user, user.error_code) for user in answer.results)}


def _word(words: type[IntEnum], number: int) -> str:
    try:
        return words(number).name.lower()
    except ValueError:
        return str(number)


def _entry(entry: Any) -> str:
    may = _word(Permission, entry.permission_type)
    what = _word(Operation, entry.operation)
    kind = _word(ResourceType, entry.resource_type)
    return f"{may} {entry.principal} from {entry.host} to {what} {kind} {entry.resource_name}"


def _acls_created(request: Any, answer: Any) -> dict[str, Any]:
    asked = [_entry(entry) for entry in request.creations]
    if answer is None:
        return {"acls": asked}
    return _outcomes(zip(asked, (result.error_code for result in answer.results), strict=False))


def _acls_deleted(request: Any, answer: Any) -> dict[str, Any]:
    if answer is None:
        return {}
    gone = [
        (_entry(found), found.error_code)
        for result in answer.filter_results
        for found in result.matching_acls
    ]
    failed = [("filter", r.error_code) for r in answer.filter_results if r.error_code]
    return _outcomes([*gone, *failed])


def _markers_written(request: Any, answer: Any) -> dict[str, Any]:
    if answer is None:
        return {}
    return _outcomes(
        (f"{topic.name}-{part.partition_index}", part.error_code)
        for marker in answer.markers
        for topic in marker.topics
        for part in topic.partitions
    )


def _leaders_elected(request: Any, answer: Any) -> dict[str, Any]:
    kind = {0: "preferred", 1: "unclean"}.get(request.election_type, str(request.election_type))
    if answer is None:
        return {"election": kind}
    found = (
        (f"{topic.topic}-{part.partition_id}", part.error_code)
        for topic in answer.replica_election_results
        for part in topic.partition_result
    )
    return {"election": kind, "error": error_name(answer.error_code), **_outcomes(found)}


def _partitions_reassigned(request: Any, answer: Any) -> dict[str, Any]:
    wanted = {
        (topic.name, part.partition_index): (
            "cancelled" if part.replicas is None else f"to {part.replicas}"
        )
        for topic in request.topics
        for part in topic.partitions
    }
    if answer is None:
        return {"partitions": [f"{topic}-{index} {to}" for (topic, index), to in wanted.items()]}
    found = (
        (f"{topic.name}-{part.partition_index} {wanted[topic.name, part.partition_index]}",
         part.error_code)
        for topic in answer.responses
        for part in topic.partitions
    )  # fmt: skip
    return {"error": error_name(answer.error_code), **_outcomes(found)}


def _replicas_moved(request: Any, answer: Any) -> dict[str, Any]:
    folders = {"folders": [folder.path for folder in request.dirs]}
    if answer is None:
        return folders
    found = (
        (f"{topic.topic_name}-{part.partition_index}", part.error_code)
        for topic in answer.results
        for part in topic.partitions
    )
    return {**folders, **_outcomes(found)}


# By API key.
AUDITED: dict[int, Details] = {
    19: _topics_created,
    20: _topics_deleted,
    21: _records_deleted,
    27: _markers_written,
    30: _acls_created,
    31: _acls_deleted,
    33: _settings_altered,
    34: _replicas_moved,
    37: _partitions_created,
    42: _groups_deleted,
    43: _leaders_elected,
    44: _settings_altered,
    45: _partitions_reassigned,
    47: _offsets_deleted,
    49: _quotas_altered,
    51: _users_altered,
    57: _features_updated,
}


def is_audited(values: Mapping[str, Any], protocols: Mapping[str, int]) -> bool:
    """Returns whether the audit is on, by the settings and the protocols of the listeners;
    PLAINTEXT has the number 0."""
    if values["headrace.audit"] != "auto":
        return bool(values["headrace.audit"] != "off")
    return any(protocols.values()) or bool(values["authorizer.class.name"])
