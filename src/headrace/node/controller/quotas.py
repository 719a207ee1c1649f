"""Decisions about client quotas: valid limits and entities, with Apache's codes and messages.

An entity is a user, a client id, both, or an address; a null name means all that have no limit of
their own. Each has its own result; an invalid entity changes nothing. Unlike Apache Kafka, which
resolves names, only addresses are accepted as addresses: a node does not query a name service
because a client has sent it a name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from ipaddress import ip_address
from typing import Any

from headrace.node.controller.decision import Decision
from headrace.node.metadata.image import MetadataImage, QuotaEntity
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from headrace.wire.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    RequestEntryData,
    ResponseEntryData,
)
from headrace.wire.protocol.messages.client_quota_record import ClientQuotaRecord, EntityData

USER, CLIENT_ID, IP = "user", "client-id", "ip"
_AS_APACHE = {CLIENT_ID: 1, USER: 2, IP: 3}  # the order in its answers
# One batch or none: half a request must not survive a crash.
MOST_RECORDS = 10_000
FRACTION_OF_A_WHOLE = 1e-6

Check = Callable[[str, float], str | None]


def _any_number(key: str, value: float) -> str | None:
    return None


def _whole(bits: int, kind: str) -> Check:
    def check(key: str, value: float) -> str | None:
        if value > 2 ** (bits - 1) - 1:
            return f"Proposed value for {key} is too large for {kind}."
        if value % 1.0 > FRACTION_OF_A_WHOLE:
            return f"{key} cannot be a fractional value."
        return None

    return check


OF_CLIENTS: dict[str, Check] = {
    "producer_byte_rate": _whole(64, "a LONG"),
    "consumer_byte_rate": _whole(64, "a LONG"),
    "request_percentage": _any_number,
    "controller_mutation_rate": _any_number,
}
OF_ADDRESSES: dict[str, Check] = {"connection_creation_rate": _whole(32, "an INT")}


def alter_client_quotas(
    image: MetadataImage, request: AlterClientQuotasRequest
) -> Decision[AlterClientQuotasResponse]:
    records: list[Any] = []
    answers: list[ResponseEntryData] = []
    seen: set[QuotaEntity] = set()
    for entry in request.entries:
        named = sorted(entry.entity, key=lambda part: _AS_APACHE.get(part.entity_type, 0))
        answer = ResponseEntryData(ErrorCode.NONE, None, named)
        try:
            records += _alter(image, entry, seen)
        except KafkaError as refusal:
            answer.error_code, answer.error_message = refusal.code, refusal.message
        answers.append(answer)
    if len(records) > MOST_RECORDS:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION, f"One request may change {MOST_RECORDS} limits at most."
        )
    if request.validate_only:
        records = []
    return Decision(records, AlterClientQuotasResponse(0, answers))


def _alter(
    image: MetadataImage, entry: RequestEntryData, seen: set[QuotaEntity]
) -> list[ClientQuotaRecord]:
    parts = _require_entity(entry)
    entity: QuotaEntity = tuple(sorted(parts.items()))
    checks = _limits_of(parts)
    if entity in seen:
        raise _bad_request("The request names this entity twice.")
    seen.add(entity)
    now = image.client_quotas.get(entity, {})
    records = []
    keys = set()
    for op in entry.ops:
        if op.key in keys:
            raise _bad_request(f"Duplicate quota key {op.key}.")
        keys.add(op.key)
        if op.remove:
            if op.key in now:
                records.append(_record(parts, op.key, remove=True))
            continue
        _require_value(checks, op.key, op.value)
        if now.get(op.key) != op.value:
            records.append(_record(parts, op.key, op.value))
    return records


def _record(
    parts: Mapping[str, str | None], key: str, value: float = 0.0, *, remove: bool = False
) -> ClientQuotaRecord:
    entity = [EntityData(kind, name) for kind, name in parts.items()]
    return ClientQuotaRecord(entity=entity, key=key, value=value, remove=remove)


def _require_entity(entry: RequestEntryData) -> dict[str, str | None]:
    parts: dict[str, str | None] = {}
    for part in entry.entity:
        if part.entity_type in parts:
            raise _bad_request(f"Invalid client quota entity, twice {part.entity_type}.")
        if part.entity_type not in (USER, CLIENT_ID, IP):
            raise _bad_request(f"Unhandled client quota entity type: {part.entity_type}")
        if part.entity_name == "":
            raise _bad_request(f"Empty {part.entity_type} not supported")
        parts[part.entity_type] = part.entity_name
    if not parts:
        raise _bad_request("Invalid empty client quota entity")
    return parts


def _limits_of(parts: Mapping[str, str | None]) -> dict[str, Check]:
    if IP not in parts:
        return OF_CLIENTS
    if len(parts) > 1:
        raise _bad_request("Invalid quota entity combination, IP entity stands alone.")
    address = parts[IP]
    if address is not None and not _is_address(address):
        raise _bad_request(f"{address} is not a valid IP.")
    return OF_ADDRESSES


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _require_value(checks: Mapping[str, Check], key: str, value: float) -> None:
    check = checks.get(key)
    if check is None:
        raise _bad_request(f"Invalid configuration key {key}")
    if not value > 0.0:  # NaN is not above zero either
        raise _bad_request(f"Quota {key} must be greater than 0")
    fault = check(key, value)
    if fault is not None:
        raise _bad_request(fault)


def _bad_request(sentence: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, sentence)
