"""Limits of users, clients and addresses: list, set and remove (KIP-546).

Sent with our own codecs, since librdkafka lacks these requests. A name of None means all entities
without a limit of their own. The cluster decides which limits exist: it refuses those that it
lacks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.client.connection import ClientSettings, reach
from headrace.client.wire import Wire, require_no_error
from headrace.wire.protocol.messages import alter_client_quotas, describe_client_quotas

TYPES = ("user", "client-id", "ip")
LIMITS = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
    "connection_creation_rate",
)

Entity = Mapping[str, str | None]  # type -> name; None: the default


@dataclass(slots=True)
class Quota:
    entity: dict[str, str | None]
    limits: dict[str, float] = field(default_factory=dict)


class Quotas:
    """Limits on bytes, request time and connections: `admin.quotas`."""

    def __init__(self, connection: ClientSettings) -> None:
        self.connection = connection
        cluster = reach(connection.admin(), connection)
        broker = next(iter(cluster.brokers.values()))
        self._address = (str(broker.host), broker.port)

    def all(self) -> list[Quota]:
        request = describe_client_quotas.DescribeClientQuotasRequest([], False)
        with Wire(self.connection, self._address) as wire:
            answer = wire.ask(describe_client_quotas, request)
        require_no_error(answer.error_code, answer.error_message)
        found = [
            Quota(
                {part.entity_type: part.entity_name for part in entry.entity},
                {value.key: value.value for value in sorted(entry.values, key=lambda v: v.key)},
            )
            for entry in answer.entries
        ]
        return sorted(
            found, key=lambda quota: sorted((t, n or "") for t, n in quota.entity.items())
        )

    def alter(self, entity: Entity, limits: Mapping[str, float | None]) -> None:
        """Set limits; a limit of None is removed."""
        ops = [
            alter_client_quotas.OpData(key, 0.0 if value is None else value, value is None)
            for key, value in limits.items()
        ]
        parts = [alter_client_quotas.EntityData(kind, name) for kind, name in entity.items()]
        entry = alter_client_quotas.RequestEntryData(parts, ops)
        request = alter_client_quotas.AlterClientQuotasRequest([entry], False)
        with Wire(self.connection, self._address) as wire:
            [answer] = wire.ask(alter_client_quotas, request).entries
        require_no_error(answer.error_code, answer.error_message)
