"""Feature levels of a cluster: which are finalized, which are supported, and how to change them.

Uses our own codecs: librdkafka lacks these requests. Any broker answers; it passes a change on to
the controller.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.client.admin.group_coordinators import GroupCoordinators
from headrace.client.admin.share_groups import SHARE
from headrace.client.admin.streams_groups import STREAMS
from headrace.client.connection import ClientSettings, reach
from headrace.client.errors import ClientError
from headrace.client.wire import require_no_error, wire_to_any
from headrace.wire.protocol.messages import (
    api_versions,
    share_fetch,
    share_group_describe,
    streams_group_describe,
    streams_group_heartbeat,
    update_features,
)

UPGRADE, SAFE_DOWNGRADE = 1, 2
# A finalized feature promises clients some APIs; these are the APIs of each feature.
SHARE_VERSION, STREAMS_VERSION = "share.version", "streams.version"
SERVED_BY = {
    SHARE_VERSION: share_fetch.API_KEY,
    STREAMS_VERSION: streams_group_heartbeat.API_KEY,
}
# The kind of group that a level announces, and an API of these groups.
GROUPS_OF = {
    SHARE_VERSION: (SHARE, share_group_describe),
    STREAMS_VERSION: (STREAMS, streams_group_describe),
}


@dataclass(slots=True)
class Feature:
    name: str
    level: int  # finalized; 0: not finalized
    lowest: int  # the lowest that the broker supports
    highest: int
    served: bool = True  # False: the broker lacks the APIs that this level promises


class Features:
    def __init__(self, connection: ClientSettings) -> None:
        self.connection = connection
        brokers = reach(connection.admin(), connection).brokers.values()
        self._addresses = [(str(broker.host), broker.port) for broker in brokers]

    def all(self) -> list[Feature]:
        with wire_to_any(self.connection, self._addresses) as wire:
            asked = api_versions.ApiVersionsRequest("headrace", "1")
            answer = wire.ask(api_versions, asked)
        require_no_error(answer.error_code)
        served = {api.api_key for api in answer.api_keys}
        levels = {one.name: one.max_version_level for one in answer.finalized_features}
        return [
            Feature(
                one.name,
                levels.get(one.name, 0),
                one.min_version,
                one.max_version,
                SERVED_BY.get(one.name) is None or SERVED_BY[one.name] in served,
            )
            for one in sorted(answer.supported_features, key=lambda one: str(one.name))
        ]

    def _require_no_groups(self, feature: str) -> None:
        """Raise if groups of the feature's kind exist. Their members would be refused; the
        controller does not know of groups."""
        kind, api = GROUPS_OF[feature]
        found = sorted(GroupCoordinators(self.connection, self._addresses).states(kind, api))
        if found:
            raise ClientError(
                f"{feature} stays: there are {len(found)} {kind} groups, such as "
                f"{found[0]}. Delete them first (headrace groups delete)."
            )

    def change(self, levels: Mapping[str, int]) -> None:
        """Change all of these levels or none."""
        now = {one.name: one.level for one in self.all()}
        for name in levels:
            if name not in now:
                raise ClientError(f"There is no feature {name}; there are {', '.join(now)}.")
        for feature in GROUPS_OF:
            if levels.get(feature, 1) < now.get(feature, 0):
                self._require_no_groups(feature)
        updates = [
            update_features.FeatureUpdateKey(
                name,
                level,
                allow_downgrade=level < now[name],
                upgrade_type=SAFE_DOWNGRADE if level < now[name] else UPGRADE,
            )
            for name, level in levels.items()
        ]
        timeout_ms = int(self.connection.timeout_s * 1000)
        with wire_to_any(self.connection, self._addresses) as wire:
            answer = wire.ask(
                update_features, update_features.UpdateFeaturesRequest(timeout_ms, updates)
            )
        for one in answer.results:
            require_no_error(one.error_code, one.error_message)
        require_no_error(answer.error_code, answer.error_message)
