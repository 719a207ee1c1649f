"""The processes that work on the segments of one node: compaction and the scrub."""

from __future__ import annotations

from headrace.node.process.background.cleaner import CleanerProcess
from headrace.node.process.background.scrubber import ScrubberProcess
from headrace.node.process.loop import Loop


class BackgroundProcesses:
    def __init__(self) -> None:
        self.cleaner = CleanerProcess()
        self.scrubber = ScrubberProcess()
        self._all = (self.cleaner.process, self.scrubber.process)

    def attend(self, loop: Loop) -> None:
        """Let the loop watch the reports of the processes; call it before the first job."""
        for process in self._all:
            process.watch, process.forget = loop.call_when_readable, loop.stop_calling

    def close(self) -> None:
        """Stop at the end of the node: wait until no process works in its folder any more."""
        for process in self._all:
            process.stop()
        for process in self._all:
            process.close()
