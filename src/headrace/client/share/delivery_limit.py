"""How often a share group delivers a record before it gives it up."""

from __future__ import annotations

from headrace.client.connection import ClientSettings, addresses
from headrace.client.errors import ClientError
from headrace.client.wire import require_no_error, wire_to_any
from headrace.wire.protocol.messages import describe_configs, incremental_alter_configs

GROUP_RESOURCE, SET = 32, 0
LIMIT = "share.delivery.count.limit"
DEFAULT_LIMIT = 5  # Kafka's default, if the group has no such setting


def raised_delivery_limit(connection: ClientSettings, group: str, least: int) -> int:
    """Raise the group's limit to `least` if it is lower; returns the limit. Raises ClientError if
    that is more than the cluster allows."""
    with wire_to_any(connection, addresses(connection.bootstrap)) as wire:
        asked = describe_configs.DescribeConfigsResource(GROUP_RESOURCE, group, [LIMIT])
        request = describe_configs.DescribeConfigsRequest([asked])
        [found] = wire.ask(describe_configs, request).results
        limit = next(
            (int(each.value) for each in found.configs or () if each.name == LIMIT), DEFAULT_LIMIT
        )
        if limit >= least:
            return limit
        config = incremental_alter_configs.AlterableConfig(LIMIT, SET, str(least))
        resource = incremental_alter_configs.AlterConfigsResource(GROUP_RESOURCE, group, [config])
        change = incremental_alter_configs.IncrementalAlterConfigsRequest([resource], False)
        [answer] = wire.ask(incremental_alter_configs, change).responses
    try:
        require_no_error(answer.error_code, answer.error_message)
    except ClientError as failure:
        raise ClientError(
            f"Retry(attempts={least - 1}) needs {LIMIT}={least} of group {group}: {failure} Take "
            "fewer attempts, or raise the group's limit and group.share.max.delivery.count.limit."
        ) from failure
    return least
