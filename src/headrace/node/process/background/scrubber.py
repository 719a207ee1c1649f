"""The scrub's process, as the loop sees it: a job in, reports out."""

from __future__ import annotations

from typing import Any

from headrace.node.broker.replicas.log_scrubber import Reports
from headrace.node.process.background.background_process import BackgroundProcess
from headrace.node.storage.recovery.scrub import ClosedSegment
from headrace.node.storage.segments.batch_scan import DamagedRange


class ScrubberProcess:
    def __init__(self) -> None:
        self.process = BackgroundProcess("headrace.node.process.background.scrubber_process")
        self._reports: Reports

    def start(self, job: list[ClosedSegment], bytes_per_second: float, reports: Reports) -> None:
        self._reports = reports
        self.process.start([bytes_per_second, job], self._told, self._ended_early)

    def stop(self) -> None:
        self.process.stop()

    def _ended_early(self) -> None:
        self._reports.failed("its process ended early")

    def _told(self, words: list[Any]) -> None:
        match words:
            case ["read", number, found]:
                self._reports.read(number, [DamagedRange(*each) for each in found])
            case ["skipped", number, why]:
                self._reports.skipped(number, why)
            case _:
                self.stop()
                self._reports.finished()
