"""A data folder, and a metadata log and controller on it, as a node would put them together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from headrace.environment import Now
from headrace.node.consensus.first_files import (
    METADATA_FOLDER,
    format_data_folder,
    new_cluster_records,
    read_bootstrap,
)
from headrace.node.consensus.metadata_log import MetadataLog
from headrace.node.consensus.metadata_recovery import prepare_log
from headrace.node.consensus.quorum.machine import Timeouts
from headrace.node.consensus.quorum.wire.names import Names
from headrace.node.consensus.voters import Voter, VoterEndpoint
from headrace.node.controller.controller import Controller, Opening
from headrace.node.controller.controller_settings import ControllerSettings
from headrace.node.controller.members.brokers import Membership
from headrace.node.controller.topics import TopicRules
from headrace.node.metadata.image import Endpoint
from headrace.node.process.folders.real_disk import RealDisk
from headrace.node.serving.purgatory import Purgatory
from headrace.node.storage.durability.open_files import OpenFiles
from headrace.node.storage.durability.unwritten import Unwritten
from headrace.node.storage.log_settings import LogSettings
from headrace.node.storage.partition_log import PartitionLog
from headrace.wire.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

DIRECTORY_ID = b"directory-of-1".ljust(16)
CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"


def id_source() -> Callable[[], bytes]:
    numbers = count(1)
    return lambda: b"id" + next(numbers).to_bytes(14, "big")


@dataclass(slots=True)
class QuorumOfOne:
    """Starts when made; `stop` is the clean way out, doing nothing is kill -9."""

    folder: Path
    settings: ControllerSettings = field(default_factory=ControllerSettings)
    port: int = 9092
    directory_id: bytes = DIRECTORY_ID
    segment_bytes: int = 1 << 30
    new_id: Callable[[], bytes] = field(default_factory=id_source)
    now: Now = field(default_factory=lambda: Now(1_000, 1_700_000_000_000))
    disk: RealDisk = field(default_factory=RealDisk)
    wants_flush: list[Any] = field(default_factory=list)
    purgatory: Purgatory = field(default_factory=Purgatory)
    storage: PartitionLog = field(init=False)
    log: MetadataLog = field(init=False)
    controller: Controller = field(init=False)

    def __post_init__(self) -> None:
        self.open()
        self.start()
        self.flush()

    @property
    def metadata_folder(self) -> str:
        return f"{self.folder}/{METADATA_FOLDER}"

    @property
    def voter(self) -> Voter:
        point = VoterEndpoint("CONTROLLER", "localhost", self.port + 1)
        return Voter(self.settings.node_id, self.directory_id, (point,))

    def open(self) -> None:
        if not self.disk.exists(self.metadata_folder):
            format_data_folder(
                self.disk,
                str(self.folder),
                voter=self.voter,
                records=new_cluster_records(),
                wall_ms=self.now.wall_ms,
            )
        opening = prepare_log(
            self.disk, self.metadata_folder, clean=False, wall_ms=self.now.wall_ms
        )
        self.storage = PartitionLog.open(
            OpenFiles(self.disk),
            self.metadata_folder,
            LogSettings(retention_ms=-1, segment_bytes=self.segment_bytes),
            now_wall_ms=self.now.wall_ms,
            start_offset=opening.start_offset,
            recovery_point=opening.recovery_point,
            unwritten=Unwritten(),
            wants_flush=[],
        )
        self.log = MetadataLog(self.disk, self.metadata_folder, self.storage, voter=self.voter)
        self.log.load(CLUSTER_ID)

    def start(self) -> None:
        self.controller = Controller(
            self.log,
            self.settings,
            now=self.now,
            new_id=self.new_id,
            wake=self.purgatory.wake,
        )
        self.log.join(
            listener=self.controller,
            peers=None,
            names=Names(CLUSTER_ID, "CONTROLLER"),
            timeouts=Timeouts(),
            chance=lambda below: 0,
            wants_flush=self.wants_flush,
            now=lambda: self.now,
        )
        membership = Membership(
            node_id=self.settings.node_id,
            incarnation_id=self.new_id(),
            controller_incarnation_id=self.new_id(),
            endpoints=(Endpoint("PLAINTEXT", "localhost", self.port),),
            controller_endpoints=(Endpoint("CONTROLLER", "localhost", self.port + 1),),
            log_dirs=(self.directory_id,),
        )
        self.controller.start(
            Opening(membership, lambda: read_bootstrap(self.disk, str(self.folder)))
        )

    def flush(self) -> None:
        """What the server does with the list, on two threads."""
        for owner in self.wants_flush:
            flush = owner.flush_target()
            if flush is not None:
                flush.run(self.disk)
                owner.flushed(flush)
        self.wants_flush.clear()
        self.purgatory.try_woken()

    def do_background_work(self) -> None:
        for work in self.controller.background:
            work.run()
            work.finish(None)
        self.controller.background.clear()

    def create(self, name: str, partitions: int = 1, **settings: str) -> CreateTopicsResponse:
        configs = [CreatableTopicConfig(key.replace("_", "."), v) for key, v in settings.items()]
        topic = CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=1, configs=configs
        )
        request = CreateTopicsRequest(topics=[topic])
        return self.controller.create_topics(request, self.now)

    def stop(self) -> None:
        self.controller.stop(self.now)
        self.flush()
        self.storage.close().run(self.disk)


def rules(**fields: Any) -> ControllerSettings:
    return ControllerSettings(topic_rules=TopicRules(**fields))
