"""Rules of replication, each broken on purpose: the seeds must notice every one of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from headrace.node.controller.members import broker_registrations
from headrace.node.controller.partitions import (
    in_sync_changes,
    partition_changes,
    partition_elections,
)
from headrace.node.controller.partitions.partition_changes import Election
from headrace.node.replication.follower_progress import FollowerProgress
from headrace.node.replication.partition_leader import LeaderRole
from headrace.node.replication.replica import Replica
from headrace.node.replication.this_broker import ThisBroker
from headrace.wire.protocol.errors import ErrorCode

Patch = pytest.MonkeyPatch
Rule = Callable[[Patch], None]


def acknowledge_before_replication(patch: Patch) -> None:
    patch.setattr(Replica, "outcome_of", lambda self, end, since: ErrorCode.NONE)


def high_watermark_of_the_leader_alone(patch: Patch) -> None:
    patch.setattr(LeaderRole, "committed", lambda self, own, end, minimum: own)


def high_watermark_without_who_joins(patch: Patch) -> None:
    """The controller may have agreed already, and nobody waits for the new member."""
    patch.setattr(LeaderRole, "maximal_isr", property(lambda self: self.isr))
    patch.setattr(LeaderRole, "_is_about_to_join", lambda *given: False)


def high_watermark_below_the_minimum(patch: Patch) -> None:
    """It moves with the leader alone in sync, so those who are eligible lack what was shown."""
    committed = LeaderRole.committed
    patch.setattr(
        LeaderRole, "committed", lambda self, own, end, minimum: committed(self, own, end, 0)
    )


def leave_before_the_controller_agrees(patch: Patch) -> None:
    shrink = LeaderRole.shrink

    def at_once(self: LeaderRole, end_offset: int, now_ms: int) -> Any:
        shrunk = shrink(self, end_offset, now_ms)
        if shrunk is not None:
            self.isr = frozenset(shrunk)
        return shrunk

    patch.setattr(LeaderRole, "shrink", at_once)
    high_watermark_below_the_minimum(patch)


def no_truncation(patch: Patch) -> None:
    patch.setattr(Replica, "find_divergence", lambda self, epoch, offset: None)


def truncation_to_the_high_watermark(patch: Patch) -> None:
    """As before KIP-101: a follower that lags in its high watermark cuts what is committed."""
    follow = Replica._follow

    def cut_first(self: Replica[Any], partition: Any) -> None:
        is_new = self.following is None or self.following.epoch != partition.leader_epoch
        follow(self, partition)
        if is_new and self.high_watermark < self.log.end_offset:
            self.log.truncate(self.high_watermark, wall_ms=0)

    patch.setattr(Replica, "_follow", cut_first)


def join_below_the_epochs_start(patch: Patch) -> None:
    def grow(self: LeaderRole, replica: int, high_watermark: int) -> Any:
        if self.proposal is not None or replica in self.isr:
            return None
        self.joining = replica
        return (*sorted(self.isr), replica)

    patch.setattr(LeaderRole, "grow", grow)


def join_without_broker_epochs(patch: Patch) -> None:
    """An earlier start of the broker has fetched what this one has lost."""
    patch.setattr(
        ThisBroker,
        "may_join_isr",
        lambda self, broker_id, epoch, directory: (
            broker_id in self.brokers and self.brokers[broker_id].alive
        ),
    )
    patch.setattr(ThisBroker, "is_outdated", lambda self, broker_id, epoch: False)
    patch.setattr(
        in_sync_changes,
        "is_eligible",
        lambda image, partition, member: image.brokers[member.broker_id].alive,
    )
    unclean_stops_are_trusted(patch)


def stale_proposals_count(patch: Patch) -> None:
    patch.setattr(in_sync_changes, "find_fault", lambda *given: None)


def unclean_elections(patch: Patch) -> None:
    def any_replica(*given: Any, **more: Any) -> Election:
        return Election.UNCLEAN

    for module in (partition_changes, partition_elections, in_sync_changes):
        patch.setattr(module, "election_allowed", any_replica)


def leaders_from_all_replicas(patch: Patch) -> None:
    elected = partition_changes.elected

    def anybody(wanted: Any, last_known: Any, may_lead: Any, election: Any) -> Any:
        if may_lead(wanted.leader):
            return elected(wanted, last_known, may_lead, election)
        alive = [replica for replica in wanted.replicas if may_lead(replica)]
        return (alive[-1], False) if alive else (-1, False)

    patch.setattr(partition_changes, "elected", anybody)


def unclean_stops_are_trusted(patch: Patch) -> None:
    def nobody(*given: Any) -> Iterator[Any]:
        return iter(())

    patch.setattr(broker_registrations, "broker_is_distrusted", nobody)


def success_after_the_leadership_is_lost(patch: Patch) -> None:
    """A producer waits on at a leader that was deposed, until it sees others' records pass."""

    def outcome_of(self: Replica[Any], end_offset: int, led_since: int) -> Any:
        return None if self.high_watermark < end_offset else ErrorCode.NONE

    patch.setattr(Replica, "outcome_of", outcome_of)


def followers_have_what_they_were_sent(patch: Patch) -> None:
    """The leader counts what it has answered, not what the follower asks for next."""
    fetched = FollowerProgress.fetched

    def too_early(self: FollowerProgress, offset: int, **more: Any) -> None:
        fetched(self, more["leader_end_offset"], **more)

    patch.setattr(FollowerProgress, "fetched", too_early)


BROKEN: tuple[Rule, ...] = (
    acknowledge_before_replication,
    high_watermark_of_the_leader_alone,
    high_watermark_without_who_joins,
    high_watermark_below_the_minimum,
    leave_before_the_controller_agrees,
    no_truncation,
    truncation_to_the_high_watermark,
    join_below_the_epochs_start,
    join_without_broker_epochs,
    stale_proposals_count,
    unclean_elections,
    leaders_from_all_replicas,
    unclean_stops_are_trusted,
    success_after_the_leadership_is_lost,
    followers_have_what_they_were_sent,
)
