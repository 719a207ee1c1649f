"""One node: controller and broker wired together behind one door.

A KRaft cluster of one. The node owns no socket, thread or clock: `server/` gives it bytes through
`dispatch`, calls `end_turn` before replies leave, runs what the node submits on another thread, and
calls the `timers`. Whatever a reply promises is written before `end_turn` returns.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from headrace.broker.audit import AUDITED, AuditTrail, is_audited
from headrace.broker.broker import Broker, Endpoint
from headrace.broker.identity import read_identity, write_identity
from headrace.broker.log_cleaner import LogCleaner, Runner
from headrace.broker.lost_acknowledgements import Lost
from headrace.broker.partitions import Partitions
from headrace.broker.recognized import recognition_of
from headrace.consensus.formatting import (
    METADATA_FOLDER,
    format_data_folder,
    new_cluster_records,
    read_bootstrap,
)
from headrace.consensus.metadata_log import MetadataLog
from headrace.consensus.metadata_recovery import prepare_log
from headrace.consensus.voters import Voter, VoterEndpoint
from headrace.controller.brokers import Membership
from headrace.controller.controller import Controller, ControllerSettings
from headrace.controller.topics import EffectiveConfig, TopicRules
from headrace.controller_at_hand import ControllerAtHand
from headrace.environment import Disk, Now
from headrace.metadata import configs
from headrace.metadata.config_definitions.authorizer import (
    OPEN_IF_NO_ENTRY,
    SUPER_USERS,
    open_if_no_entry,
    super_users,
)
from headrace.metadata.config_validation import validate_topic_configs
from headrace.metadata.image import Endpoint as AdvertisedEndpoint
from headrace.metadata.image import MetadataImage
from headrace.protocol import uuids
from headrace.protocol.errors import KafkaError
from headrace.served import for_controllers, lines_of, served_apis
from headrace.serving.api import Api
from headrace.serving.auditing import Auditor, audited, denials_to
from headrace.serving.authorization import Authorizer
from headrace.serving.dispatch import Dispatch
from headrace.serving.purgatory import Purgatory
from headrace.serving.quotas import quotas_of
from headrace.serving.route import Route
from headrace.storage.durability import Durability, Submit
from headrace.storage.flush import FlushOfEverything, Together, one_by_one
from headrace.storage.partition_log import PartitionLog

log = logging.getLogger(__name__)

# How late a session or a rebalance may be ended; costs microseconds while nothing is due.
COORDINATORS_LOOK_MS = 100
AUDIT_MS = 100


@dataclass(slots=True)
class NodeSettings:
    node_id: int
    folder: str
    # Passwords are among both, so they are not shown.
    values: Mapping[str, Any] = field(repr=False)  # broker settings by Kafka's names, typed
    given: Mapping[str, str] = field(repr=False)  # those that were set, as text
    endpoints: dict[str, Endpoint]  # what clients of each listener are told
    controller_endpoint: VoterEndpoint
    # What those are told who come by a controller's listener, by its name; none: there is none.
    controllers: dict[str, Endpoint] = field(default_factory=dict)
    protocols: Mapping[str, int] = field(default_factory=dict)  # by listener; Kafka's numbers
    # Records of users that a cluster without any gets.
    first_users: Sequence[Any] = field(default=(), repr=False)


class Node:
    def __init__(
        self,
        disk: Disk,
        settings: NodeSettings,
        now: Now,
        *,
        randomness: Callable[[int], bytes],
        submit: Submit,
        space: Callable[[], tuple[int, int]],
        open_files: int,
        stopwatch: Callable[[], int] | None = None,
        request_clock: Callable[[], int] | None = None,
        compaction: Runner | None = None,
        together: Together = one_by_one,
    ) -> None:
        """`compaction` None: no log is compacted, as with `log.cleaner.enable=false`.

        `request_clock` counts nanoseconds for the quota of request time; None: it is not held.
        """
        self.disk = disk
        self.settings = settings
        self.now = now  # both clocks; the loop sets them once per turn
        self.purgatory = Purgatory()
        self.durability = Durability(disk, submit, now)
        self.durability.on_loss = self._logs_were_cut_back
        self.lost: list[Lost] = []  # taken by whoever can change answers that have not left
        self.stopped = False
        self._leaving = False
        self._answers_first = False
        self._submit = submit
        self._together = together  # how the flushes of a clean end are run
        self._randomness = randomness
        self.auditor = Auditor(now, enabled=is_audited(settings.values, settings.protocols))
        self.quotas = quotas_of(settings.values, now, request_clock)
        self.partitions = Partitions(
            disk,
            settings.folder,
            settings.given,
            now,
            randomness=randomness,
            unwritten=self.durability.unwritten,
            flushes=self.durability.log_flushes,
            open_files=open_files,
            space=space,
        )
        self.authorizer = self._authorizer()
        if self.authorizer is not None:
            self.authorizer.on_denied = denials_to(self.auditor)
        self.controller = self._open_controller()
        self.broker = self._open_broker()
        self.durability.unwritten.on_refusal = self.broker.disk_refused
        self.controller.on_committed.append(self.broker.image_changed)
        self.controller.on_committed.append(self._limit_clients)
        self.controller.applied_offset = lambda: self.broker.applied_offset
        to_topic = settings.values["headrace.audit"] == "topic"
        self.audit = AuditTrail(self.auditor, self.broker, to_topic=to_topic)
        self.cleaner = self._open_cleaner(compaction)
        routes = [
            Route(
                api,
                version,
                self.controller if api.owner == "controller" else self.broker,
                recognition_of(api.messages.API_KEY, version),
            )
            for api in self._apis()
            for version in api.versions
        ]
        self.dispatch = Dispatch(
            routes,
            self.purgatory,
            now,
            max_frame=settings.values["socket.request.max.bytes"],
            stopwatch=stopwatch,
        )
        self._join_cluster()

    @property
    def failure(self) -> OSError | None:
        """The disk is not to be trusted any more; None: it is."""
        return self.durability.failure

    @property
    def ready(self) -> bool:
        """What this start has written to the metadata log is committed, all logs are open, and what
        coordinators keep is loaded."""
        return self.broker.applied_offset >= self._joined_at and not self.broker.loads

    @property
    def directory_id(self) -> bytes:
        """Random, made with the data folder; no client is told before it has logged in."""
        return self._identity.directory_id

    def timers(self) -> Iterator[tuple[int, Callable[[], None]]]:
        values = self.settings.values
        yield values["log.retention.check.interval.ms"], self._apply_retention
        yield values["log.flush.offset.checkpoint.interval.ms"], self._checkpoint
        often_ms = values["replica.high.watermark.checkpoint.interval.ms"]
        yield often_ms, self._checkpoint_high_watermarks
        yield values["producer.id.expiration.check.interval.ms"], self.partitions.expire_producers
        yield 1_000, self._every_second
        yield COORDINATORS_LOOK_MS, self.broker.tick
        yield AUDIT_MS, self.audit.write

    def work(self, is_over: Callable[[], bool]) -> bool:
        """A slice of what takes long, until `is_over`; whether more is left."""
        changes, loads = self.broker.changes, self.broker.loads
        answers = self.dispatch.long_answers
        may_answer = not self.dispatch.holds_back
        self._answers_first = not self._answers_first  # what comes second may get one step only
        if answers and may_answer and self._answers_first:
            answers.run(is_over)
        if changes:
            changes.run(is_over)
            self.controller.files_are_made()
        if loads:
            loads.run(is_over)
        if answers and may_answer and not self._answers_first:
            answers.run(is_over)
        replicated = self.broker.replica_fetching.answers
        if replicated:
            replicated.run(is_over)
        is_busy = bool(changes) or bool(loads) or bool(replicated)
        return is_busy or (may_answer and bool(answers))

    def end_turn(self) -> bool:
        """Before replies leave. False: some promise what the disk refused (`lost`), wrongly."""
        if not self.durability.end_turn():
            return False
        if self.controller.background:
            work, self.controller.background = self.controller.background, []
            for snapshot in work:
                self._submit(snapshot.run, snapshot.finish)
        return True

    def stop(self) -> None:
        """Leave the cluster, then close the logs; `stopped` says when it is done."""
        if self.cleaner is not None:
            self.cleaner.stop()
        self.audit.write()
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

    def _apis(self) -> list[Api]:
        return [self._audited(api) for api in served_apis(self.settings.controllers)]

    def _audited(self, api: Api) -> Api:
        details = AUDITED.get(api.messages.API_KEY)
        return api if details is None else audited(api, self.auditor, details)

    def _limit_clients(self, image: MetadataImage) -> None:
        """Where nobody is limited, nobody is measured."""
        self.dispatch.quotas = self.quotas if self.quotas.follow(image.client_quotas) else None

    def _authorizer(self) -> Authorizer | None:
        """The broker gives it the entries of each committed image; both roles ask it."""
        if not self.settings.values["authorizer.class.name"]:
            return None
        given = self.settings.given
        return Authorizer(
            super_users(given.get(SUPER_USERS, "")),
            open_if_no_entry=open_if_no_entry(given.get(OPEN_IF_NO_ENTRY, "false")),
        )

    def _open_controller(self) -> Controller:
        settings = self.settings
        identity = read_identity(self.disk, settings.folder, settings.node_id, self._randomness)
        voter = Voter(
            settings.node_id, identity.directory_id, endpoints=(settings.controller_endpoint,)
        )
        if identity.is_new:
            format_data_folder(
                self.disk,
                settings.folder,
                voter=voter,
                records=new_cluster_records(),
                wall_ms=self.now.wall_ms,
            )
            write_identity(self.disk, settings.folder, identity)
        folder = f"{settings.folder}/{METADATA_FOLDER}"
        clean = self.partitions.was_closed_cleanly()
        opening = prepare_log(self.disk, folder, clean=clean, wall_ms=self.now.wall_ms)
        found = self.partitions.open_metadata_log(METADATA_FOLDER, *opening, clean=clean)
        metadata_log = MetadataLog(self.disk, folder, found, voter=voter)
        metadata_log.load(identity.cluster_id)
        self._identity = identity
        self.partitions.load(metadata_log.image)
        return Controller(
            metadata_log,
            self._controller_settings(),
            new_id=lambda: uuids.random_id(self._randomness(16)),
            wants_flush=self.durability.flushes,
            wake=self.purgatory.wake,
            authorizer=self.authorizer,
        )

    def _controller_settings(self) -> ControllerSettings:
        values = self.settings.values
        return ControllerSettings(
            node_id=self.settings.node_id,
            topic_rules=TopicRules(
                num_partitions=values["num.partitions"],
                default_replication_factor=values["default.replication.factor"],
                delete_topic_enable=values["delete.topic.enable"],
                validate_configs=self._validate_topic,
                describe_configs=self._describe_new_topic,
            ),
            given=self.settings.given,
            min_in_sync_replicas=values["min.insync.replicas"],
            session_timeout_ms=values["broker.session.timeout.ms"],
            balance_leaders=values["auto.leader.rebalance.enable"],
            balance_interval_ms=values["leader.imbalance.check.interval.seconds"] * 1_000,
            open_listeners=frozenset(self.settings.controllers),
            snapshot_after_bytes=values["metadata.log.max.record.bytes.between.snapshots"],
            snapshot_after_ms=values["metadata.log.max.snapshot.interval.ms"],
            retention_bytes=values["metadata.max.retention.bytes"],
            retention_ms=values["metadata.max.retention.ms"],
        )

    def _validate_topic(self, image: MetadataImage, own: dict[str, str]) -> None:
        defaults = configs.topic_defaults(self.settings.given, image.configs)
        validate_topic_configs(own, defaults)

    def _describe_new_topic(
        self, image: MetadataImage, own: dict[str, str]
    ) -> Iterator[EffectiveConfig]:
        for found in configs.describe_topic(self.settings.given, image.configs, own):
            yield EffectiveConfig(*found)

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
            image=MetadataImage(cluster_id=self._identity.cluster_id),
            controller=ControllerAtHand(self.controller, settings.node_id, self.purgatory),
            flushes=self.durability.flushes,
            authorizer=self.authorizer,
        )
        broker.served = lines_of(self._apis())
        broker.served_by_controllers = for_controllers(broker.served)
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

    def _join_cluster(self) -> None:
        settings = self.settings
        membership = Membership(
            node_id=settings.node_id,
            incarnation_id=uuids.random_id(self._randomness(16)),
            controller_incarnation_id=uuids.random_id(self._randomness(16)),
            endpoints=tuple(
                AdvertisedEndpoint(
                    name, endpoint.host, endpoint.port, settings.protocols.get(name, 0)
                )
                for name, endpoint in settings.endpoints.items()
            ),
            controller_endpoints=(
                AdvertisedEndpoint(
                    settings.controller_endpoint.listener,
                    settings.controller_endpoint.host,
                    settings.controller_endpoint.port,
                    settings.protocols.get(settings.controller_endpoint.listener, 0),
                ),
            ),
            log_dirs=(self._identity.directory_id,),
            rack=settings.values["broker.rack"],
        )
        is_new = not self.controller.image.metadata_version
        bootstrap = read_bootstrap(self.disk, settings.folder, needed=is_new)
        self.controller.start(membership, bootstrap, self.now)
        if not self.controller.image.scram_credentials:
            self.controller.append(settings.first_users, self.now)
        self._joined_at = self.controller.image.offset
        self.end_turn()

    def _logs_were_cut_back(self, logs: Sequence[PartitionLog], why: str) -> None:
        self.lost += self.broker.logs_were_cut_back(logs, why)

    # What is done again and again

    def _apply_retention(self) -> None:
        for topic in list(self.broker.topics.by_name.values()):
            for leader in topic.here():
                self.partitions.apply_retention(leader.log, leader.high_watermark)
        wait_ms = self.settings.values["headrace.stray.retention.ms"]
        self.durability.in_background(self.partitions.stray_work(wait_ms))

    def _checkpoint(self) -> None:
        self.durability.in_background(self.partitions.checkpoint_work(self._high_watermarks()))

    def _checkpoint_high_watermarks(self) -> None:
        """A node that is alone has all of its logs committed, and need not remember how far."""
        if len(self.broker.image.brokers) > 1:
            work = self.partitions.high_watermark_work(self._high_watermarks())
            if work is not None:
                self.durability.in_background(work)

    def _high_watermarks(self) -> dict[tuple[str, int], int]:
        return {
            (leader.topic, leader.index): leader.high_watermark
            for topic in self.broker.topics.by_name.values()
            for leader in topic.here()
        }

    def _every_second(self) -> None:
        self.controller.tick(self.now)
        if self.cleaner is not None:
            self.cleaner.tick()
        self.durability.every_second()
        unwritten = self.durability.unwritten
        if not unwritten.gathers and self.broker.disk_is_quiet():
            unwritten.gather_again()
        if self.broker.unopened and not self.broker.changes:
            self.broker.open_what_had_no_room()
        for found in self.partitions.due_flushes(self.now.monotonic_ms):
            self.durability.log_flushes.append(FlushOfEverything(found))
        for work in self.partitions.due_work():
            self.durability.in_background(work)

    def _close_logs(self) -> None:
        """Nobody is served any more, so this may wait for the disk."""
        self.broker.replica_fetching.stop()
        try:
            epoch = self.controller.broker_epoch
            self.partitions.close(epoch, self._high_watermarks(), self._together)
        except OSError as problem:
            log.critical("the shutdown is not clean: %s", problem)
            self.durability.failure = problem
        self.stopped = True
