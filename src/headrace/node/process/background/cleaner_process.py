"""Compacts one log and ends: `python -m headrace.node.process.background.cleaner_process`, see
`cleaner.py`.

The job is JSON on standard input, reports are lines of JSON on standard output, which is a socket:
["cleaned", sources, bytes read, bytes written], then ["finished", offset] or ["failed", why,
whether the log is damaged].
"""

from __future__ import annotations

import os
from dataclasses import astuple

from headrace.node.process.background.background_job import BackgroundJob, NobodyWaits
from headrace.node.process.folders.real_disk import RealDisk
from headrace.node.storage.compaction.compaction import CleanedGroup, CleaningJob, clean
from headrace.node.storage.recovery.leftovers import CLEANED
from headrace.node.storage.segments.segment import file_name
from headrace.wire.protocol.errors import MalformedMessage


def main() -> None:
    asked = BackgroundJob()
    job = CleaningJob(**asked.fields)

    def cleaned(group: CleanedGroup) -> None:
        keep_time_of_writing(job.folder, group)
        asked.tell("cleaned", *astuple(group))

    try:
        cleaned_to = clean(RealDisk(), job, asked.pace, cleaned)
    except (NobodyWaits, BrokenPipeError):
        return
    except MalformedMessage as damage:
        asked.tell("failed", str(damage), True)
    except OSError as problem:
        asked.tell("failed", f"{problem.filename or job.folder}: {problem.strerror}", False)
    else:
        asked.tell("finished", cleaned_to)


def keep_time_of_writing(folder: str, group: CleanedGroup) -> None:
    """Retention counts from it where no record has a timestamp."""
    last = f"{folder}/{file_name(group.sources[-1], '.log')}"
    modified = os.stat(last).st_mtime_ns
    new = f"{folder}/{file_name(group.sources[0], '.log')}{CLEANED}"
    os.utime(new, ns=(modified, modified))


if __name__ == "__main__":
    main()
