"""The fenced blocks of a guide, and what its author says about running them.

By its language a block is a shell script (`sh`), a screen with commands behind `$ ` (`console`), a
program (`python`), or a part of one that is only compiled (`py`). Others are text. A comment right
before the fence, which no reader of the page sees, says what differs:

    <!-- guide: file billing.py -->              the block is the content of this file
    <!-- guide: until "tea is ready" -->         run it until this is printed, then press Ctrl-C
    <!-- guide: beside until "ready" -->         the same, but it runs on until the guide ends
    <!-- guide: stop -->                         press Ctrl-C in the last one that runs beside
    <!-- guide: kill the node -->                instead of running it: kill -9, and start again
    <!-- guide: fails -->                        it must end with an error
    <!-- guide: skip: needs two machines -->     not run, and why

`stop` and `kill the node` may also stand alone, without a block behind them.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

_PARTS = re.compile(
    r"^(?P<indent> *)(?:<!-- guide: (?P<note>[^\n]*?) -->\n+)?"
    r"(?P=indent)```(?P<language>\w*)\n(?P<body>.*?)^(?P=indent)```$"
    r"|^<!-- guide: (?P<alone>stop|kill the node) -->$",
    re.M | re.S,
)
RUNNABLE = ("sh", "console", "python", "py")


@dataclass(slots=True)
class Block:
    guide: str
    line: int
    language: str  # "" for a note that stands alone
    body: str
    note: str  # "" if the author says nothing

    @property
    def place(self) -> str:
        return f"{self.guide}:{self.line}"

    def commands(self) -> list[str]:
        """Of a console: what stands behind `$ `, with the lines that continue it."""
        found: list[str] = []
        goes_on = False
        for line in self.body.splitlines():
            if line.startswith("$ "):
                found.append(line[2:])
            elif goes_on:
                found[-1] += "\n" + line
            else:
                continue
            goes_on = line.endswith("\\")
        return found

    def headings(self) -> list[list[str]]:
        """Of a console: the headings of tables that the reader is shown, word by word."""
        lines = [line for line in self.body.splitlines() if not line.startswith("$ ")]
        return [line.split() for line in lines if re.fullmatch(r"[A-Z][A-Z0-9_ ]+", line)]


def blocks_of(path: Path, name: str) -> list[Block]:
    """In the order of the page."""
    text = path.read_text("utf-8")
    found = []
    for match in _PARTS.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        if match["alone"]:
            found.append(Block(name, line, "", "", match["alone"]))
            continue
        indent = len(match["indent"])
        body = "".join(row[indent:] for row in match["body"].splitlines(keepends=True))
        found.append(Block(name, line, match["language"], body, match["note"] or ""))
    unread = text.count("<!-- guide:") - sum(1 for block in found if block.note)
    assert unread == 0, f"{name}: {unread} notes stand before no block"
    return found


def words_of(note: str) -> list[str]:
    """`until "tea is ready"` is two words; a reason is prose, with apostrophes."""
    return note.split() if note.startswith("skip:") else shlex.split(note)
