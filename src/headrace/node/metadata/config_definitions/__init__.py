"""Every setting of Kafka 4.3 by name, one table per kind of resource; `definition.py` defines the
content of a row, `rows.py` how it is written.

KAFKA_BROKER_SETTINGS has Kafka's defaults, BROKER_SETTINGS ours (`headrace.py` says which and why).
"""

from __future__ import annotations

from dataclasses import replace

from headrace.node.metadata.config_definitions.cluster import CLUSTER
from headrace.node.metadata.config_definitions.coordination import COORDINATION
from headrace.node.metadata.config_definitions.definition import Definition
from headrace.node.metadata.config_definitions.group import CLIENT_METRICS_SETTINGS, GROUP_SETTINGS
from headrace.node.metadata.config_definitions.headrace import DEFAULTS, OWN
from headrace.node.metadata.config_definitions.network import NETWORK
from headrace.node.metadata.config_definitions.operation import OPERATION, REPLICATION_RATES
from headrace.node.metadata.config_definitions.security import SECURITY
from headrace.node.metadata.config_definitions.sharing import SHARING
from headrace.node.metadata.config_definitions.storage import STORAGE
from headrace.node.metadata.config_definitions.tiered import TIERED
from headrace.node.metadata.config_definitions.topic import TOPIC_SETTINGS

KAFKA_BROKER_SETTINGS: dict[str, Definition] = {
    row.name: row
    for row in (
        *CLUSTER,
        *NETWORK,
        *STORAGE,
        *COORDINATION,
        *SHARING,
        *OPERATION,
        *SECURITY,
        *TIERED,
    )
}

BROKER_SETTINGS: dict[str, Definition] = {
    **KAFKA_BROKER_SETTINGS,
    **{row.name: row for row in OWN},
    **{
        name: replace(KAFKA_BROKER_SETTINGS[name], default=default)
        for name, default in DEFAULTS.items()
    },
}

__all__ = [
    "BROKER_SETTINGS",
    "CLIENT_METRICS_SETTINGS",
    "GROUP_SETTINGS",
    "KAFKA_BROKER_SETTINGS",
    "REPLICATION_RATES",
    "TOPIC_SETTINGS",
]
