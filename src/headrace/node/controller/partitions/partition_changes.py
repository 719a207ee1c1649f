"""The change of one partition as one record: replicas, in-sync replicas and leader.

`partition_change` gets the wanted change and finds its consequences, in Apache's order: a
reassignment whose new replicas are all in sync is completed; replicas that leave the ISR below
`min.insync.replicas` stay eligible to lead (KIP-966); a leader is elected; the leader epoch grows
if a replica is removed, so that its fetches are refused. Returns None if nothing changes. Pure: the
image is only read. It does not decide whether a change is allowed: `partition_elections.py`,
`reassignments.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from headrace.node.controller.partitions.placement import default_directory
from headrace.node.metadata.features import ELIGIBLE_LEADER_REPLICAS_VERSION
from headrace.node.metadata.image import (
    BROKER_RESOURCE,
    NO_LEADER,
    TOPIC_RESOURCE,
    UNASSIGNED_DIRECTORY,
    MetadataImage,
    PartitionImage,
    TopicImage,
)
from headrace.wire.protocol.messages.partition_change_record import PartitionChangeRecord

RECOVERING = 1
MIN_IN_SYNC_REPLICAS = "min.insync.replicas"
UNCLEAN_ELECTION = "unclean.leader.election.enable"


class Election(Enum):
    """The replicas that may be elected if the leader cannot stay."""

    ONLINE = "a replica that has everything"
    PREFERRED = "the first replica, if it has everything, even where another leads well"
    UNCLEAN = "any replica that is alive, if none that has everything is"


@dataclass(slots=True)
class Wanted:
    """The wanted state of a partition; begins as its present state."""

    replicas: list[int]
    isr: list[int]
    adding: list[int]
    removing: list[int]
    eligible: list[int]  # may lead though not in sync: they have all acknowledged records
    leader: int
    unclean: bool = False  # the leader may lack records that were acknowledged
    recovery_state: int | None = None  # of the leader; None: unchanged
    directories: dict[int, bytes] = field(default_factory=dict)  # of replicas that move
    emptied: set[int] = field(default_factory=set)  # replicas whose log was lost with its folder


def as_it_is(partition: PartitionImage) -> Wanted:
    return Wanted(
        replicas=list(partition.replicas),
        isr=list(partition.isr),
        adding=list(partition.adding_replicas),
        removing=list(partition.removing_replicas),
        eligible=list(partition.eligible_leader_replicas),
        leader=partition.leader,
    )


def partition_change(
    image: MetadataImage,
    topic: TopicImage,
    index: int,
    wanted: Wanted,
    *,
    min_in_sync_replicas: int,
    election: Election = Election.ONLINE,
    without: Collection[int] = (),
    distrusted: Collection[int] = (),
) -> PartitionChangeRecord | None:
    """`min_in_sync_replicas` is the static default, for topics without a value of their own.

    Brokers in `without` cannot lead, whatever the image shows; those that are `distrusted` may have
    lost records, so they do not stay eligible either.
    """
    partition = topic.partitions[index]
    elr_enabled = image.features.get(ELIGIBLE_LEADER_REPLICAS_VERSION, 0) > 0
    complete_reassignment(wanted)
    if elr_enabled:
        minimum = required_in_sync(image, topic.name, min_in_sync_replicas)
        _keep_eligible(wanted, partition, min(minimum, len(partition.replicas)), distrusted)
    may_lead = leadership(image, partition, (*without, *distrusted))
    last_known = _last_known(partition, wanted) if elr_enabled else []
    wanted.leader, wanted.unclean = elected(wanted, last_known, may_lead, election)
    if wanted.leader != partition.leader:
        if wanted.leader in wanted.eligible:
            wanted.isr = [wanted.leader]
            wanted.eligible.remove(wanted.leader)
        elif wanted.unclean:
            wanted.isr = [wanted.leader]
    if wanted.unclean or not elr_enabled:
        wanted.eligible = []
    is_led_in_sync = wanted.leader in (NO_LEADER, *wanted.isr)
    assert is_led_in_sync or partition.leader not in partition.isr, "a leader is in sync"
    return _record(image, topic, index, wanted, elr_enabled=elr_enabled)


def complete_reassignment(wanted: Wanted) -> None:
    """Complete the reassignment once all remaining replicas are in sync: remove the others."""
    if not wanted.adding and not wanted.removing:
        return
    replicas = [replica for replica in wanted.replicas if replica not in wanted.removing]
    isr = [replica for replica in wanted.isr if replica not in wanted.removing]
    if replicas and isr and set(replicas) <= set(isr):
        wanted.replicas, wanted.isr = replicas, isr
        wanted.adding, wanted.removing = [], []


def elected(
    wanted: Wanted,
    last_known: Sequence[int],
    may_lead: Callable[[int], bool],
    election: Election,
) -> tuple[int, bool]:
    """Returns the new leader, and whether the election may lose records; NO_LEADER if no replica
    can lead."""

    def has_everything(replica: int) -> bool:
        complete = wanted.isr or wanted.eligible
        return replica in complete and may_lead(replica)

    preferred = wanted.replicas[0]
    if election is Election.PREFERRED and has_everything(preferred):
        return preferred, False
    if has_everything(wanted.leader):
        return wanted.leader, False
    for replica in wanted.replicas:
        if has_everything(replica):
            return replica, False
    nobody_is_complete = not wanted.isr and not wanted.eligible
    if nobody_is_complete and len(last_known) == 1 and may_lead(last_known[0]):
        return last_known[0], True
    if election is Election.UNCLEAN:
        for replica in wanted.replicas:
            if may_lead(replica):
                return replica, True
    return NO_LEADER, False


def leadership(
    image: MetadataImage, partition: PartitionImage, without: Collection[int] = ()
) -> Callable[[int], bool]:
    """Returns whether a replica is on a live broker and in a folder that is not lost."""
    folders = dict(zip(partition.replicas, partition.directories, strict=False))

    def may_lead(replica: int) -> bool:
        broker = image.brokers.get(replica)
        if broker is None or not broker.alive or replica in without:
            return False
        return broker.has_directory(folders.get(replica, UNASSIGNED_DIRECTORY))

    return may_lead


def required_in_sync(image: MetadataImage, topic: str, default: int) -> int:
    for resource in ((TOPIC_RESOURCE, topic), (BROKER_RESOURCE, "")):
        value = image.config(*resource).get(MIN_IN_SYNC_REPLICAS)
        if value is not None:
            return int(value)
    return default


def election_allowed(image: MetadataImage, topic: str, *, static: bool = False) -> Election:
    """Returns which replicas may lead when the controller itself elects: a topic may allow unclean
    elections. `static` applies if neither the topic nor the cluster has a setting."""
    for resource in ((TOPIC_RESOURCE, topic), (BROKER_RESOURCE, "")):
        value = image.config(*resource).get(UNCLEAN_ELECTION)
        if value is not None:
            return Election.UNCLEAN if value.lower() == "true" else Election.ONLINE
    return Election.UNCLEAN if static else Election.ONLINE


def change(topic: TopicImage, index: int, **changes: Any) -> PartitionChangeRecord:
    """Returns a record with only the changed fields; the other fields mean "unchanged"."""
    record = PartitionChangeRecord()
    record.partition_id = index
    record.topic_id = topic.id
    for name, value in changes.items():
        setattr(record, name, value)
    return record


def _keep_eligible(
    wanted: Wanted, partition: PartitionImage, minimum: int, distrusted: Collection[int]
) -> None:
    if len(wanted.isr) >= minimum:
        wanted.eligible = []
        return
    candidates = {*wanted.eligible, *partition.isr}
    # A broker that is no longer a replica has deleted its log, and may come back as a replica
    # without records.
    candidates.intersection_update(wanted.replicas)
    wanted.eligible = sorted(candidates.difference(wanted.isr, distrusted))


def _record(
    image: MetadataImage, topic: TopicImage, index: int, wanted: Wanted, *, elr_enabled: bool
) -> PartitionChangeRecord | None:
    """The record has only what differs from the present partition."""
    partition = topic.partitions[index]
    folders = dict(zip(partition.replicas, partition.directories, strict=False))
    folders |= wanted.directories
    directories = [
        folders[replica] if replica in folders else default_directory(image.brokers[replica])
        for replica in wanted.replicas
    ]
    changes: dict[str, Any] = {}
    gone = not set(partition.replicas) <= set(wanted.replicas)
    if wanted.leader != partition.leader or gone:
        changes["leader"] = wanted.leader
    # Without eligible leaders the last in-sync replica must stay.
    if (wanted.isr or elr_enabled) and tuple(wanted.isr) != partition.isr:
        changes["isr"] = wanted.isr
    if wanted.unclean and wanted.leader != partition.leader:
        changes["leader_recovery_state"] = RECOVERING
    elif wanted.recovery_state not in (None, partition.leader_recovery_state):
        changes["leader_recovery_state"] = wanted.recovery_state
    if elr_enabled:
        changes |= _last_known_leader(partition, wanted, changes)
    for name, new, old in (
        ("eligible_leader_replicas", wanted.eligible, partition.eligible_leader_replicas),
        ("directories", directories, partition.directories),
        ("replicas", wanted.replicas, partition.replicas),
        ("removing_replicas", wanted.removing, partition.removing_replicas),
        ("adding_replicas", wanted.adding, partition.adding_replicas),
    ):
        if tuple(new) != old:
            changes[name] = new
    return change(topic, index, **changes) if changes else None


def _last_known(partition: PartitionImage, wanted: Wanted) -> list[int]:
    """A replica that has lost its folder since then has no log to lead with."""
    return [replica for replica in partition.last_known_elr if replica not in wanted.emptied]


def _last_known_leader(
    partition: PartitionImage, wanted: Wanted, changes: dict[str, Any]
) -> dict[str, Any]:
    """The last leader is kept while no replica is in sync, and dropped when a replica leads."""
    if wanted.emptied.intersection(partition.last_known_elr):
        return {"last_known_elr": []}
    if changes.get("isr") == []:
        known = partition.last_known_elr == (partition.leader,)
        return {} if known else {"last_known_elr": [partition.leader]}
    if wanted.leader != NO_LEADER and partition.last_known_elr:
        return {"last_known_elr": []}
    return {}
