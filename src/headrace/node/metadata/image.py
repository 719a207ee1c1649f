"""The knowledge of the cluster as one immutable view: the sum of all metadata records so far.

`image.apply(records, ...)` gives a new image and leaves the old one as it was; parts that did not
change are the same objects, so a reader finds changes by identity (`changes.py`). Nothing in an
image may be changed by anyone: the dictionaries are typed as Mapping to say so.

Records between BeginTransaction and EndTransaction wait in `transaction` and count all at once or
not at all. How each record changes the image is in `replay.py`; how an image becomes records
again is in `snapshot_records.py`. Does not know files, offsets of clients or who decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from headrace.node.metadata.features import (
    KRAFT_VERSION,
    METADATA_VERSION,
    SHARE_VERSION,
    STREAMS_VERSION,
    LevelRange,
)

NO_LEADER = -1

# Kafka's types of configured resources.
TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4

# Reserved directory ids (KIP-858): the folder of a replica is not known yet; not chosen yet;
# offline.
MIGRATING_DIRECTORY = bytes(16)
UNASSIGNED_DIRECTORY = bytes(15) + b"\x01"
LOST_DIRECTORY = bytes(15) + b"\x02"

ResourceKey = tuple[int, str]  # type and name; the name "" is the default of all brokers
QuotaEntity = tuple[tuple[str, str | None], ...]  # (type, name) pairs sorted by type


class InconsistentMetadata(Exception):
    """A record that contradicts the ones before it: the log is not one that a controller wrote."""


class Endpoint(NamedTuple):
    name: str
    host: str
    port: int
    security_protocol: int = 0  # PLAINTEXT


@dataclass(slots=True, frozen=True)
class BrokerImage:
    id: int
    epoch: int  # offset of its registration; a new one for each start
    incarnation_id: bytes
    endpoints: tuple[Endpoint, ...]
    features: Mapping[str, LevelRange]
    rack: str | None
    fenced: bool
    in_controlled_shutdown: bool
    log_dirs: tuple[bytes, ...]
    cordoned_log_dirs: tuple[bytes, ...] | None = None
    is_migrating_zk_broker: bool = False

    @property
    def alive(self) -> bool:
        return not self.fenced and not self.in_controlled_shutdown

    def has_directory(self, directory: bytes) -> bool:
        """Returns whether a replica in that directory is available. One that was not assigned yet
        is."""
        if directory in (UNASSIGNED_DIRECTORY, MIGRATING_DIRECTORY):
            return True
        return directory != LOST_DIRECTORY and (not self.log_dirs or directory in self.log_dirs)


@dataclass(slots=True, frozen=True)
class ControllerImage:
    id: int
    incarnation_id: bytes
    endpoints: tuple[Endpoint, ...]
    features: Mapping[str, LevelRange]
    zk_migration_ready: bool = False


class PartitionImage(NamedTuple):
    """A tuple, since a replay makes one per change: a quarter of a frozen dataclass's price."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int  # NO_LEADER if none
    leader_epoch: int
    partition_epoch: int  # grows with every change, for AlterPartition
    directories: tuple[bytes, ...]
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()
    leader_recovery_state: int = 0  # 1: the leader recovers from an unclean election
    eligible_leader_replicas: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()


class TopicImage(NamedTuple):
    name: str
    id: bytes
    partitions: tuple[PartitionImage, ...]


_EMPTY: Mapping[Any, Any] = {}


@dataclass(slots=True, frozen=True)
class MetadataImage:
    cluster_id: str
    offset: int = -1  # of the last record that was applied
    epoch: int = 0  # of the controller that wrote it
    wall_ms: int = 0  # its timestamp
    features: Mapping[str, int] = field(default_factory=dict)  # finalized by metadata records
    kraft_version: int = 0  # finalized by the quorum itself
    brokers: Mapping[int, BrokerImage] = field(default_factory=dict)
    controllers: Mapping[int, ControllerImage] = field(default_factory=dict)
    topics: Mapping[str, TopicImage] = field(default_factory=dict)
    topics_by_id: Mapping[bytes, TopicImage] = field(default_factory=dict)
    configs: Mapping[ResourceKey, Mapping[str, str]] = field(default_factory=dict)
    client_quotas: Mapping[QuotaEntity, Mapping[str, float]] = field(default_factory=dict)
    next_producer_id: int = 0
    acls: Mapping[bytes, Any] = field(default_factory=dict)  # AccessControlEntryRecord by id
    scram_credentials: Mapping[tuple[str, int], Any] = field(default_factory=dict)
    delegation_tokens: Mapping[str, Any] = field(default_factory=dict)
    zk_migration_state: int = 0
    unknown: tuple[Any, ...] = ()  # UnknownRecords, in order
    transaction: tuple[Any, ...] | None = None  # records that wait for the end of their transaction

    @property
    def metadata_version(self) -> int:
        """0 as long as nothing is finalized: the log is new."""
        return self.features.get(METADATA_VERSION, 0)

    @property
    def finalized_features(self) -> Mapping[str, int]:
        """All finalized levels, as clients see them."""
        if not self.kraft_version:
            return self.features
        return {**self.features, KRAFT_VERSION: self.kraft_version}

    @property
    def serves_share_groups(self) -> bool:
        return self.features.get(SHARE_VERSION, 0) > 0

    @property
    def serves_streams_groups(self) -> bool:
        return self.features.get(STREAMS_VERSION, 0) > 0

    def config(self, resource_type: int, name: str) -> Mapping[str, str]:
        return self.configs.get((resource_type, name), _EMPTY)

    def apply(
        self, records: Iterable[Any], *, offset: int, epoch: int, wall_ms: int
    ) -> MetadataImage:
        """The image after `records`, the last of which is at `offset` of the metadata log."""
        from headrace.node.metadata.replay import (
            Draft,  # it builds images, so it imports this module
        )

        draft = Draft(self)
        for record in records:
            draft.replay(record)
        return draft.finish(offset=offset, epoch=epoch, wall_ms=wall_ms)


def tells_clients_the_same(before: MetadataImage, image: MetadataImage) -> bool:
    """Returns whether answers made from one image are valid for the other. A controller, for
    example, writes a record twice a second to show that it is alive; the encoded answers about many
    topics must not be rebuilt each time."""
    told = ("topics", "brokers", "controllers", "configs", "acls", "features")
    return all(getattr(before, each) is getattr(image, each) for each in told)
