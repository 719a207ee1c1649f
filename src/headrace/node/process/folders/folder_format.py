"""Formats the data folders of a node: their identity, and the first quorum.

The files are those of Apache's `kafka-storage format`, and so are the ways: a quorum of this node
alone (standalone), one of several named with their directory ids (initial controllers), or none,
for a node that joins a quorum which is there or has static voters. A folder that was formatted
before is refused, or left as it is. `meta.properties` is written last, so a format that was cut
short is done again. Folders besides the one with the metadata get their `meta.properties` alone.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from headrace.environment import Disk
from headrace.node.broker.folders.folder_survey import survey
from headrace.node.broker.folders.identity import (
    Identity,
    UnusableFolder,
    read_identity,
    write_identity,
)
from headrace.node.consensus.configured_voters import HIGHEST_PORT, STATIC_VOTERS
from headrace.node.consensus.first_files import write_first_files
from headrace.node.consensus.voters import Voter, VoterEndpoint
from headrace.node.metadata.features import (
    KRAFT_VERSION,
    METADATA_VERSION,
    NEW_CLUSTER_LEVELS,
    NOT_SERVED,
    SUPPORTED_FEATURES,
)
from headrace.node.process.folders.real_disk import FOLDER_MODE
from headrace.node.process.settings.settings import CannotStart, Settings
from headrace.wire.protocol import uuids
from headrace.wire.protocol.messages.feature_level_record import FeatureLevelRecord

_CONTROLLER = re.compile(
    r"(?P<id>[0-9]{1,9})@(?:\[(?P<six>[^]]+)\]|(?P<host>[^:@\[\]/]+)):(?P<port>[0-9]{1,5})"
    r":(?P<directory>[A-Za-z0-9_-]{22})"
)


def initial_controllers(text: str, listener: str) -> tuple[Voter, ...]:
    """Parses a list of ID@HOST:PORT:DIRECTORY-ID, as Apache's tools write it."""
    voters: dict[int, Voter] = {}
    for entry in (part.strip() for part in text.split(",")):
        found = _CONTROLLER.fullmatch(entry)
        if found is None or int(found["port"]) > HIGHEST_PORT:
            raise CannotStart(
                f"Initial controllers are a list of ID@HOST:PORT:DIRECTORY-ID, not '{entry}'."
            )
        endpoint = VoterEndpoint(listener, found["six"] or found["host"], int(found["port"]))
        voter = Voter(int(found["id"]), uuids.from_text(found["directory"]), (endpoint,))
        if voter.id in voters:
            raise CannotStart(f"The initial controllers name {voter.id} twice.")
        voters[voter.id] = voter
    return tuple(voters.values())


def levels_of(features: Mapping[str, str]) -> dict[str, int]:
    """The levels of a new cluster with those changed; a level of 0 has no record."""
    levels = dict(NEW_CLUSTER_LEVELS)
    for name, text in features.items():
        known = SUPPORTED_FEATURES.get(name)
        if known is None or name == KRAFT_VERSION:
            names = ", ".join(sorted(set(SUPPORTED_FEATURES) - {KRAFT_VERSION}))
            raise CannotStart(f"There is no feature {name} to choose; there are {names}.")
        if not text.isdecimal() or not known.lowest <= int(text) <= known.highest:
            raise CannotStart(f"{name} must be from {known.lowest} to {known.highest}, not {text}.")
        if name in NOT_SERVED and int(text):
            raise CannotStart(f"{name} must be 0: {NOT_SERVED[name]} are not served yet.")
        levels[name] = int(text)
    return levels


def format_folder(
    disk: Disk,
    settings: Settings,
    *,
    cluster_id: str | None,
    standalone: bool,
    controllers: tuple[Voter, ...] | None,
    levels: Mapping[str, int],
    randomness: Callable[[int], bytes],
    wall_ms: int,
) -> Identity:
    """`controllers` None: none were named. Answers whose the folder is now.

    A folder that was formatted already is answered with `is_new` false, and not touched.
    """
    try:
        identity = read_identity(disk, settings.log_dir, settings.node_id, randomness)
    except UnusableFolder as refusal:
        raise CannotStart(str(refusal)) from None
    if not identity.is_new:
        return identity
    if cluster_id is not None:
        identity.cluster_id = _cluster_id(cluster_id)
    voters = _voters(settings, identity, standalone, controllers)
    for voter in voters:
        if voter.id == settings.node_id:
            identity.directory_id = voter.directory_id
    records = [
        FeatureLevelRecord(name=name, feature_level=level)
        for name, level in levels.items()
        if level
    ]
    os.makedirs(settings.log_dir, mode=FOLDER_MODE, exist_ok=True)
    write_first_files(
        disk,
        settings.log_dir,
        voters=voters,
        records=records,
        wall_ms=wall_ms,
        metadata_version=levels[METADATA_VERSION],
    )
    write_identity(disk, settings.log_dir, identity)
    return identity


def format_other_folders(
    disk: Disk, settings: Settings, identity: Identity, randomness: Callable[[int], bytes]
) -> list[str]:
    """Formats the folders that are not formatted, for a node whose metadata folder is; returns
    them."""
    whole = replace(identity, is_new=False)
    try:
        found = survey(disk, settings.log_dirs, whole, settings.log_dir)
    except UnusableFolder as refusal:
        raise CannotStart(str(refusal)) from None
    for path, why in found.failed.items():
        raise CannotStart(f"The data folder {path} cannot be formatted: {why}.")
    for path in found.unformatted:
        os.makedirs(path, mode=FOLDER_MODE, exist_ok=True)
        directory = uuids.random_id(randomness(16))
        write_identity(disk, path, replace(whole, directory_id=directory))
    return found.unformatted


def _cluster_id(text: str) -> str:
    """Accepts, like Apache's tool, any text that could be a cluster id, to keep the ids of older
    clusters."""
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", text):
        raise CannotStart(f"'{text}' is not a cluster id: 22 letters, digits, - and _.")
    return text


def _voters(
    settings: Settings,
    identity: Identity,
    standalone: bool,
    controllers: Sequence[Voter] | None,
) -> tuple[Voter, ...]:
    cluster = settings.cluster
    if cluster.static_voters and (controllers or (standalone and not cluster.may_begin_alone)):
        raise CannotStart(
            f"{STATIC_VOTERS} says who votes: name no first controllers, or leave it out."
        )
    if not cluster.is_controller and (standalone or controllers):
        raise CannotStart("This node is no controller (process.roles), so it begins no quorum.")
    if standalone:
        return (Voter(settings.node_id, identity.directory_id, (settings.controller_endpoint,)),)
    if controllers and settings.node_id not in {voter.id for voter in controllers}:
        raise CannotStart(f"The initial controllers do not name node.id={settings.node_id}.")
    return tuple(controllers or ())
