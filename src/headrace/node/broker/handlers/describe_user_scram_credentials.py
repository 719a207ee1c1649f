"""DescribeUserScramCredentials, v0: which users have passwords, by which mechanisms (KIP-554).

No name given means every user. Neither salts nor keys are ever shown. Needs DESCRIBE on the
cluster.
"""

from __future__ import annotations

from collections import Counter

from headrace.node.broker.broker import Broker
from headrace.node.serving.api import Api, Call
from headrace.node.serving.rights import require_on_cluster
from headrace.wire.protocol.acls import Operation
from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages import describe_user_scram_credentials as messages
from headrace.wire.protocol.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)


def handle(
    broker: Broker, request: DescribeUserScramCredentialsRequest, call: Call
) -> DescribeUserScramCredentialsResponse:
    require_on_cluster(broker, call, Operation.DESCRIBE)
    kept: dict[str, list[CredentialInfo]] = {}
    for (user, mechanism), record in sorted(broker.image.scram_credentials.items()):
        kept.setdefault(user, []).append(CredentialInfo(mechanism, record.iterations))
    times = Counter(user.name for user in request.users or ())
    return DescribeUserScramCredentialsResponse(
        results=[_result(user, kept.get(user), times[user]) for user in times or kept],
    )


def _result(
    user: str, kept: list[CredentialInfo] | None, times: int
) -> DescribeUserScramCredentialsResult:
    if times > 1:
        return DescribeUserScramCredentialsResult(
            user, ErrorCode.DUPLICATE_RESOURCE, f"The user {user} is named more than once."
        )
    if kept is None:
        return DescribeUserScramCredentialsResult(
            user, ErrorCode.RESOURCE_NOT_FOUND, f"The user {user} has no SCRAM credentials."
        )
    return DescribeUserScramCredentialsResult(user, ErrorCode.NONE, "", kept)


API = Api(messages=messages, handle=handle, versions=range(0, 1))
