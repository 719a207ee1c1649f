"""Decisions about topics: create, delete, add partitions.

Each takes the image and a request and returns the records and the answer. A refused topic has its
error in the answer and does not affect the others. Codes and the order of checks are Apache's.
`admit` is called with the partitions that each change touches, and raises if a quota is used up.
Not done: create-topic policies.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from headrace.node.controller.decision import LARGE_FROM, MOST_RECORDS_PER_BATCH, Decision
from headrace.node.controller.partitions.placement import (
    new_partitions,
    place,
    require_manual_assignment,
)
from headrace.node.metadata.image import TOPIC_RESOURCE, MetadataImage, TopicImage
from headrace.node.metadata.topic_names import METADATA_TOPIC, can_collide, require_legal, unified
from headrace.node.steps import at_once
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from headrace.wire.protocol.messages.config_record import ConfigRecord
from headrace.wire.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from headrace.wire.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from headrace.wire.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from headrace.wire.protocol.messages.remove_topic_record import RemoveTopicRecord
from headrace.wire.protocol.messages.topic_record import TopicRecord
from headrace.wire.protocol.primitives import ZERO_ID

DEFAULT = -1  # "as the broker is configured", for partitions and replicas

Admit = Callable[[int], None]

# Apache refuses more in one request: all of it is one batch, decided in one turn of the controller.
MOST_PARTITIONS_PER_REQUEST = 10_000


class EffectiveConfig(NamedTuple):
    """One setting of a topic as clients see it."""

    name: str
    value: str | None
    source: int
    read_only: bool = False
    sensitive: bool = False


def _accept_any_configs(image: MetadataImage, own: dict[str, str]) -> None:
    """Used if there is no validation."""


def _describe_nothing(image: MetadataImage, own: dict[str, str]) -> Iterable[EffectiveConfig]:
    return ()


@dataclass(slots=True)
class TopicRules:
    """The settings of new topics; `validate_configs` raises INVALID_CONFIG."""

    num_partitions: int = 1
    default_replication_factor: int = 1
    delete_topic_enable: bool = True
    validate_configs: Callable[[MetadataImage, dict[str, str]], None] = field(
        default=_accept_any_configs
    )
    describe_configs: Callable[[MetadataImage, dict[str, str]], Iterable[EffectiveConfig]] = field(
        default=_describe_nothing
    )


def create_topics(
    image: MetadataImage,
    request: CreateTopicsRequest,
    rules: TopicRules,
    new_id: Callable[[], bytes],
    admit: Admit | None = None,
) -> Decision[CreateTopicsResponse]:
    return at_once(create_topics_in_steps(image, request, rules, new_id, admit))


def create_topics_in_steps(
    image: MetadataImage,
    request: CreateTopicsRequest,
    rules: TopicRules,
    new_id: Callable[[], bytes],
    admit: Admit | None = None,
) -> Generator[None, None, Decision[CreateTopicsResponse]]:
    require_moderate_size(request.topics, rules)
    times = Counter(topic.name for topic in request.topics)
    taken = _names_that_collide(image, request.topics)
    configs = _Configs(image, rules)
    records: list[Any] = []
    results: list[CreatableTopicResult] = []
    for topic in {topic.name: topic for topic in request.topics}.values():
        yield
        try:
            if times[topic.name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "The request names this topic twice.")
            created, result = _create_topic(image, topic, taken, rules, configs, new_id, admit)
        except KafkaError as refusal:
            result = CreatableTopicResult(
                name=topic.name, error_code=refusal.code, error_message=refusal.message
            )
        else:
            records += created
            _require_one_batch(records)
        results.append(result)
    if request.validate_only:
        records = []
    return Decision(records, CreateTopicsResponse(throttle_time_ms=0, topics=results))


def is_large(topics: Sequence[CreatableTopic], rules: TopicRules) -> bool:
    """Returns whether it takes so long that other requests should run meanwhile; refused requests
    do not."""
    partitions = _partitions_in(topics, rules)
    return len(topics) + partitions >= LARGE_FROM and partitions <= MOST_PARTITIONS_PER_REQUEST


def require_moderate_size(topics: Iterable[CreatableTopic], rules: TopicRules) -> None:
    _require_at_most(_partitions_in(topics, rules))


def _partitions_in(topics: Iterable[CreatableTopic], rules: TopicRules) -> int:
    partitions = 0
    for topic in topics:
        if topic.assignments:
            partitions += len(topic.assignments)
        elif topic.num_partitions == DEFAULT:
            partitions += rules.num_partitions
        else:
            partitions += max(topic.num_partitions, 0)
    return partitions


def _require_at_most(partitions: int) -> None:
    if partitions > MOST_PARTITIONS_PER_REQUEST:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"One request may create {MOST_PARTITIONS_PER_REQUEST} partitions at most.",
        )


def _require_one_batch(records: Sequence[Any]) -> None:
    """Refuses the whole request, as Apache does: 5,000 topics of one partition are the most."""
    if len(records) > MOST_RECORDS_PER_BATCH:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"One request may make {MOST_RECORDS_PER_BATCH} topics, partitions and settings.",
        )


def _create_topic(
    image: MetadataImage,
    topic: CreatableTopic,
    taken: dict[str, str],
    rules: TopicRules,
    configs: _Configs,
    new_id: Callable[[], bytes],
    admit: Admit | None,
) -> tuple[list[Any], CreatableTopicResult]:
    _require_free_name(image, topic.name, taken)
    settings = _settings_of(topic)
    described = configs.of(settings)
    topic_id = new_id()
    if topic.assignments:
        assignments = _manual_assignments(image, topic)
    else:
        assignments = _placed(image, topic, rules, topic_id)
    if admit is not None:
        admit(len(assignments))
    records: list[Any] = [TopicRecord(name=topic.name, topic_id=topic_id)]
    records += [
        ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name=topic.name, name=name, value=value)
        for name, value in settings.items()
    ]
    records += new_partitions(image.brokers, topic_id, 0, assignments)
    result = CreatableTopicResult(
        name=topic.name,
        topic_id=topic_id,
        error_code=ErrorCode.NONE,
        error_message=None,
        num_partitions=len(assignments),
        replication_factor=len(assignments[0]),
    )
    result.configs = described
    return records, result


class _Configs:
    """The settings in the answers for the topics of one request. Most have the same ones: these are
    validated and described once, which is most of the work for a topic."""

    def __init__(self, image: MetadataImage, rules: TopicRules) -> None:
        self._image = image
        self._rules = rules
        self._known: dict[
            tuple[tuple[str, str], ...], list[CreatableTopicConfigs] | KafkaError
        ] = {}

    def of(self, settings: dict[str, str]) -> list[CreatableTopicConfigs]:
        """Raises INVALID_CONFIG if a setting is not valid."""
        key = tuple(settings.items())
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._describe(settings)
        if isinstance(found, KafkaError):
            raise found
        return found

    def _describe(self, settings: dict[str, str]) -> list[CreatableTopicConfigs] | KafkaError:
        try:
            self._rules.validate_configs(self._image, settings)
        except KafkaError as refusal:
            return refusal
        return [
            CreatableTopicConfigs(
                name=config.name,
                value=config.value,
                read_only=config.read_only,
                config_source=config.source,
                is_sensitive=config.sensitive,
            )
            for config in self._rules.describe_configs(self._image, settings)
        ]


def _names_that_collide(image: MetadataImage, topics: Iterable[CreatableTopic]) -> dict[str, str]:
    """Returns existing topics whose names could collide, by the form in which they would; one pass
    for all topics of a request, and none if no name can collide."""
    if not any(can_collide(topic.name) for topic in topics):
        return {}
    return {unified(name): name for name in image.topics if can_collide(name)}


def _require_free_name(image: MetadataImage, name: str, taken: dict[str, str]) -> None:
    if name == METADATA_TOPIC:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"{METADATA_TOPIC} is the quorum's own; nobody can create it.",
        )
    if name in image.topics:
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"A topic named {name} already exists.")
    require_legal(name)
    other = taken.get(unified(name)) if can_collide(name) else None
    if other is not None:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"Topic {name} and topic {other} would be one in metrics: '.' and '_' are alike.",
        )


def _settings_of(topic: CreatableTopic) -> dict[str, str]:
    nameless = [config.name for config in topic.configs if config.value is None]
    if nameless:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"These settings have no value: {', '.join(nameless)}.",
        )
    settings: dict[str, str] = {}
    for config in topic.configs:
        assert config.value is not None
        settings[config.name] = config.value
    return settings


def _manual_assignments(image: MetadataImage, topic: CreatableTopic) -> list[list[int]]:
    for value, what in (
        (topic.replication_factor, "replication factor"),
        (topic.num_partitions, "number of partitions"),
    ):
        if value != DEFAULT:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"With replicas chosen by hand the {what} must be -1.",
            )
    by_index: dict[int, list[int]] = {}
    replication_factor: int | None = None
    for assignment in topic.assignments:
        if assignment.partition_index in by_index:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Partition {assignment.partition_index} has its replicas chosen twice.",
            )
        require_manual_assignment(image.brokers, assignment.broker_ids, replication_factor)
        replication_factor = len(assignment.broker_ids)
        by_index[assignment.partition_index] = assignment.broker_ids
    if sorted(by_index) != list(range(len(by_index))):
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The partitions with chosen replicas must be numbered from 0 without a gap.",
        )
    return [by_index[index] for index in range(len(by_index))]


def _placed(
    image: MetadataImage, topic: CreatableTopic, rules: TopicRules, topic_id: bytes
) -> list[list[int]]:
    replicas = topic.replication_factor
    if replicas < DEFAULT or replicas == 0:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "A topic needs at least one replica; -1 takes the default.",
        )
    partitions = topic.num_partitions
    if partitions < DEFAULT or partitions == 0:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            "A topic needs at least one partition; -1 takes the default.",
        )
    return place(
        image.brokers,
        partitions=rules.num_partitions if partitions == DEFAULT else partitions,
        replication_factor=rules.default_replication_factor if replicas == DEFAULT else replicas,
        seed=int.from_bytes(topic_id),
    )


def delete_topics(
    image: MetadataImage,
    request: DeleteTopicsRequest,
    version: int,
    rules: TopicRules,
    admit: Admit | None = None,
) -> Decision[DeleteTopicsResponse]:
    """Deletes by name (all versions) or by id (version 6); each topic is answered once."""
    if version < 6:
        wanted: list[tuple[str | None, bytes]] = [(name, ZERO_ID) for name in request.topic_names]
    else:
        wanted = [(topic.name, topic.topic_id) for topic in request.topics]
    times = Counter(wanted)
    named = Counter(topic.id for name, id_ in times if (topic := _find_topic(image, name, id_)))
    records: list[Any] = []
    results: dict[Any, DeletableTopicResult] = {}  # one per topic, in whichever way it was named
    for (name, topic_id), count in times.items():
        result = DeletableTopicResult(name=name, topic_id=topic_id, error_message=None)
        key: Any = (name, topic_id)
        try:
            _require_deletion_enabled(rules, version)
            _require_one_way_to_name(name, topic_id, count)
            topic = _existing_topic(image, name, topic_id)
            key, result.name, result.topic_id = topic.id, topic.name, topic.id
            if named[topic.id] > 1:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST,
                    f"The topic {topic.name} was asked for by name and by id.",
                )
            if admit is not None:
                admit(len(topic.partitions))
        except KafkaError as refusal:
            result.error_code = refusal.code
            result.error_message = refusal.message
        else:
            records.append(RemoveTopicRecord(topic_id=topic.id))
        results[key] = result
    response = DeleteTopicsResponse(throttle_time_ms=0, responses=list(results.values()))
    return Decision(records, response)


def _require_deletion_enabled(rules: TopicRules, version: int) -> None:
    if not rules.delete_topic_enable:
        code = ErrorCode.TOPIC_DELETION_DISABLED if version >= 3 else ErrorCode.INVALID_REQUEST
        raise KafkaError(code, "This cluster does not allow the deletion of topics.")


def _require_one_way_to_name(name: str | None, topic_id: bytes, count: int) -> None:
    fault = None
    if name is None and topic_id == ZERO_ID:
        fault = "A topic must be named, by its name or by its id."
    elif name is not None and topic_id != ZERO_ID:
        fault = "A topic is named by its name or by its id, not by both."
    elif count > 1:
        fault = "The request names this topic twice."
    if fault is not None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, fault)


def _find_topic(image: MetadataImage, name: str | None, topic_id: bytes) -> TopicImage | None:
    return image.topics_by_id.get(topic_id) if name is None else image.topics.get(name)


def _existing_topic(image: MetadataImage, name: str | None, topic_id: bytes) -> TopicImage:
    topic = _find_topic(image, name, topic_id)
    if topic is None:
        missing = (
            ErrorCode.UNKNOWN_TOPIC_ID if name is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        )
        raise KafkaError(missing, missing.description)
    return topic


def create_partitions(
    image: MetadataImage, request: CreatePartitionsRequest, admit: Admit | None = None
) -> Decision[CreatePartitionsResponse]:
    return at_once(create_partitions_in_steps(image, request, admit))


def create_partitions_in_steps(
    image: MetadataImage, request: CreatePartitionsRequest, admit: Admit | None = None
) -> Generator[None, None, Decision[CreatePartitionsResponse]]:
    times = Counter(topic.name for topic in request.topics)
    records: list[Any] = []
    results: list[CreatePartitionsTopicResult] = []
    for topic in {topic.name: topic for topic in request.topics}.values():
        yield
        result = CreatePartitionsTopicResult(name=topic.name, error_message=None)
        try:
            if times[topic.name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "The request names this topic twice.")
            added = _more_partitions(image, topic)
            _require_at_most(len(records) + len(added))
            if admit is not None:
                admit(len(added))
        except KafkaError as refusal:
            result.error_code = refusal.code
            result.error_message = refusal.message
        else:
            records += added
        results.append(result)
    if request.validate_only:
        records = []
    return Decision(records, CreatePartitionsResponse(throttle_time_ms=0, results=results))


def adds_many(image: MetadataImage, request: CreatePartitionsRequest) -> bool:
    """Returns whether it takes so long that other requests should run meanwhile."""
    added = 0
    for topic in request.topics:
        known = image.topics.get(topic.name)
        added += max(topic.count - len(known.partitions), 0) if known is not None else 1
    return added >= LARGE_FROM


def _more_partitions(image: MetadataImage, wanted: CreatePartitionsTopic) -> Sequence[Any]:
    topic = image.topics.get(wanted.name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    present = len(topic.partitions)
    added = wanted.count - present
    if added == 0:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS, f"The topic has {present} partitions already."
        )
    if added < 0:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic has {present} partitions; there cannot be fewer ({wanted.count}).",
        )
    _require_at_most(added)
    replication_factor = len(topic.partitions[0].replicas)
    if wanted.assignments is None:
        assignments = place(
            image.brokers,
            partitions=added,
            replication_factor=replication_factor,
            seed=int.from_bytes(topic.id) + present,
        )
    else:
        assignments = [assignment.broker_ids for assignment in wanted.assignments]
        if len(assignments) != added:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"{added} new partitions, but replicas are chosen for {len(assignments)}.",
            )
        for replicas in assignments:
            require_manual_assignment(image.brokers, replicas, replication_factor)
    return new_partitions(image.brokers, topic.id, present, assignments)
