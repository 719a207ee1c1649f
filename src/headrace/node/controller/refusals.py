"""Refuses a whole request whose answer has no field for one error: each element gets it.

Needed for requests that no handler reads: those that are forwarded to another controller which does
not answer, and those that come to a controller that is not the active one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace.wire.protocol.errors import KafkaError
from headrace.wire.protocol.messages import (
    alter_client_quotas,
    alter_configs,
    alter_user_scram_credentials,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_topics,
    incremental_alter_configs,
)

Refuse = Callable[[Any, KafkaError], Any]


def _create_topics(request: Any, refusal: KafkaError) -> Any:
    return create_topics.CreateTopicsResponse(
        topics=[
            create_topics.CreatableTopicResult(
                name=topic.name, error_code=refusal.code, error_message=refusal.message
            )
            for topic in request.topics
        ]
    )


def _delete_topics(request: Any, refusal: KafkaError) -> Any:
    """Topics are named by name, or from version 6 on by name or id."""
    named = [(topic.name, topic.topic_id) for topic in request.topics]
    named += [(name, bytes(16)) for name in request.topic_names]
    return delete_topics.DeleteTopicsResponse(
        responses=[
            delete_topics.DeletableTopicResult(name, topic_id, refusal.code, refusal.message)
            for name, topic_id in named
        ]
    )


def _create_partitions(request: Any, refusal: KafkaError) -> Any:
    return create_partitions.CreatePartitionsResponse(
        results=[
            create_partitions.CreatePartitionsTopicResult(topic.name, refusal.code, refusal.message)
            for topic in request.topics
        ]
    )


def _create_acls(request: Any, refusal: KafkaError) -> Any:
    refused = create_acls.AclCreationResult(refusal.code, refusal.message)
    return create_acls.CreateAclsResponse(results=[refused] * len(request.creations))


def _delete_acls(request: Any, refusal: KafkaError) -> Any:
    refused = delete_acls.DeleteAclsFilterResult(refusal.code, refusal.message)
    return delete_acls.DeleteAclsResponse(filter_results=[refused] * len(request.filters))


def _alter_client_quotas(request: Any, refusal: KafkaError) -> Any:
    return alter_client_quotas.AlterClientQuotasResponse(
        entries=[
            alter_client_quotas.ResponseEntryData(refusal.code, refusal.message, entry.entity)
            for entry in request.entries
        ]
    )


def _alter_user_scram_credentials(request: Any, refusal: KafkaError) -> Any:
    users = dict.fromkeys(each.name for each in (*request.deletions, *request.upsertions))
    return alter_user_scram_credentials.AlterUserScramCredentialsResponse(
        results=[
            alter_user_scram_credentials.AlterUserScramCredentialsResult(
                user, refusal.code, refusal.message
            )
            for user in users
        ]
    )


def _altered_by(messages: Any, response: str) -> Refuse:
    def refuse(request: Any, refusal: KafkaError) -> Any:
        refused = [
            messages.AlterConfigsResourceResponse(
                refusal.code, refusal.message, resource.resource_type, resource.resource_name
            )
            for resource in request.resources
        ]
        return getattr(messages, response)(responses=refused)

    return refuse


# By API key; the answers of all other APIs have a field for an error of the whole request.
REFUSALS: dict[int, Refuse] = {
    create_topics.API_KEY: _create_topics,
    delete_topics.API_KEY: _delete_topics,
    create_partitions.API_KEY: _create_partitions,
    create_acls.API_KEY: _create_acls,
    delete_acls.API_KEY: _delete_acls,
    alter_client_quotas.API_KEY: _alter_client_quotas,
    alter_user_scram_credentials.API_KEY: _alter_user_scram_credentials,
    alter_configs.API_KEY: _altered_by(alter_configs, "AlterConfigsResponse"),
    incremental_alter_configs.API_KEY: _altered_by(
        incremental_alter_configs, "IncrementalAlterConfigsResponse"
    ),
}
