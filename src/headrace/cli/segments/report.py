"""Reports a check of a data folder: progress while it runs, then a table or JSON."""

from __future__ import annotations

import sys
from pathlib import Path
from time import monotonic

from headrace.cli import output
from headrace.operations.files.damage.data_folder import Check, as_object, shown, sizes_of

# A terminal is told often, a file of a long run now and then.
ON_TERMINAL_SECONDS = 0.3
ELSEWHERE_SECONDS = 30.0


class Bar:
    """One line on standard error that says how far the check is."""

    def __init__(self, folder: Path) -> None:
        self._total = sum(sizes_of(folder))
        self._done = 0
        self._drawn = sys.stderr.isatty()
        self._every = ON_TERMINAL_SECONDS if self._drawn else ELSEWHERE_SECONDS
        self._next = monotonic() + self._every

    def __call__(self, folder: str, size: int) -> None:
        self._done += size
        if monotonic() < self._next:
            return
        self._next = monotonic() + self._every
        done, total = output.size(self._done), output.size(self._total)
        line = f"{done} of {total} read, now {folder}"
        if self._drawn:
            output.passing(line[:100])
        else:
            output.note(line)

    def end(self) -> None:
        if self._drawn:
            output.passing("")


def tell(check: Check) -> None:
    if check.findings:
        rows = [
            (
                finding.kind.value,
                shown(check, finding),
                finding.position,
                finding.offset,
                finding.what + (f" ({finding.advice})" if finding.advice else ""),
            )
            for finding in check.findings
        ]
        output.table(["", "file", "byte", "offset", "what"], rows)
        output.say("")
    stop = "The last stop was clean." if check.clean else "The last stop was not clean."
    read = f"{output.count(check.folders, 'log')} read, {output.size(check.bytes)}."
    output.say(f"{read} {stop}")
    if check.refusal is not None:
        output.say(f"A start would be refused: {check.refusal}")
    if check.damage:
        places = output.count(len(check.damage), "place")
        verb = "is" if len(check.damage) == 1 else "are"
        output.say(
            f"{places} {verb} damaged. See the ways out: headrace segment repair {check.folder}"
        )
    else:
        output.say("Nothing is damaged.")


def tell_json(check: Check) -> None:
    output.answer_json(
        {
            "folder": str(check.folder),
            "clean_stop": check.clean,
            "logs": check.folders,
            "bytes": check.bytes,
            "damaged": len(check.damage),
            "start_refused": check.refusal,
            "findings": [as_object(check, finding) for finding in check.findings],
        }
    )
