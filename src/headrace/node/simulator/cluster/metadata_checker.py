"""Checks all nodes at once: committed metadata, and logs below their high watermarks.

One offset has one batch in every copy of a log in which it is committed, the metadata log included,
so two controllers cannot both commit; images of the same offset are equal; a quorum epoch has one
controller. Changes from one image to the next are counted: elections, in-sync replicas.
"""

from __future__ import annotations

from typing import Any

from headrace.node.metadata.image import MetadataImage
from headrace.node.simulator.checkers import Violation
from headrace.node.simulator.whole_nodes import Member
from headrace.wire.protocol.record_batch import headers_in

READ_SIZE = 1 << 20
METADATA = "__cluster_metadata"


class ClusterChecker:
    def __init__(self) -> None:
        self.elections = 0  # of leaders of partitions
        self.isr_changes = 0
        self.truncations = 0
        self.controllers: dict[int, int] = {}  # quorum epoch -> node
        self._images: dict[int, MetadataImage] = {}  # by offset
        self._newest: MetadataImage | None = None
        # By topic id and partition: the batches that a node has shown as committed, by offset.
        self._batches: dict[Any, dict[int, tuple[int, int, int]]] = {}
        # By node, start of the node and log: how far it was compared, and the end that it had.
        self._compared: dict[Any, tuple[int, int, Any]] = {}

    # Metadata

    def image_committed(self, member: Member, image: MetadataImage) -> None:
        known = self._images.setdefault(image.offset, image)
        if known is not image and known != image:
            raise Violation(f"node {member.id} has other metadata at offset {image.offset}")
        newest = self._newest
        if newest is None or image.offset > newest.offset:
            if newest is not None:
                self._count(newest, image)
            self._newest = image

    def _count(self, before: MetadataImage, after: MetadataImage) -> None:
        for name, topic in after.topics.items():
            old = before.topics.get(name)
            if old is None or old is topic or old.id != topic.id:
                continue
            for was, now in zip(old.partitions, topic.partitions, strict=False):
                if was is not now:
                    self.elections += now.leader_epoch != was.leader_epoch and now.leader >= 0
                    self.isr_changes += set(now.isr) != set(was.isr)

    # Logs

    def look(self, member: Member) -> None:
        node = member.node
        self._look_at_controller(member)
        quorum_log = node.controller.log
        committed = quorum_log.host.quorum.high_watermark
        self._compare(member, METADATA, quorum_log.log, committed)
        for topic in node.broker.topics.by_name.values():
            for replica in topic.here():
                if member.disk.is_broken(replica.log.folder):
                    continue  # the node is about to notice
                replicated = replica.topic_id, replica.index
                if replica.high_watermark > replica.log.end_offset:
                    raise Violation(f"node {member.id}: {replicated} ends below its high watermark")
                self._compare(member, replicated, replica.log, replica.high_watermark)

    def _look_at_controller(self, member: Member) -> None:
        controller = member.node.controller
        if not controller.is_active:
            return
        epoch = controller.log.epoch
        other = self.controllers.setdefault(epoch, member.id)
        if other != member.id:
            raise Violation(f"nodes {other} and {member.id} are both controllers of epoch {epoch}")

    def _compare(self, member: Member, replicated: Any, log: Any, committed: int) -> None:
        key = member.id, member.life, replicated
        start = log.start_offset
        done, last_end, known_log = self._compared.get(key, (start, start, log))
        if known_log is not log:  # the replica was moved away, and back
            done = last_end = start
        if log.end_offset < last_end:
            self.truncations += 1
            if log.end_offset < done:
                raise Violation(f"node {member.id}: {replicated} was cut below its high watermark")
        known = self._batches.setdefault(replicated, {})
        at = max(done, start)
        if committed <= at:
            self._compared[key] = at, log.end_offset, log
            return
        while at < committed:
            piece = log.read(at, READ_SIZE, up_to=committed, at_least_one=True)
            if piece is None:
                break
            before = at
            for _, header in headers_in(piece.file.read(piece.length, piece.position)):
                if header.last_offset < at or header.last_offset >= committed:
                    continue
                fingerprint = header.last_offset, header.leader_epoch, header.crc
                other = known.setdefault(header.base_offset, fingerprint)
                if other != fingerprint:
                    raise Violation(
                        f"node {member.id}: {replicated} differs from another replica at offset "
                        f"{header.base_offset}, below the high watermark {committed}"
                    )
                at = header.last_offset + 1
            if at == before:
                break
        self._compared[key] = at, log.end_offset, log
