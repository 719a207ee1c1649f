"""Schedules snapshots of the metadata, and deletes old ones after a new one.

Every node writes snapshots, active or not, of the committed records. The work itself is done
elsewhere.
"""

from __future__ import annotations

import logging
from functools import partial

from headrace.environment import Now
from headrace.node.consensus.metadata_log import MetadataLog
from headrace.node.consensus.snapshots import SnapshotWork
from headrace.node.controller.controller_settings import ControllerSettings
from headrace.node.metadata.image import MetadataImage

log = logging.getLogger(__name__)

SMALLEST_WORTH_A_SNAPSHOT = 1 << 20


class SnapshotSchedule:
    __slots__ = ("background", "_log", "_settings", "_is_running", "_last_ms")

    def __init__(self, log: MetadataLog, settings: ControllerSettings) -> None:
        self.background: list[SnapshotWork] = []  # run elsewhere, then finish on the loop
        self._log = log
        self._settings = settings
        self._is_running = False
        self._last_ms = 0  # start of the last one, or of the node

    def begin(self, now_ms: int) -> None:
        self._last_ms = now_ms

    def take_if_due(self, image: MetadataImage, now: Now) -> None:
        """Begin a snapshot of `image`, which is committed, if one is due."""
        if not self._is_due(image, now):
            return
        self._is_running = True
        self._last_ms = now.monotonic_ms
        ended = partial(self._ended, wall_ms=now.wall_ms)
        self.background.append(self._log.snapshot(image, now.wall_ms, ended))

    def _is_due(self, image: MetadataImage, now: Now) -> bool:
        settings = self._settings
        if self._is_running or image.transaction is not None:
            return False
        if image.offset < self._log.latest_snapshot_end:
            return False
        # A start replays the records after the snapshot, at about 15 us for 60 bytes: so their size
        # is kept in proportion to the snapshot, not only below Kafka's limit of 20 MiB (5 s).
        proportionate = max(SMALLEST_WORTH_A_SNAPSHOT, 2 * self._log.snapshot_bytes)
        limit = min(settings.snapshot_after_bytes, proportionate)
        if self._log.bytes_since_snapshot >= limit:
            return True
        interval_ms = settings.snapshot_after_ms
        return interval_ms > 0 and now.monotonic_ms - self._last_ms >= interval_ms

    def _ended(self, error: OSError | None, wall_ms: int) -> None:
        """The next one is tried after the same time, or as many bytes, whether or not this one
        failed."""
        self._is_running = False
        if error is not None:
            log.warning("a snapshot of the metadata could not be written: %s", error)
            return
        self._log.clean_up(
            wall_ms,
            retention_bytes=self._settings.retention_bytes,
            retention_ms=self._settings.retention_ms,
        )
