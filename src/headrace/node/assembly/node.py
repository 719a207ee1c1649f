"""One node: a member of the metadata quorum, controller and broker, wired behind one dispatch.

The node owns no socket, thread or clock: `process/` gives it bytes through `dispatch`, calls
`end_turn` before replies leave, runs what the node submits on another thread, and calls the
`timers`. Every record that a reply acknowledges is written before `end_turn` returns.

Without `peers` it is a cluster of one: the only voter, which leads before the constructor returns.
With peers it takes part in its quorum from `join` on, as a voter or as an observer; other nodes'
decisions reach it through the metadata log. In both cases the broker sees the metadata only as
committed images.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from errno import EIO
from functools import partial
from typing import Any
from uuid import UUID

from headrace.environment import Address, Disk, Now, Peers
from headrace.node.assembly.cluster_links import ClusterLinks
from headrace.node.assembly.controller_at_hand import ControllerAtHand
from headrace.node.assembly.directory_assignments import DirectoryAssignments
from headrace.node.assembly.drawn import fraction, unique_digits
from headrace.node.assembly.folder_watch import FolderWatch
from headrace.node.assembly.node_settings import NodeSettings
from headrace.node.assembly.node_upkeep import NodeUpkeep
from headrace.node.assembly.quorum_member import CallAt, QuorumMember
from headrace.node.assembly.served import (
    FETCH,
    fetch_by_listener,
    for_clients,
    for_controllers,
    forwardable_apis,
    lines_of,
    served_apis,
)
from headrace.node.broker.audit import AUDITED, AuditTrail, is_audited
from headrace.node.broker.broker import Broker
from headrace.node.broker.cluster.controller_port import ControllerPort
from headrace.node.broker.folders.folder_moves import FolderMoves
from headrace.node.broker.folders.identity import UnusableFolder
from headrace.node.broker.recognized import recognition_of
from headrace.node.broker.records.lost_acknowledgements import Lost
from headrace.node.broker.replicas import log_scrubber
from headrace.node.broker.replicas.log_cleaner import LogCleaner, Runner
from headrace.node.broker.replicas.log_scrubber import LogScrubber
from headrace.node.broker.replicas.lost_replicas import logs_were_cut_back
from headrace.node.broker.replicas.partitions import Partitions
from headrace.node.metadata.config_definitions.authorizer import (
    OPEN_IF_NO_ENTRY,
    SUPER_USERS,
    open_if_no_entry,
    super_users,
)
from headrace.node.metadata.image import MetadataImage
from headrace.node.serving import envelopes
from headrace.node.serving.api import Api
from headrace.node.serving.audit_lines import Auditor, audited, denials_to
from headrace.node.serving.authorization import Authorizer
from headrace.node.serving.dispatch import Dispatch
from headrace.node.serving.envelopes import Envelopes
from headrace.node.serving.purgatory import Purgatory
from headrace.node.serving.quotas import Meter, quotas_of
from headrace.node.serving.route import Route
from headrace.node.serving.session import Session
from headrace.node.storage.durability.durability import Durability, Submit
from headrace.node.storage.durability.flush import Together, one_by_one
from headrace.node.storage.durability.folder_failures import FolderFailures
from headrace.node.storage.partition_log import PartitionLog
from headrace.wire.protocol.errors import KafkaError

log = logging.getLogger(__name__)

# The longest delay until a session or a rebalance is ended; costs microseconds if none is due.
COORDINATORS_LOOK_MS = 100
AUDIT_MS = 100
# The longest delay until an active controller fences a silent broker or shows that it is alive.
CONTROLLER_LOOKS_MS = 250
# The longest delay until a broker notices a new controller, or reports that it has caught up.
LINKS_LOOK_MS = 50
# How often a node that is alone records in its metadata the folders of new replicas.
DIRECTORIES_LOOK_MS = 1_000


class Node:
    def __init__(
        self,
        disk: Disk,
        settings: NodeSettings,
        now: Now,
        *,
        randomness: Callable[[int], bytes],
        submit: Submit,
        space: Callable[[str], tuple[int, int]],
        open_files: int,
        stopwatch: Callable[[], int] | None = None,
        request_clock: Callable[[], int] | None = None,
        compaction: Runner | None = None,
        scrub: log_scrubber.Runner | None = None,
        together: Together = one_by_one,
        peers: Peers | None = None,
    ) -> None:
        """`peers` None: a cluster of one.

        `compaction` None: no log is compacted, as with `log.cleaner.enable=false`.
        `scrub` None: closed segments are not read, as with `headrace.scrub.interval.ms=-1`.

        `request_clock` counts nanoseconds for the quota of request time; None: it is not held.
        """
        self.disk = disk
        self.settings = settings
        self.now = now  # both clocks; the loop sets them once per turn
        self.purgatory = Purgatory()
        log_dirs = settings.log_dirs or (settings.folder,)
        # A node cannot run without its metadata, so that folder does not fail alone.
        failures = FolderFailures(disk, [path for path in log_dirs if path != settings.folder])
        self._folder_failures = failures
        self.durability = Durability(disk, submit, now, failures)
        self.durability.on_loss = self._logs_were_cut_back
        self.lost: list[Lost] = []  # read by the code that can change answers which have not left
        self.peers = peers
        self.has_left = False
        self.stopped = False
        self._call_at: CallAt | None = None
        self._leaving = False
        self._answers_first = False
        self._submit = submit
        self._together = together  # how the flushes of a clean end are run
        self._randomness = randomness
        self.auditor = Auditor(now, enabled=is_audited(settings.values, settings.protocols))
        self.quotas = quotas_of(settings.values, now, request_clock)
        self._joined_at: int | None = None
        self.partitions = Partitions(
            disk,
            settings.folder,
            log_dirs,
            settings.given,
            now,
            randomness=randomness,
            unwritten=self.durability.unwritten,
            flushes=self.durability.log_flushes,
            failures=failures,
            open_files=open_files,
            space=space,
        )
        self.authorizer = self._authorizer()
        if self.authorizer is not None:
            self.authorizer.on_denied = denials_to(self.auditor)
        self.member = QuorumMember(
            disk,
            settings,
            now,
            peers=peers,
            partitions=self.partitions,
            durability=self.durability,
            randomness=randomness,
            wake=self.purgatory.wake,
            authorizer=self.authorizer,
        )
        self.controller = self.member.controller
        self.partitions.survey(self.member.identity, settings.failed_folders)
        self.links: ClusterLinks | None = None  # of a node with peers
        if peers is None:
            if (why := self.partitions.load_at_once(self.controller.image)) is not None:
                raise UnusableFolder(why)
            self.member.presented.log_dirs = self.partitions.folders.directories
        else:
            jitter = partial(fraction, randomness)
            self.links = ClusterLinks(
                peers, settings, now, self.purgatory, self.member, self.partitions, jitter=jitter
            )
        self.broker = self._open_broker()
        self.broker.is_left_behind = self.member.log.host.quorum.is_left_behind
        self.durability.unwritten.on_refusal = self.broker.append_refused
        unique = partial(unique_digits, randomness)
        self.broker.folder_moves = FolderMoves(self.broker, self.durability.log_flushes, unique)
        self.upkeep = NodeUpkeep(self, submit)
        self.folder_watch = FolderWatch(
            self.partitions,
            self.broker,
            tell=self._directory_failed,
            nothing_left=self.durability.give_up,
        )
        # For a single node with several folders: its metadata name the folder of each replica.
        self._directories: DirectoryAssignments | None = None
        if self.links is None and (len(log_dirs) > 1 or self.partitions.has_lost_folders):
            port = ControllerAtHand(self.controller, settings.node_id, self.purgatory)
            ask = partial(port.assign_replicas, now=now)
            self._directories = DirectoryAssignments(
                ask, now, settings.node_id, self.partitions.folders
            )
        if self.links is not None:
            self.links.attach(self.broker)
            self.controller.on_committed.append(self._open_partitions)
        self.controller.on_committed.append(self.broker.image_changed)
        self.controller.on_committed.append(self._limit_clients)
        self.controller.applied_offset = lambda: self.broker.applied_offset
        to_topic = settings.values["headrace.audit"] == "topic"
        self.audit = AuditTrail(self.auditor, self.broker, to_topic=to_topic)
        self.cleaner = self._open_cleaner(compaction)
        self.scrubber = self._open_scrubber(scrub)
        routes = [route for api in self._apis() for route in self._routes(self._audited(api))]
        self.dispatch = Dispatch(
            routes,
            self.purgatory,
            now,
            max_frame=settings.values["socket.request.max.bytes"],
            stopwatch=stopwatch,
        )
        if peers is None:
            self._start_quorum()

    def join(self, call_at: CallAt) -> None:
        """Take part in the quorum; of a node with peers, once its loop runs."""
        self._call_at = call_at
        self._start_quorum()

    def attend_to_refusals(self, is_refused: Callable[[Address], bool]) -> None:
        """Set how to find out that the host of another node refuses connections."""
        self.member.log.host.is_refused = is_refused
        if self.links is not None:
            self.links.probes.is_refused = is_refused

    @property
    def failure(self) -> OSError | None:
        """The disk is not to be trusted any more; None: it is."""
        return self.durability.failure

    @property
    def ready(self) -> bool:
        """The records of this start in the metadata log are committed, all logs are open, and the
        state of coordinators is loaded. With peers: all that the quorum had committed when this
        node had caught up, and the broker is unfenced."""
        if self._joined_at is None or self.broker.applied_offset < self._joined_at:
            return False
        return not self.broker.loads and (self.links is None or self.links.is_unfenced)

    def active_controller(self) -> Address | None:
        """Returns the address of the quorum's leader, as far as this node knows it."""
        return self.member.active_controller()

    @property
    def directory_id(self) -> bytes:
        """A random id, created with the data folder; shown to clients after their login."""
        return self.member.identity.directory_id

    def timers(self) -> Iterator[tuple[int, Callable[[], None]]]:
        yield from self.upkeep.timers()
        yield COORDINATORS_LOOK_MS, self.broker.tick
        yield AUDIT_MS, self.audit.write
        if self._directories is not None:
            yield DIRECTORIES_LOOK_MS, self._tell_directories
        if self.links is not None:
            yield CONTROLLER_LOOKS_MS, self._controller_looks
            yield LINKS_LOOK_MS, self.links.look

    def work(self, is_over: Callable[[], bool]) -> bool:
        """A slice of what takes long, until `is_over`; whether more is left."""
        broker, answers = self.broker, self.dispatch.long_answers
        changes, loads, chores = broker.changes, broker.loads, broker.chores
        replicated = broker.replica_fetching.answers
        if self.links is None and not (answers or changes or loads or chores or replicated):
            return False  # as in most turns
        self._answers_first = not self._answers_first  # what comes second may get one step only
        if answers and self._answers_first:
            answers.run(is_over)
        if changes:
            changes.run(is_over)
            self.controller.files_are_made()
        if loads:
            loads.run(is_over)
        if answers and not self._answers_first:
            answers.run(is_over)
        if chores:
            chores.run(is_over)
        if replicated:
            replicated.run(is_over)
        if self.links is not None:
            self.links.see_what_is_applied()
        return bool(changes or loads or chores or replicated) or not answers.waits

    def end_turn(self) -> bool:
        """Finish the turn before replies leave. Returns False if the disk has refused a write: some
        replies may be wrong then (`lost`), and the waiting requests must be tried again before the
        turn ends."""
        if not self.durability.end_turn():
            return False
        if self._folder_failures.untold:
            self.folder_watch.look()
            return False
        if self.controller.background:
            work = self.controller.background[:]
            self.controller.background.clear()
            for snapshot in work:
                self._submit(snapshot.run, snapshot.finish)
        if self._call_at is not None and not self.stopped:
            self.member.see_to_wake_up(self._call_at)
        return True

    def leave(self, *, at_once: bool = False) -> None:
        """Hand over what this node leads, while it serves on; `has_left` says when that is done.

        `at_once`: leave without asking or waiting for other nodes.
        """
        if self.links is None:
            self.has_left = True
        elif at_once:
            self._left()
        else:
            self.links.leave(self._left)

    def stop(self) -> None:
        """Leave the cluster if it has not, then close the logs; `stopped` says when it is done."""
        if self.cleaner is not None:
            self.cleaner.stop()
        if self.scrubber is not None:
            self.scrubber.stop()
        self.audit.write()
        if self.links is not None:
            self._leaving = True
            if self.has_left:
                self._close_logs()
            else:
                self.leave()
                self.end_turn()
            return
        try:
            self.controller.stop(self.now)
        except KafkaError:  # a full disk: who starts next finds that this node was there
            self._close_logs()
            return
        last = self.controller.image.offset

        def leave(image: MetadataImage) -> None:
            if image.offset >= last and not self._leaving:
                self._leaving = True
                self._close_logs()

        self.controller.on_committed.append(leave)
        self.end_turn()

    # Wiring

    def _routes(self, api: Api) -> Iterator[Route]:
        key = api.messages.API_KEY
        owner: Any = self.controller if api.owner == "controller" else self.broker
        if key == envelopes.API.messages.API_KEY:
            # The broker that the client has asked writes the audit line.
            enclosed = [route for each in forwardable_apis() for route in self._routes(each)]
            owner = Envelopes(
                enclosed, self.authorizer, lambda: self.controller.is_active, self._meter
            )
        for version in api.versions:
            yield Route(api, version, owner, recognition_of(key, version))

    def _apis(self) -> list[Api]:
        routing = None if self.links is None else self.links.routing
        served = served_apis(self.settings.controllers, routing)
        if routing is not None:
            served = [
                fetch_by_listener(api, self.controller, routing.listeners)
                if api.messages.API_KEY == FETCH
                else api
                for api in served
            ]
        return served

    def _audited(self, api: Api) -> Api:
        details = AUDITED.get(api.messages.API_KEY)
        return api if details is None else audited(api, self.auditor, details)

    def _limit_clients(self, image: MetadataImage) -> None:
        """Apply the client quotas of the image. Without quotas no request is measured."""
        self.dispatch.quotas = self.quotas if self.quotas.follow(image.client_quotas) else None

    def _meter(self, session: Session, frame: memoryview) -> Meter | None:
        """Returns the meter of a request that another broker has forwarded."""
        quotas = self.dispatch.quotas
        return None if quotas is None else quotas.meter(session, frame)

    def _authorizer(self) -> Authorizer | None:
        """The broker gives it the entries of each committed image; both roles ask it."""
        if not self.settings.values["authorizer.class.name"]:
            return None
        given = self.settings.given
        return Authorizer(
            super_users(given.get(SUPER_USERS, "")),
            open_if_no_entry=open_if_no_entry(given.get(OPEN_IF_NO_ENTRY, "false")),
        )

    def _controller_port(self) -> ControllerPort:
        if self.links is not None:
            return self.links.port
        return ControllerAtHand(self.controller, self.settings.node_id, self.purgatory)

    def _open_broker(self) -> Broker:
        settings = self.settings
        broker = Broker(
            settings.node_id,
            settings.given,
            settings.values,
            self.purgatory,
            self.partitions,
            now=self.now,
            new_session_id=lambda: int.from_bytes(self._randomness(4), "big") >> 1 or 1,
            new_member_id=lambda: str(UUID(bytes=self._randomness(16), version=4)),
            endpoints=settings.endpoints,
            controllers=settings.controllers,
            image=MetadataImage(cluster_id=self.member.identity.cluster_id),
            controller=self._controller_port(),
            flushes=self.durability.flushes,
            authorizer=self.authorizer,
            peers=self.peers,
        )
        lines = lines_of(self._apis())
        broker.served = for_clients(lines)
        broker.served_by_controllers = for_controllers(lines, alone=self.links is None)
        return broker

    def _open_cleaner(self, runner: Runner | None) -> LogCleaner | None:
        if runner is None or not self.settings.values["log.cleaner.enable"]:
            return None
        return LogCleaner(
            self.disk,
            self.partitions,
            self.broker.topics,
            self.now,
            runner,
            values=lambda: self.broker.values,
            in_background=self.durability.in_background,
        )

    def _open_scrubber(self, runner: log_scrubber.Runner | None) -> LogScrubber | None:
        if runner is None:
            return None
        return LogScrubber(
            self.disk,
            self.settings.folder,
            self.broker.topics,
            self.now,
            runner,
            values=lambda: self.broker.values,
            in_background=self.durability.in_background,
        )

    def _start_quorum(self) -> None:
        self.member.start()
        if self.peers is None:
            self._joined_at = self.controller.image.offset
        self.end_turn()

    def _left(self) -> None:
        """The broker leads nothing any more: neither does this node lead the quorum."""
        if not self.has_left:
            self.has_left = True
            self.member.log.host.resign()
            if self._leaving:
                self._close_logs()

    def _open_partitions(self, image: MetadataImage) -> None:
        """Open the partitions with the first image after this node has caught up with its quorum.
        Before, a topic that it did not know yet would have looked like a deleted one."""
        if self._joined_at is None and self.links is not None:
            self._joined_at = image.offset
            self.member.say_who_votes()
            # In slices: after a kill, opening 10,000 logs takes seconds, and a voter must answer
            # meanwhile. File changes of later images follow in the same lane.
            self.broker.changes.add(self._load_and_enter(image, self.links), image.offset)

    def _logs_were_cut_back(self, logs: Sequence[PartitionLog], why: str) -> None:
        self.lost += logs_were_cut_back(self.broker, logs, why)

    def _load_and_enter(self, image: MetadataImage, links: ClusterLinks) -> Iterator[None]:
        try:
            why = yield from self.partitions.load(image)
        except OSError as problem:
            self.durability.give_up(problem)
            return
        if why is not None:
            self.durability.give_up(OSError(EIO, why))
        self.member.presented.log_dirs = self.partitions.folders.directories
        if self.failure is None and not (self._leaving or self.has_left):
            links.enter(self.broker, self.partitions.last_broker_epoch)

    def _directory_failed(self, directory_id: bytes) -> None:
        if self.links is not None:
            self.links.directory_failed(directory_id)
        else:
            self.controller.directories_failed(self.settings.node_id, [directory_id], self.now)

    def _tell_directories(self) -> None:
        if self._directories is not None and not self.broker.changes:
            self._directories.look(self.broker.image, self.controller.broker_epoch)

    def _controller_looks(self) -> None:
        self.controller.tick(self.now)

    def _close_logs(self) -> None:
        """Close the logs. No requests are served any more, so this may wait for the disk."""
        self.broker.replica_fetching.stop()
        try:
            links = self.links
            epoch = self.controller.broker_epoch if links is None else links.epoch_of_clean_stop
            self.partitions.close(epoch, self.upkeep.high_watermarks(), self._together)
        except OSError as problem:
            log.critical("the shutdown is not clean: %s", problem)
            self.durability.failure = problem
        self.stopped = True
