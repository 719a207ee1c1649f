"""The log cleaner's process, as the loop sees it: a job in, reports out."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from headrace.node.broker.replicas.log_cleaner import Reports
from headrace.node.process.background.background_process import BackgroundProcess
from headrace.node.storage.compaction.compaction import CleanedGroup, CleaningJob


class CleanerProcess:
    def __init__(self) -> None:
        self.process = BackgroundProcess("headrace.node.process.background.cleaner_process")
        self._reports: Reports

    def start(self, job: CleaningJob, bytes_per_second: float, reports: Reports) -> None:
        self._reports = reports
        self.process.start([bytes_per_second, asdict(job)], self._told, self._ended_early)

    def stop(self) -> None:
        self.process.stop()

    def _ended_early(self) -> None:
        self._reports.failed("its process ended early", damaged=False)

    def _told(self, words: list[Any]) -> None:
        kind, *said = words
        if kind == "cleaned":
            self._reports.cleaned(CleanedGroup(*said))
            return
        self.stop()
        if kind == "finished":
            self._reports.finished(*said)
        else:
            reason, damaged = said
            self._reports.failed(reason, damaged=damaged)
