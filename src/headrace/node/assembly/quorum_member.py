"""This node as a member of the metadata quorum: its folder, its log, its controller, its wake-ups.

A node that is alone formats a new folder by itself and finds all of its metadata in the folder. A
node with peers needs a formatted folder, and knows only its latest snapshot until it has found the
quorum's leader.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from headrace.environment import Address, Disk, Now, Peers
from headrace.node.assembly.node_settings import (
    NodeSettings,
    controller_settings,
    membership,
    quorum_timeouts,
)
from headrace.node.broker.folders.identity import (
    UnusableFolder,
    find_lost_metadata,
    read_identity,
    write_identity,
)
from headrace.node.broker.replicas.partitions import Partitions
from headrace.node.consensus.first_files import (
    METADATA_FOLDER,
    format_data_folder,
    new_cluster_records,
    read_bootstrap,
)
from headrace.node.consensus.metadata_log import MetadataLog
from headrace.node.consensus.metadata_recovery import prepare_log
from headrace.node.consensus.quorum.voter_history import key_of
from headrace.node.consensus.quorum.wire.names import Names
from headrace.node.consensus.voters import Voter
from headrace.node.controller.controller import Controller, Opening
from headrace.node.serving.api import Waitable
from headrace.node.serving.authorization import Authorizer
from headrace.node.storage.durability.durability import Durability
from headrace.wire.protocol import uuids

log = logging.getLogger(__name__)

# Calls `do` at a moment of monotonic time, on the loop.
CallAt = Callable[[int, Callable[[], None]], None]


class QuorumMember:
    def __init__(
        self,
        disk: Disk,
        settings: NodeSettings,
        now: Now,
        *,
        peers: Peers | None,
        partitions: Partitions,
        durability: Durability,
        randomness: Callable[[int], bytes],
        wake: Callable[[Waitable], None],
        authorizer: Authorizer | None,
    ) -> None:
        self._disk = disk
        self._settings = settings
        self._now = now
        self._alone = peers is None
        self._durability = durability
        self._randomness = randomness
        self._wakes_at_ms: int | None = None
        self._joins_by_itself: bool = (
            settings.is_controller and settings.values["controller.quorum.auto.join.enable"]
        )
        self.identity = read_identity(disk, settings.folder, settings.node_id, randomness)
        self._require_metadata(partitions.folders.paths)
        self.log = self._open_log(partitions)
        # How this start of the node registers with a controller.
        self.presented = membership(settings, randomness)
        self.controller = Controller(
            self.log,
            controller_settings(settings, alone=self._alone),
            now=now,
            new_id=lambda: uuids.random_id(randomness(16)),
            wake=wake,
            authorizer=authorizer,
        )
        self.log.join(
            listener=self.controller,
            peers=peers,
            names=Names(self.identity.cluster_id, settings.controller_endpoint.listener),
            bootstrap=settings.bootstrap,
            timeouts=quorum_timeouts(settings.values),
            chance=lambda below: int.from_bytes(randomness(8), "big") % below,
            wants_flush=durability.flushes,
            now=lambda: self._now,
            on_failure=self._failed,
            joins_by_itself=self._joins_by_itself,
        )

    # Start

    def _require_metadata(self, folders: tuple[str, ...]) -> None:
        """A node alone would begin an empty cluster, in which all its partitions are strays. Among
        others it fetches the metadata again, as Apache Kafka's nodes do."""
        partition = find_lost_metadata(self._disk, self._settings.folder)
        if partition is None or any(self._has_metadata(path) for path in folders):
            return  # the survey of the folders refuses a wrong order of them
        where = f"{self._settings.folder}/{METADATA_FOLDER}"
        if self._alone:
            raise UnusableFolder(
                f"{self._settings.folder} has lost its metadata: {where} has no log and no "
                f"snapshot, but there are partitions such as {partition}. The node does not start "
                "with empty metadata. Bring that folder back from a copy; for a new cluster name "
                "another folder with --data."
            )
        log.error(
            "%s has no log and no snapshot, but there are partitions such as %s: this node has "
            "lost its metadata and its votes, and fetches the metadata from the other controllers. "
            "What only this node and one that is gone had committed would be lost: let all other "
            "controllers run until `headrace cluster status` shows no metadata lag for this one.",
            *(where, partition),
        )

    def _has_metadata(self, folder: str) -> bool:
        if folder == self._settings.folder or folder in self._settings.failed_folders:
            return False
        try:
            return METADATA_FOLDER in self._disk.list(folder)
        except OSError:
            return False  # the survey says so

    def _open_log(self, partitions: Partitions) -> MetadataLog:
        settings, identity = self._settings, self.identity
        endpoints = (settings.controller_endpoint,)
        voter = Voter(settings.node_id, identity.directory_id, endpoints=endpoints)
        if identity.is_new:
            self._format(voter)
            write_identity(self._disk, settings.folder, identity)
        folder = f"{settings.folder}/{METADATA_FOLDER}"
        clean = partitions.was_closed_cleanly()
        opening = prepare_log(self._disk, folder, clean=clean, wall_ms=self._now.wall_ms)
        found = partitions.open_metadata_log(METADATA_FOLDER, *opening, clean=clean)
        opened = MetadataLog(
            self._disk,
            folder,
            found,
            voter=voter,
            configured=settings.static_voters,
            alone=self._alone,
        )
        opened.load(identity.cluster_id)
        return opened

    def _format(self, voter: Voter) -> None:
        if not self._alone:
            raise UnusableFolder(
                f"{self._settings.folder} is not formatted, and a node of several cannot know its "
                "cluster: run `headrace format` first."
            )
        format_data_folder(
            self._disk,
            self._settings.folder,
            voter=voter,
            records=new_cluster_records(),
            wall_ms=self._now.wall_ms,
        )

    def start(self) -> None:
        """Take part in the quorum. The only voter leads when this returns."""
        settings = self._settings
        read = partial(read_bootstrap, self._disk, settings.folder)
        if self.controller.image.metadata_version:
            read(needed=False)  # only to say that it is damaged, if it is
        self.controller.start(Opening(self.presented, read, settings.first_users))

    def say_who_votes(self) -> None:
        """After this node has caught up: log it if its id votes with another data folder than this
        one, or if it was removed and would join by itself."""
        if self._joins_by_itself and self.log.host.quorum.noted.was_removed:
            log.warning(
                "node %d was removed from the voters of the quorum, so it does not join again by "
                "itself. To have it back: headrace cluster add-voter %d --at HOST:PORT --execute",
                *(self.log.host.quorum.me.id, self.log.host.quorum.me.id),
            )
        key = self.log.host.quorum.me
        for voter in self.log.voters.latest:
            if voter.id == key.id and not key_of(voter).covers(key):
                log.warning(
                    "node %d is a voter of the quorum with another data folder, directory.id %s: "
                    "that of this one is %s, so it does not vote%s",
                    voter.id,
                    uuids.to_text(voter.directory_id),
                    uuids.to_text(key.directory_id),
                    " until that voter is removed, which this node asks for now"
                    if self._joins_by_itself
                    else ". If the other is lost, remove that voter and add this one "
                    "(kafka-metadata-quorum remove-controller, then add-controller)",
                )

    @property
    def is_to_join(self) -> bool:
        """Returns whether this node will become a voter (`controller.quorum.auto.join.enable`) and
        is not yet; False for a voter that was removed."""
        quorum = self.log.host.quorum
        return self._joins_by_itself and not quorum.is_voter and not quorum.noted.was_removed

    # For the node

    def active_controller(self) -> Address | None:
        """Returns the address of the quorum's leader, as far as this node knows it."""
        points = self.log.host.quorum.leader_endpoints
        name = self._settings.controller_endpoint.listener
        point = next((p for p in points if p.listener == name), points[0] if points else None)
        return None if point is None else Address(point.host, point.port, point.listener)

    def see_to_wake_up(self, call_at: CallAt) -> None:
        """The quorum has something to do at its next moment, whatever happens before."""
        wake_ms = self.log.host.next_ms()
        if self._wakes_at_ms is None or wake_ms < self._wakes_at_ms:
            self._wakes_at_ms = wake_ms
            call_at(wake_ms, partial(self._wake_up, wake_ms))

    def _wake_up(self, wake_ms: int) -> None:
        if self._wakes_at_ms == wake_ms:
            self._wakes_at_ms = None
            self.log.host.tick()

    def _failed(self, failure: OSError) -> None:
        self._durability.failure = self._durability.failure or failure
