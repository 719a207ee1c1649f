"""Prints how many branches the inner ring covers, and the twenty modules that it covers least.

Reads the file that coverage.py left (`make coverage`). Generated codecs do not count, and neither
do modules of fewer than ten branches.
"""

# ruff: noqa: T201  what it prints is what it is for

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path

from coverage import Coverage

LEAST_COVERED = 20
FEWEST_BRANCHES = 10
GENERATED = "src/headrace/wire/protocol/messages/"


@dataclass(slots=True)
class Module:
    path: str
    branches: int
    covered: int

    @property
    def share(self) -> float:
        return self.covered / self.branches if self.branches else 1.0


def modules_of(report: dict[str, dict[str, dict[str, dict[str, int]]]]) -> list[Module]:
    """The modules of coverage's report in JSON, generated ones left out."""
    return [
        Module(path, of["summary"]["num_branches"], of["summary"]["covered_branches"])
        for path, of in report["files"].items()
        if not path.startswith(GENERATED)
    ]


def table(modules: list[Module]) -> str:
    whole = Module("all", sum(m.branches for m in modules), sum(m.covered for m in modules))
    lines = [f"{whole.share:.1%} of {whole.branches:,} branches in {len(modules)} modules", ""]
    large = [module for module in modules if module.branches >= FEWEST_BRANCHES]
    lines += ["| module | branches | covered |", "|---|--:|--:|"]
    for module in sorted(large, key=lambda module: (module.share, module.path))[:LEAST_COVERED]:
        lines.append(f"| `{module.path}` | {module.branches} | {module.share:.0%} |")
    return "\n".join(lines)


def main() -> None:
    coverage = Coverage()
    coverage.load()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "coverage.json"
        coverage.json_report(outfile=str(path))
        print(table(modules_of(json.loads(path.read_text("utf-8")))))


if __name__ == "__main__":
    main()
