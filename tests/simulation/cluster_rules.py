"""Rules of whole nodes, each broken on purpose: the fixed seeds of clusters must catch every one.

A broken rule is a patch of one small function. No checker knows the rules: they know what clients
were told and what all nodes have (`node/simulator/cluster/`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from headrace.node.broker.broker import Broker
from headrace.node.broker.coordinators.confirmed_reads import Read
from headrace.node.broker.coordinators.coordinators import Coordinator
from headrace.node.broker.replicas import in_sync_upkeep
from headrace.node.consensus import quorum_host
from headrace.node.consensus.quorum import noted_election, vote_rules
from headrace.node.consensus.quorum.machine import Quorum
from headrace.node.consensus.quorum.roles import Leader
from headrace.node.consensus.quorum.voter_history import VoterHistory
from headrace.node.replication.partition_follower import FollowerRole
from headrace.node.replication.replica import Replica
from headrace.node.simulator.disk import VirtualDisk, VirtualFile
from headrace.node.storage.log_copy import LogCopy
from headrace.node.storage.producer_state import ProducerState
from headrace.node.storage.recovery.recovery import Loader
from tests.simulation.test_quorum_nodes import vote_without_a_flush
from tests.unit.node.replication import broken_rules as replication

Patch = pytest.MonkeyPatch
Rule = Callable[[Patch], None]


def commit_what_the_controller_alone_has(patch: Patch) -> None:
    patch.setattr(Leader, "commit_point", lambda self, voters, me, my_end: my_end)


def vote_for_a_shorter_log(patch: Patch) -> None:
    patch.setattr(vote_rules, "is_up_to_date", lambda request, mine: True)


def roles_before_the_registration(patch: Patch) -> None:
    """A node takes up what it led before its crash, with what the crash has left."""
    patch.setattr(Broker, "await_registration", lambda self, incarnation_id: None)


def readers_see_open_transactions(patch: Patch) -> None:
    patch.setattr(Replica, "last_stable_offset", lambda self: self.high_watermark)


def aborted_transactions_are_not_told(patch: Patch) -> None:
    patch.setattr(Replica, "aborted_transactions", lambda self, offset, records: [])


def duplicates_are_appended_again(patch: Patch) -> None:
    patch.setattr(ProducerState, "check", lambda self, *given: None)


def coordinators_answer_before_replication(patch: Patch) -> None:
    patch.setattr(Coordinator, "_when_committed", lambda self, leader, response, now: response)


def coordinators_tell_without_a_word_of_their_followers(patch: Patch) -> None:
    patch.setattr(Read, "is_confirmed", True)


def flushes_do_nothing(patch: Patch) -> None:
    """`headrace.durability=disk` that believes a disk which has not written anything."""
    patch.setattr(VirtualFile, "flush", lambda self: None)


def copies_take_the_place_before_they_are_whole(patch: Patch) -> None:
    """Of a log that moves to another data folder: what came since is left behind."""
    patch.setattr(LogCopy, "is_whole", property(lambda copy: copy.copy.size_bytes > 0))


def a_log_that_begins_within_a_batch_is_not_followed(patch: Patch) -> None:
    """After DeleteRecords the leader sends the whole batch, and the follower refuses it."""
    patch.setattr(FollowerRole, "_begin_with_batch", lambda self, records, wall_ms: None)


def lost_segments_are_not_looked_for(patch: Patch) -> None:
    """A replica without them is back in the ISR, and readers get fewer records."""
    patch.setattr(Loader, "_note_holes", lambda self, *given: None)
    patch.setattr(Loader, "_note_hole_before", lambda self, *given: None)


def damaged_leaders_stay(patch: Patch) -> None:
    patch.setattr(in_sync_upkeep, "give_up_if_unfit", lambda replica, now_ms: False)


def full_disks_end_nodes(patch: Patch) -> None:
    """A member of the quorum that cannot write ends, instead of following without a vote."""
    patch.setattr(noted_election, "is_full", lambda problem: False)
    patch.setattr(quorum_host, "is_full", lambda problem: False)


def leaders_count_what_they_have_not_flushed(patch: Patch) -> None:
    """`headrace.durability=disk`: a record is shown and acknowledged before the leader's flush."""
    patch.setattr(Replica, "vouched_end", lambda self: self.log.end_offset)


def the_name_of_a_vote_is_not_flushed(patch: Patch) -> None:
    """`quorum-state` is whole after a power cut, but may be the one of an earlier epoch."""
    write_file = VirtualDisk.write_file

    def write(disk: VirtualDisk, path: str, pieces: Iterable[bytes], *, flush: bool = True) -> None:
        is_vote = path.endswith("/quorum-state")
        write_file(disk, path, pieces, flush=flush and not is_vote)
        if is_vote:
            disk.open(path).flush()

    patch.setattr(VirtualDisk, "write_file", write)


# Seeds that see it, the cheapest first: 0.1 to 0.8 s of processor time each. A change of the
# simulator, or of what it runs, moves what happens in a seed; the test then looks through others
# and is slow: `python -m tests.simulation.renew RULE` finds seeds that cost less.
def removed_voters_join_again(patch: Patch) -> None:
    patch.setattr(Quorum, "_note_removal", lambda self: None)
    patch.setattr(VoterHistory, "has_named", lambda self, replica: False)


CAUGHT_BY: dict[Rule, tuple[int, ...]] = {
    replication.acknowledge_before_replication: (2,),
    replication.high_watermark_of_the_leader_alone: (2,),
    replication.no_truncation: (189, 1),
    replication.followers_have_what_they_were_sent: (1531, 1086, 1),
    replication.leaders_from_all_replicas: (10,),
    replication.unclean_elections: (2094, 1198),
    replication.unclean_stops_are_trusted: (2043,),
    commit_what_the_controller_alone_has: (1491, 3624, 4266),
    vote_for_a_shorter_log: (937, 3033, 5109),
    roles_before_the_registration: (2596, 2155),
    readers_see_open_transactions: (230, 1),
    aborted_transactions_are_not_told: (230, 1),
    duplicates_are_appended_again: (1065,),
    coordinators_answer_before_replication: (104, 285, 114),
    coordinators_tell_without_a_word_of_their_followers: (104, 114, 343),
    flushes_do_nothing: (2732, 2293, 893),
    copies_take_the_place_before_they_are_whole: (25,),
    a_log_that_begins_within_a_batch_is_not_followed: (48,),
    lost_segments_are_not_looked_for: (6788,),
    damaged_leaders_stay: (10502,),
    full_disks_end_nodes: (11659,),
    leaders_count_what_they_have_not_flushed: (20001, 20004, 20008),
    the_name_of_a_vote_is_not_flushed: (20000, 20001, 20006),
    vote_without_a_flush: (20000, 20003),
    removed_voters_join_again: (1074,),
}
