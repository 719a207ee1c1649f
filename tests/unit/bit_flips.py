"""A walk over the files of a data folder's root and of its metadata: one bit flipped, then a start.

`python -m tests.unit.bit_flips` flips a bit in every byte and prints the table of
`docs/reliability-runs.md`; the test takes some bytes of each file. A start must come to one of
three
verdicts: it serves what was there, it serves it and says what is damaged, or it is refused with a
sentence. Anything else is a failure: something is missing, or an exception that is no sentence.
"""

from __future__ import annotations

import logging
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from headrace.node.broker.folders.identity import UnusableFolder
from headrace.node.consensus.metadata_recovery import UnusableMetadata
from tests.unit.node.broker.rig import Rig, values_in

METADATA = "__cluster_metadata-0"
VALUES = [b"first", b"second", b"third"]

SERVED, SAID, REFUSED = "served", "served, and said", "refused with a sentence"
WRONG = "WRONG"


def build(folder: Path, *, snapshot: bool, clean: bool) -> Path:
    """Two topics, one with a setting, three records; as a kill or a clean stop leaves them."""
    work = folder / "work"
    between = {"metadata_log_max_record_bytes_between_snapshots": 1} if snapshot else {}
    rig = Rig(work, **between)
    rig.create("orders", 2, retention_ms=86_400_000)
    if snapshot:
        rig.advance(1_000)
    rig.create("visits")
    for value in VALUES:
        rig.produce("visits", value.decode())
    rig.advance(60_000)  # checkpoints are written
    if snapshot:
        rig.create("after-the-snapshot")
    if clean:
        rig.stop()
    return work


def contents(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Bytes and size of each file. What an index has behind its entries is left out: it is a hole
    of 10 MB, and would be written with each copy."""
    files = {}
    for path in folder.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            is_index = path.suffix in (".index", ".timeindex")
            trimmed = data.rstrip(b"\0") if is_index else data
            files[str(path.relative_to(folder))] = trimmed, len(data)
    return files


def put(folder: Path, files: dict[str, tuple[bytes, int]]) -> None:
    for name, (data, size) in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            file.write(data)
            file.truncate(size)


def walked(files: dict[str, tuple[bytes, int]]) -> list[str]:
    """The root and the metadata; partitions' logs have a walk of their own."""
    return sorted(name for name in files if "/" not in name or name.startswith(METADATA))


def expected(rig: Rig) -> tuple[object, ...]:
    """What a client sees."""
    image = rig.node.controller.image
    topics = {t.name: (t.id, len(t.partitions)) for t in image.topics.values()}
    settings = {str(key): dict(value) for key, value in image.configs.items()}
    return rig.node.broker.image.cluster_id, topics, settings, read_back(rig)


def read_back(rig: Rig) -> list[bytes]:
    found = rig.fetch("visits")
    return values_in(found.records) if found.records else []


class Heard(logging.Handler):
    """What the log says of damage."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())


def verdict(folder: Path, right: tuple[object, ...]) -> tuple[str, str]:
    """How a start ends, and what was said."""
    heard = Heard()
    logging.getLogger("headrace").addHandler(heard)
    try:
        rig = Rig(folder)
        found = expected(rig)
    except (UnusableFolder, UnusableMetadata) as refusal:
        return REFUSED, str(refusal)
    except Exception as bug:  # noqa: BLE001 - that is what is looked for
        return WRONG, f"{type(bug).__name__}: {bug}"
    finally:
        logging.getLogger("headrace").removeHandler(heard)
    if found != right:
        return WRONG, f"{found} is not {right}"
    return (SAID, heard.said[0]) if heard.said else (SERVED, "")


def walk(state: Path, scratch: Path, step: int) -> Iterator[tuple[str, int, str, str]]:
    """File, byte, verdict and words, for every `step`-th byte of each file."""
    files = contents(state)
    put(scratch / "whole", files)
    right = expected(Rig(scratch / "whole"))
    assert right[3] == VALUES
    number = 0
    for name in walked(files):
        data, size = files[name]
        for position in range(0, len(data), min(step, max(len(data) // 3, 1))):
            damaged = bytearray(data)
            damaged[position] ^= 1 << (position * 5 % 8)
            number += 1
            folder = scratch / str(number)
            put(folder, files | {name: (bytes(damaged), size)})
            yield name, position, *verdict(folder, right)
            remove(folder)


def remove(folder: Path) -> None:
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    folder.rmdir()


def main() -> None:
    """The table for the docs."""
    logging.disable(logging.NOTSET)
    counts: dict[str, Counter[str]] = {}
    with tempfile.TemporaryDirectory() as temporary:
        for snapshot in (False, True):
            for clean in (False, True):
                place = Path(temporary) / f"{snapshot}-{clean}"
                place.mkdir()
                state = build(place, snapshot=snapshot, clean=clean)
                for name, position, ended, words in walk(state, place, step=1):
                    counts.setdefault(kind_of(name), Counter())[ended] += 1
                    if ended == WRONG:
                        sys.stderr.write(f"{snapshot=} {clean=} {name} {position}: {words[:300]}\n")
    for name, ends in sorted(counts.items()):
        row = [str(ends[ended]) for ended in (SERVED, SAID, REFUSED, WRONG)]
        sys.stdout.write(f"| `{name}` | {sum(ends.values())} | {' | '.join(row)} |\n")


def kind_of(name: str) -> str:
    """`__cluster_metadata-0/*.log` and the like."""
    folder, _, last = name.rpartition("/")
    stem, dot, suffix = last.partition(".")
    generic = f"*.{suffix}" if stem[:1].isdigit() else last
    return f"{folder}/{generic}" if folder else generic


if __name__ == "__main__":
    main()
