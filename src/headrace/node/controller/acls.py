"""Decisions about access control entries: create and delete.

An entry that exists already is created again without a record. A filter that matches no entry
deletes none, which is not an error. Codes, messages and the order of checks are Apache's, seen at
4.3.1, with one exception: an entry with a word that only filters have (ANY, MATCH) is
INVALID_REQUEST, while Apache Kafka meets an exception and answers UNKNOWN_SERVER_ERROR for the
whole request.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from headrace.node.controller.decision import MOST_RECORDS_PER_BATCH, Decision
from headrace.node.metadata.acls import Filter, content_of, found_by
from headrace.node.metadata.image import MetadataImage
from headrace.wire.protocol.acls import (
    CLUSTER_NAME,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from headrace.wire.protocol.messages.access_control_entry_record import AccessControlEntryRecord
from headrace.wire.protocol.messages.create_acls import AclCreation, AclCreationResult
from headrace.wire.protocol.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
)
from headrace.wire.protocol.messages.remove_access_control_entry_record import (
    RemoveAccessControlEntryRecord,
)
from headrace.wire.protocol.primitives import ZERO_ID

# Each filter scans all entries and lists its matches: a request of 4 MB could have 400,000.
MOST_FILTERS = 1_000
MOST_TOLD = 100_000


def create_acls(
    image: MetadataImage, creations: Sequence[AclCreation], new_id: Callable[[], bytes]
) -> Decision[list[AclCreationResult]]:
    """Returns a result for each creation, in their order."""
    known = set(map(content_of, image.acls.values())) if creations else set()
    records: list[Any] = []
    results: list[AclCreationResult] = []
    for wanted in creations:
        try:
            _require_valid(wanted)
        except KafkaError as refusal:
            results.append(AclCreationResult(refusal.code, refusal.message))
            continue
        entry = AccessControlEntryRecord(
            ZERO_ID,
            wanted.resource_type,
            wanted.resource_name,
            wanted.resource_pattern_type,
            wanted.principal,
            wanted.host,
            wanted.operation,
            wanted.permission_type,
        )
        content = content_of(entry)
        if content not in known:
            known.add(content)
            entry.id = _unused_id(image, new_id)
            records.append(entry)
        results.append(AclCreationResult())
    _require_moderate(records, "Unable to perform excessively large batch operation.")
    return Decision(records, results)


def _unused_id(image: MetadataImage, new_id: Callable[[], bytes]) -> bytes:
    found = new_id()
    while found in image.acls:
        found = new_id()
    return found


def _require_valid(wanted: AclCreation) -> None:
    kind, name = _name_of(ResourceType, wanted.resource_type), wanted.resource_name
    if kind == "CLUSTER" and name != CLUSTER_NAME:
        raise _invalid(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not name:
        raise _invalid("Invalid empty resource name")
    if kind in ("UNKNOWN", "ANY"):
        raise _invalid(f"Invalid resourceType {kind}")
    pattern = _name_of(PatternType, wanted.resource_pattern_type)
    if pattern not in ("LITERAL", "PREFIXED"):
        raise _invalid(f"Invalid patternType {pattern}")
    operation = _name_of(Operation, wanted.operation)
    if operation in ("UNKNOWN", "ANY"):
        raise _invalid(f"Invalid operation {operation}")
    permission = _name_of(Permission, wanted.permission_type)
    if permission not in ("DENY", "ALLOW"):
        raise _invalid(f"Invalid permissionType {permission}")
    if ":" not in wanted.principal:
        raise _invalid(
            f"Could not parse principal from `{wanted.principal}` (no colon is present separating "
            "the principal type from the principal name)"
        )


def _name_of(kind: type[Any], number: int) -> str:
    try:
        name: str = kind(number).name
    except ValueError:
        return "UNKNOWN"
    return name


def _invalid(sentence: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, sentence)


def _require_moderate(records: Sequence[Any], sentence: str) -> None:
    """A request is one batch, which must not be too large: half of it must not survive a crash."""
    if len(records) > MOST_RECORDS_PER_BATCH:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, sentence)


def delete_acls(
    image: MetadataImage, filters: Sequence[DeleteAclsFilter]
) -> Decision[list[DeleteAclsFilterResult]]:
    """Returns a result for each filter; an entry that several filters match is deleted once and
    listed for all."""
    if len(filters) > MOST_FILTERS:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION, f"One request may have {MOST_FILTERS} filters at most."
        )
    doomed: dict[bytes, None] = {}
    results: list[DeleteAclsFilterResult] = []
    told = 0
    for asked in filters:
        wanted = Filter.of(asked)
        if not wanted.makes_sense:
            results.append(
                DeleteAclsFilterResult(ErrorCode.INVALID_REQUEST, _unknown_part_of(wanted))
            )
            continue
        found = found_by(wanted, image.acls.values())
        doomed.update(dict.fromkeys(entry.id for entry in found))
        told += len(found)
        if told > MOST_TOLD:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION, f"One answer tells {MOST_TOLD} entries at most."
            )
        matching = [_told(entry) for entry in found]
        results.append(DeleteAclsFilterResult(ErrorCode.NONE, None, matching))
    records = [RemoveAccessControlEntryRecord(entry_id) for entry_id in doomed]
    _require_moderate(
        records,
        f"Cannot remove more than {MOST_RECORDS_PER_BATCH} acls in a single delete operation.",
    )
    return Decision(records, results)


def _unknown_part_of(wanted: Filter) -> str:
    pattern = wanted._replace(operation=Operation.ANY, permission_type=Permission.ANY)
    return "Unknown entryFilter." if pattern.makes_sense else "Unknown patternFilter."


def _told(entry: AccessControlEntryRecord) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        error_message=None,
        resource_type=entry.resource_type,
        resource_name=entry.resource_name,
        pattern_type=entry.pattern_type,
        principal=entry.principal,
        host=entry.host,
        operation=entry.operation,
        permission_type=entry.permission_type,
    )
