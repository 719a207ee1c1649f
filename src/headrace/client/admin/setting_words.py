"""The cluster's documentation of topic settings (DescribeConfigs, KIP-569).

confluent-kafka does not ask for the documentation, so this uses our own codecs.
"""

from __future__ import annotations

from headrace.client.connection import ClientSettings
from headrace.client.wire import Wire, require_no_error
from headrace.wire.protocol.messages import describe_configs as messages

TOPIC = 2  # a kind of resource


def words_of_topic_settings(
    connection: ClientSettings, address: tuple[str, int], topic: str
) -> dict[str, str]:
    """The documentation by name; a setting without one is left out."""
    asked = messages.DescribeConfigsResource(TOPIC, topic, None)
    with Wire(connection, address) as wire:
        answer = wire.ask(messages, messages.DescribeConfigsRequest([asked], False, True))
    [found] = answer.results
    require_no_error(found.error_code, found.error_message)
    return {each.name: each.documentation for each in found.configs if each.documentation}
