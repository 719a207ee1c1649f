"""Decisions about SCRAM credentials: the stored form of users' passwords (KIP-554).

Clients send a salted password, never the password; only the two keys that are derived from it are
stored (RFC 5802). A user is named once in a request, whatever the mechanism; each user has its own
result, and a refused one does not affect the others.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from headrace.node.controller.decision import Decision
from headrace.node.metadata.image import MetadataImage
from headrace.node.serving.authentication.scram import (
    FEWEST_ITERATIONS,
    MECHANISMS,
    MOST_ITERATIONS,
    keys_of,
)
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from headrace.wire.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from headrace.wire.protocol.messages.remove_user_scram_credential_record import (
    RemoveUserScramCredentialRecord,
)
from headrace.wire.protocol.messages.user_scram_credential_record import UserScramCredentialRecord

# Kafka bounds neither; a name is for people, a salt for a hash.
LONGEST_NAME = 1024
LONGEST_SALT = 1024

Change = ScramCredentialDeletion | ScramCredentialUpsertion


def alter(
    image: MetadataImage, request: AlterUserScramCredentialsRequest
) -> Decision[AlterUserScramCredentialsResponse]:
    changes: list[Change] = [*request.deletions, *request.upsertions]
    times = Counter(change.name for change in changes)
    records: list[Any] = []
    results: dict[str, AlterUserScramCredentialsResult] = {}
    for change in changes:
        code, message = ErrorCode.NONE, None
        try:
            if times[change.name] > 1:
                raise KafkaError(
                    ErrorCode.DUPLICATE_RESOURCE,
                    "A user's credentials can be altered once in a request.",
                )
            records.append(_record(image, change))
        except KafkaError as refusal:
            code, message = refusal.code, refusal.message
        results[change.name] = AlterUserScramCredentialsResult(change.name, code, message)
    return Decision(records, AlterUserScramCredentialsResponse(0, list(results.values())))


def _record(image: MetadataImage, change: Change) -> Any:
    if not change.name:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "A user needs a name.")
    if change.mechanism not in MECHANISMS:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_SASL_MECHANISM,
            f"There is no SCRAM mechanism {change.mechanism}.",
        )
    if isinstance(change, ScramCredentialUpsertion):
        return _upsertion(change)
    if (change.name, change.mechanism) not in image.scram_credentials:
        raise KafkaError(
            ErrorCode.RESOURCE_NOT_FOUND,
            f"{change.name} has no credential for {MECHANISMS[change.mechanism]}.",
        )
    return RemoveUserScramCredentialRecord(change.name, change.mechanism)


def _upsertion(wanted: ScramCredentialUpsertion) -> UserScramCredentialRecord:
    if not FEWEST_ITERATIONS <= wanted.iterations <= MOST_ITERATIONS:
        raise KafkaError(
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            f"The iterations must be between {FEWEST_ITERATIONS} and {MOST_ITERATIONS}.",
        )
    if len(wanted.name) > LONGEST_NAME or len(wanted.salt) > LONGEST_SALT:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "The name or the salt is too long.")
    stored_key, server_key = keys_of(wanted.mechanism, wanted.salted_password)
    return UserScramCredentialRecord(
        wanted.name, wanted.mechanism, wanted.salt, stored_key, server_key, wanted.iterations
    )
