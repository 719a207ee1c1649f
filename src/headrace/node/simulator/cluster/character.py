"""The character of a seed's run of a whole cluster: its nodes, its clients, its faults, its
promise.

Each seed has a character of its own, so that meetings that are rare on the whole are common in
some runs. Drawn by a Random of its own, so what a run does is the same whatever is drawn here.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from enum import Enum, auto

# Seeds before are drawn as ever: rules broken on purpose are known to be caught by them.
FIRST_WITH_MORE = 6
FIRST_WITH_DELETIONS = 31
FIRST_WITH_DAMAGE = 6_000
FIRST_WITH_TORN_WRITES = 20_000  # power cuts of one, two or all nodes, and no damage
QUIET_PARTITIONS = 4  # of __consumer_offsets, where a quiet group has one for itself


class Promise(Enum):
    """The promise, and so the faults that may come together."""

    ONE_AT_A_TIME = "replicas: one node at a time may lose unflushed bytes or its disk"
    FLUSHED = "headrace.durability=disk: any number of nodes may crash at once"
    BEYOND = "nothing: all nodes lose their unflushed bytes at once"


class Blow(Enum):
    """The possible next events of a run."""

    CRASH = auto()  # a machine dies, and what was not flushed is gone
    POWER_CUT = auto()  # all machines at once
    KILL = auto()  # a process dies
    STOP = auto()
    PAUSE = auto()
    LOSE_DISK = auto()
    CUT = auto()
    CUT_ONE_WAY = auto()
    CUT_PAIR = auto()
    HEAL = auto()
    WEATHER = auto()
    CLOCK = auto()
    SLOW_DISK = auto()
    CUT_COORDINATOR = auto()  # of a group, from the other nodes; clients still reach it
    REFUSE = auto()  # a firewall refuses connections to a node that is alive
    BREAK_FOLDER = auto()  # the second data folder of a node, which lives on
    FILL_DISK = auto()  # of a node, which lives on
    DELETE_SEGMENT = auto()  # of a node that is down, from a partition's log
    DAMAGE_LEADER = auto()  # a flipped bit in a closed segment of a leader
    CUT_POWER = auto()  # of one, two or all machines, in the middle of their writes


CAME_LATER = (
    Blow.CUT_COORDINATOR,
    Blow.REFUSE,
    Blow.BREAK_FOLDER,
    Blow.FILL_DISK,
    Blow.DELETE_SEGMENT,
    Blow.DAMAGE_LEADER,
    Blow.CUT_POWER,
)


class Action(Enum):
    """The possible actions of an administrator."""

    MAKE_TOPIC = auto()
    DELETE_TOPIC = auto()
    CONFIGURE = auto()
    REASSIGN = auto()
    ELECT = auto()
    CHANGE_VOTERS = auto()
    MOVE_REPLICA = auto()  # to the other data folder of its node


@dataclass(slots=True)
class Character:
    promise: Promise
    spare: str = ""  # a fourth node: "", "broker", or "both" (that may become a voter)
    quiet_group: bool = False  # one that commits seldom, alone in its partition
    two_folders: bool = False  # each node has two data folders
    joins_by_itself: bool = False  # a controller that does not vote asks for it
    plain: int = 1  # partitions with a plain producer each
    idempotent: int = 0
    trimmed: bool = False  # a topic whose records are deleted while its replicas move
    transactional: int = 0  # producers
    classic_members: int = 0
    consumer_members: int = 0
    actions: tuple[Action, ...] = ()
    blows: tuple[Blow, ...] = ()
    count: int = 8  # of blows
    longest_rest_ms: int = 12_000  # between two blows
    settings: dict[str, str | int] = field(default_factory=dict)


def character(seed: int) -> Character:
    chance = random.Random(f"character {seed}")
    promise = Promise.FLUSHED if chance.random() < 0.3 else Promise.ONE_AT_A_TIME
    if seed >= FIRST_WITH_TORN_WRITES:
        promise = Promise.FLUSHED
    drawn = Character(promise)
    drawn.spare = chance.choice(("", "", "", "broker", "both"))
    drawn.plain = chance.choice((1, 2, 3))
    drawn.idempotent = chance.choice((0, 1, 2))
    if chance.random() < 0.5:
        drawn.transactional = chance.choice((1, 2))
    group = chance.choice(("", "", "classic", "consumer"))
    drawn.classic_members = 2 if group == "classic" else 0
    drawn.consumer_members = 2 if group == "consumer" else 0
    if chance.random() < 0.6:
        drawn.actions = _actions(chance, drawn.spare)
    drawn.blows = _blows(chance, promise)
    drawn.count = chance.choice((4, 8, 12))
    drawn.longest_rest_ms = chance.choice((2_000, 8_000, 15_000))
    drawn.settings = _settings(chance, promise)
    if seed >= FIRST_WITH_MORE:
        _add_what_came_later(random.Random(f"more of {seed}"), drawn)
        _add_folders(random.Random(f"disks of {seed}"), drawn)
    if seed >= FIRST_WITH_DELETIONS:
        _add_deletions(random.Random(f"deleted in {seed}"), drawn)
    if seed >= FIRST_WITH_TORN_WRITES:
        drawn.blows += (Blow.CUT_POWER,) * len(drawn.blows)
    elif seed >= FIRST_WITH_DAMAGE:
        _add_damage(random.Random(f"damage in {seed}"), drawn)
    return drawn


def _add_what_came_later(chance: random.Random, drawn: Character) -> None:
    """Uses a Random of its own, so that other seeds give the same runs as before."""
    if chance.random() < 0.3:
        drawn.blows += (Blow.REFUSE,) * chance.choice((1, 2, 4))
    if chance.random() < 0.3:
        drawn.joins_by_itself = True
        drawn.settings["controller_quorum_auto_join_enable"] = "true"
    if chance.random() < 0.4:
        _make_quiet(drawn)


def _add_folders(chance: random.Random, drawn: Character) -> None:
    if chance.random() < 0.3:
        drawn.two_folders = True
        drawn.blows += (Blow.BREAK_FOLDER,) * chance.choice((1, 3, 6))
        drawn.actions += (Action.MOVE_REPLICA,) * chance.choice((0, 2, 5))


def _add_deletions(chance: random.Random, drawn: Character) -> None:
    if chance.random() < 0.3:
        drawn.trimmed = True
        if chance.random() < 0.5:  # whole segments are before the new start
            drawn.settings["log_roll_ms"] = chance.choice((1_000, 5_000))


def _add_damage(chance: random.Random, drawn: Character) -> None:
    for blow in (Blow.FILL_DISK, Blow.DELETE_SEGMENT, Blow.DAMAGE_LEADER):
        drawn.blows += (blow,) * chance.choice((0, 2, 5))
    drawn.settings["log_roll_ms"] = 1_000  # so that there are closed segments


def _make_quiet(drawn: Character) -> None:
    """Few clients and long pauses: sessions end, and the state after that is visible for a
    while."""
    drawn.quiet_group = True
    drawn.settings["offsets_topic_num_partitions"] = QUIET_PARTITIONS
    drawn.plain, drawn.idempotent = 1, 0
    drawn.blows += (Blow.CUT_COORDINATOR,) * 5
    drawn.count, drawn.longest_rest_ms = min(drawn.count, 6), 30_000


def beyond(seed: int) -> Character:
    """Every machine loses its unflushed bytes at once, and only page caches had the records."""
    drawn = Character(Promise.BEYOND, plain=3, blows=(Blow.POWER_CUT,), count=2)
    drawn.settings = _settings(random.Random(f"beyond {seed}"), Promise.BEYOND)
    return drawn


def _actions(chance: random.Random, spare: str) -> tuple[Action, ...]:
    usual = [Action.MAKE_TOPIC, Action.DELETE_TOPIC, Action.CONFIGURE, Action.ELECT]
    drawn = [action for action in usual if chance.random() < 0.7]
    drawn += [Action.REASSIGN] * chance.choice((0, 1, 3))
    if spare == "both":
        drawn += [Action.CHANGE_VOTERS] * 3
    return tuple(drawn)


def _blows(chance: random.Random, promise: Promise) -> tuple[Blow, ...]:
    """Draws none, some or many faults of each kind, and at least one in all."""
    drawn = [Blow.CRASH, Blow.CUT]
    for blow in Blow:
        if blow in CAME_LATER or (blow is Blow.POWER_CUT and promise is not Promise.FLUSHED):
            continue
        drawn += [blow] * chance.choice((0, 1, 1, 2))
    if promise is Promise.FLUSHED:
        drawn += [Blow.POWER_CUT] * 2
    return tuple(drawn)


def _settings(chance: random.Random, promise: Promise) -> dict[str, str | int]:
    settings: dict[str, str | int] = {
        "default_replication_factor": 3,
        "min_insync_replicas": 2,
        "offsets_topic_num_partitions": chance.choice((1, 2)),
        "offsets_topic_replication_factor": 3,
        "transaction_state_log_num_partitions": chance.choice((1, 2)),
        "transaction_state_log_replication_factor": 3,
        "transaction_state_log_min_isr": 2,
        "group_initial_rebalance_delay_ms": 0,
        "group_consumer_session_timeout_ms": 10_000,
        "group_consumer_min_session_timeout_ms": 10_000,
        "group_consumer_heartbeat_interval_ms": 2_000,
        "group_consumer_min_heartbeat_interval_ms": 2_000,
        "leader_imbalance_check_interval_seconds": chance.choice((5, 30, 300)),
        "replica_lag_time_max_ms": chance.choice((5_000, 10_000, 30_000)),
        "replica_high_watermark_checkpoint_interval_ms": chance.choice((1_000, 5_000)),
        "log_flush_offset_checkpoint_interval_ms": chance.choice((2_000, 60_000)),
    }
    if chance.random() < 0.3:  # snapshots, and a log that does not reach back to its beginning
        settings["metadata_log_max_record_bytes_between_snapshots"] = 1_000
        settings["metadata_max_retention_bytes"] = 2_000
    if promise is Promise.FLUSHED:
        settings["headrace_durability"] = "disk"
    return settings
