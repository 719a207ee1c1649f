"""The files of a pipeline: its checkpoint, its identity, its last batch, and the process that runs
it.

`<data>/state/<name>/` holds `checkpoint/`, `dead-checkpoint/`, JSON files of what is known, and
`running`, which its process locks while it lives: a kill cannot leave a lock behind. Tables are in
`<data>/tables/`. Does not use Spark.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import signal
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from headrace.pipelines.declaration import Pipeline
from headrace.pipelines.failure import PipelineError
from headrace.wire.contract.addresses import address_in

DEFAULT = "headrace-pipelines"
# A Spark whose driver was killed ends in a second or two.
OLD_SPARK_WITHIN_S = 60.0
# A table that another stream has alone for a moment, to compact it, is waited for.
COMPACTED_WITHIN_S = 30.0
# Sinks that are folders, by the first word of their kind.
FILE_KINDS = ("delta", "iceberg", "parquet")
# The state before it was written down.
BEFORE = {"zone": "UTC"}
# Parts of an identity that are for programs: they are not shown.
NOT_SHOWN = ("name", "plan", "table", "late_table", "keeps_rows", "values")


class Folder:
    """The state of one pipeline below `data`."""

    def __init__(self, data: Path, name: str) -> None:
        must_be_local(data)
        self.data = data.absolute()
        self.name = name
        self.state = self.data / "state" / name

    @property
    def checkpoint(self) -> Path:
        return self.state / "checkpoint"

    @property
    def dead_checkpoint(self) -> Path:
        return self.state / "dead-checkpoint"

    @property
    def deleted_keys(self) -> Path:
        return self.state / "deleted-keys"

    def identity(self, pipeline: Pipeline) -> str:
        """Returns the id of this checkpoint's life; refuses a checkpoint of another source
        or sink."""
        path = self.state / "identity.json"
        known = _read(path)
        if known is None:
            if self.has_begun():  # as another stream it would write its last batch again
                raise PipelineError(
                    f"{path} is gone: put it back from a copy, or start over by removing "
                    f"{self.state}."
                )
            known = {"id": uuid.uuid4().hex, "name": self.name, **pipeline.describe()}
            _write(path, known)
        if (other := known.get("name", self.name)) != self.name:
            raise PipelineError(
                f"{self.state} is a copy of the checkpoint of {other}, and {self.name} would write "
                f"what {other} writes: remove the copy, and {self.name} begins with its own."
            )
        self.keep_with_identity(name=self.name)
        for part, now in pipeline.describe().items():
            if (before := known.get(part, BEFORE.get(part))) != now:
                raise PipelineError(
                    f"The checkpoint of {self.name} belongs to the {part} {before}, not "
                    f"{now}: give the pipeline another name, or start over with "
                    f"`headrace pipeline reset {self.name}`."
                )
        return str(known["id"])

    def described(self) -> dict[str, Any]:
        """Its id, source, sink, kind and zone."""
        kept = _read(self.state / "identity.json") or {}
        return {part: value for part, value in kept.items() if part not in NOT_SHOWN}

    def kept_with_identity(self, part: str) -> Any:
        """None if nothing is: an older version did not keep it."""
        return (_read(self.state / "identity.json") or {}).get(part)

    def keep_with_identity(self, **parts: Any) -> None:
        path = self.state / "identity.json"
        kept = _read(path) or {}
        if {**kept, **parts} != kept:
            _write(path, {**kept, **parts})

    def keep_progress(self, progress: dict[str, Any]) -> None:
        _write(self.state / "progress.json", progress)

    def progress(self) -> dict[str, Any] | None:
        return _read(self.state / "progress.json", if_whole=True)

    def keep_compaction(self, totals: dict[str, Any]) -> None:
        """Keeps what compaction has done since the checkpoint began. It is only for display, so a
        write that fails is ignored."""
        with suppress(OSError):
            _write(self.state / "compaction.json", totals)

    def compaction(self) -> dict[str, Any]:
        return _read(self.state / "compaction.json", if_whole=True) or {}

    def keep_failure(self, sentence: str, at_ms: int) -> None:
        """Keeps why the last run ended. It is for people, so a write that fails is ignored."""
        with suppress(OSError):
            _write(self.state / "failure.json", {"sentence": sentence, "at_ms": at_ms})

    def failure(self) -> dict[str, Any] | None:
        return _read(self.state / "failure.json", if_whole=True)

    def schema(self) -> str | None:
        """The schema that was inferred once."""
        found = (_read(self.state / "schema.json") or {}).get("ddl")
        return found if isinstance(found, str) else None

    def pin_schema(self, ddl: str) -> None:
        _write(self.state / "schema.json", {"ddl": ddl})

    def backfill(self) -> dict[str, Any] | None:
        """The plan and the state of `--backfill`."""
        return _read(self.state / "backfill.json")

    def keep_backfill(self, plan: dict[str, Any]) -> None:
        _write(self.state / "backfill.json", plan)

    def has_begun(self) -> bool:
        """Whether offsets are written down that it would go on at."""
        begun = self.checkpoint.is_dir() and any(self.checkpoint.iterdir())
        return begun or self.backfill() is not None

    def last_planned(self) -> int:
        """The number of the last batch that the checkpoint knows of; -1 for none."""
        return _last_number(self.checkpoint / "offsets")

    def last_committed(self) -> int:
        """-1 for none."""
        return _last_number(self.checkpoint / "commits")

    def has_written(self) -> bool:
        """Returns whether it has committed anything to the sink."""
        return self.last_committed() >= 0 or bool((self.backfill() or {}).get("done"))

    def table_version(self) -> int:
        """The last version of its table that it has seen; -1 for none."""
        found = (_read(self.state / "table-version.json", if_whole=True) or {}).get("version")
        return found if isinstance(found, int) else -1

    def keep_table_version(self, version: int) -> None:
        _write(self.state / "table-version.json", {"version": version})

    def topic_ids(self) -> dict[str, str]:
        """Returns the ids of the topics that it has read, by name."""
        return _read(self.state / "topics.json") or {}

    def keep_topic_ids(self, ids: dict[str, str]) -> None:
        _write(self.state / "topics.json", ids)

    def dead_letters_before(self) -> int | None:
        """Returns how many dead letters the topic had before this checkpoint began."""
        found = (_read(self.state / "dead-letters.json", if_whole=True) or {}).get("before")
        return found if isinstance(found, int) else None

    def keep_dead_letters_before(self, count: int) -> None:
        _write(self.state / "dead-letters.json", {"before": count})

    # ---- the Spark of the run before

    def keep_spark(self, process: int) -> None:
        """The process that computes for us: it may outlive a killed driver by a moment."""
        _write(self.state / "spark.json", {"process": process})

    def wait_for_old_spark(self, ours: int, within_s: float = OLD_SPARK_WITHIN_S) -> None:
        """Two of them at one checkpoint would write batches twice. Spark ends when its driver does;
        a batch that it is about to commit may still be committed."""
        process = (_read(self.state / "spark.json", if_whole=True) or {}).get("process")
        deadline = time.monotonic() + within_s
        while isinstance(process, int) and process != ours and _is_spark(process):
            if time.monotonic() > deadline:
                raise PipelineError(
                    f"The Spark of the run before (process {process}) has not ended: end it, then "
                    f"run {self.name} again."
                )
            time.sleep(0.1)

    # ---- who runs it

    @contextmanager
    def held(self) -> Iterator[None]:
        """Holds the lock: only one process runs a pipeline."""
        self.state.mkdir(parents=True, exist_ok=True)
        with (self.state / "running").open("a+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise PipelineError(
                    f"{self.name} runs already (process {self.runner()}): stop it with "
                    f"`headrace pipeline stop {self.name}`."
                ) from None
            file.seek(0)
            file.truncate()
            file.write(str(os.getpid()))
            file.flush()
            yield

    def runner(self) -> int | None:
        """Returns the process that runs it now, or None."""
        try:
            with (self.state / "running").open("r+") as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except OSError:
                    return int(file.read() or 0) or None
        except FileNotFoundError:
            pass
        return None

    def stop(self) -> int:
        runner = self.runner()
        if runner is None:
            raise PipelineError(f"{self.name} does not run.")
        os.kill(runner, signal.SIGTERM)
        return runner

    def reset(self, *, table: bool, keep_rows: bool = False) -> None:
        """Forget how far it came; with `table` its table goes too. With `keep_rows` its next run
        adds to the rows that it has written, which it refuses otherwise."""
        known = self._described_for_reset(table=table)
        with self.held():
            kind = str(known.get("kind", ""))
            if table and kind.startswith(FILE_KINDS):
                location = table_location(self.data, str(known["sink"]))
                if "://" in location:
                    raise PipelineError(f"{location} is not on this machine: remove it yourself.")
                for one in (location, *self._late_tables()):
                    with table_held(one, alone=True):  # another pipeline may write it too
                        _remove_table(Path(one))
            elif table:
                raise PipelineError(
                    f"{self.name} writes to {known['sink']} ({kind}), which is not a table on this "
                    "machine: remove it yourself, and reset without --table."
                )
            shutil.rmtree(self.state)
        if keep_rows:
            new = {**known, "id": uuid.uuid4().hex, "name": self.name, "keeps_rows": True}
            _write(self.state / "identity.json", new)

    def _late_tables(self) -> list[str]:
        kept = self.kept_with_identity("late_table")
        return [] if kept is None else [str(kept["at"])]

    def _described_for_reset(self, *, table: bool) -> dict[str, Any]:
        known = self.described()
        if not known:
            raise PipelineError(f"No pipeline {self.name} has run in {self.data}.")
        if str(known.get("kind", "")).startswith("parquet") and not table:
            raise PipelineError(
                f"A Parquet table remembers its batches and would leave out the first ones of a "
                f"new run: reset {self.name} with --table, which removes {known['sink']} too."
            )
        return known

    def effects_of_reset(self, *, table: bool, keep_rows: bool = False) -> list[str]:
        """What `reset` will do, and what the next run does then."""
        known = self._described_for_reset(table=table)
        kind, sink = str(known.get("kind", "")), str(known.get("sink", ""))
        effects = [
            f"The checkpoint of {self.name} is removed ({self.state}): its offsets and its state. "
            "Its next run begins where the pipeline says, at the earliest record unless it has "
            "starting=."
        ]
        if table:
            at = table_location(self.data, sink) if kind.startswith(FILE_KINDS) else sink
            for one in (at, *self._late_tables()):
                effects.append(f"The table {one} is removed with all its rows.")
            if others := self._others_that_write(sink):
                effects.append(f"{', '.join(others)} wrote to it too, and will be refused then.")
        elif kind.endswith("append") and keep_rows:
            effects.append(
                f"{sink} keeps its rows, and the next run adds to them: a record that it reads "
                "again is there twice."
            )
        elif kind.endswith("append"):
            effects.append(
                f"{sink} keeps its rows, and the next run is refused, as it would add them again: "
                "remove them too with --table, or say with --keep-rows that it shall add to them."
            )
        elif kind.endswith("upsert"):
            effects.append(
                f"{sink} keeps its rows, and the next run replaces them by key as it reads their "
                "records again; rows whose records are gone stay as they are."
            )
        elif kind == "topic":
            effects.append(
                f"The topic {sink} keeps its records, and the next run writes them again, with "
                "other message ids."
            )
        return effects

    def _others_that_write(self, sink: str) -> list[str]:
        others = [one for one in known(self.data) if one.name != self.name]
        return [one.name for one in others if one.described().get("sink") == sink]


def must_be_local(data: Path | str) -> None:
    """Checkpoints and tables are files of this machine."""
    if (address := address_in(data)) is not None:
        raise PipelineError(
            f"{address} is an address, and checkpoints and tables are kept in a folder of this "
            "machine: give a path, such as /data/pipelines."
        )


def _last_number(folder: Path) -> int:
    try:
        names = [one.name for one in folder.iterdir()]
    except (FileNotFoundError, NotADirectoryError):
        return -1
    numbers = [int(one.partition(".")[0]) for one in names if one.partition(".")[0].isdecimal()]
    return max(numbers, default=-1)


def table_location(data: Path, name: str) -> str:
    """Returns the location. A name is a folder below the tables; a path is relative to the current
    folder; an address stays as it is."""
    if "://" in name:
        return name
    return str(Path(name).absolute() if "/" in name else data.absolute() / "tables" / name)


def _remove_table(table: Path) -> None:
    """A table that stays although it should go would have its rows twice after the next run. Behind
    a link, which a person made to have the table elsewhere, only what it leads to is emptied."""
    real = table.resolve()
    try:
        shutil.rmtree(real)
        if table.is_symlink():
            real.mkdir()
    except FileNotFoundError:
        return
    except OSError as failure:
        raise PipelineError(f"{real} cannot be removed: {failure.strerror}.") from failure


class TableInUse(PipelineError):
    """Another process writes to it."""


@dataclass(slots=True)
class TableLock:
    """The lock of a table that this process writes. `file` is None for a table at an address:
    whether other processes write it is unknown."""

    file: TextIO | None
    is_alone: bool

    @contextmanager
    def alone_for_now(self) -> Iterator[bool]:
        """Yields whether no other process writes the table meanwhile. A process that appends shares
        the lock, tries to get it exclusively, and shares it again afterwards. To change the kind,
        the kernel first releases the lock, so another process may take it in between: then this
        waits, and writes nothing until it has the lock again."""
        if self.file is None or self.is_alone:
            yield self.is_alone
            return
        try:
            fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            fcntl.flock(self.file, fcntl.LOCK_SH)
            yield False
            return
        try:
            _sign(self.file)
            yield True
        finally:
            fcntl.flock(self.file, fcntl.LOCK_SH)


@contextmanager
def table_held(location: str, *, alone: bool) -> Iterator[TableLock]:
    """Holds the lock of a table on this machine while it is written. A writer that replaces rows
    writes `alone`: otherwise an older number could be merged after a newer one and stay. Several
    appending writers may share it."""
    if "://" in location:
        yield TableLock(None, is_alone=False)
        return
    with _lock_of(location).open("a+") as file:
        if not _taken(file, alone=alone):
            file.seek(0)
            raise TableInUse(
                f"The table {location} is being written by process {file.read() or 'unknown'}: let "
                "it end or stop it first, or write to another table."
            )
        _sign(file)
        yield TableLock(file, is_alone=alone)


def _taken(file: TextIO, *, alone: bool) -> bool:
    """Waits a while for the lock if this stream appends: another appending stream may be compacting
    between its batches."""
    deadline = time.monotonic() + (0.0 if alone else COMPACTED_WITHIN_S)
    while True:
        try:
            fcntl.flock(file, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)
            return True
        except OSError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.1)


def _sign(file: TextIO) -> None:
    file.seek(0)
    file.truncate()
    file.write(str(os.getpid()))
    file.flush()


def _lock_of(location: str) -> Path:
    """Beside the table, or where only the table itself may be written, by its name elsewhere. A
    table has one lock, also where somebody comes to it by a link."""
    location = str(Path(location).resolve())
    path = Path(location).parent / f".{Path(location).name}.lock"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    except OSError:
        name = hashlib.sha256(location.encode()).hexdigest()[:16]
        return Path(tempfile.gettempdir()) / f"headrace-table-{name}.lock"
    return path


def known(data: Path) -> list[Folder]:
    """The pipelines that have run with this folder."""
    must_be_local(data)
    return [Folder(data, path.parent.name) for path in sorted(data.glob("state/*/identity.json"))]


def _read(path: Path, *, if_whole: bool = False) -> dict[str, Any] | None:
    """Returns None if the file does not exist; with `if_whole` also if it is damaged, for a file
    that is only displayed."""
    try:
        found = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return None
    except ValueError:
        if if_whole:
            return None
        raise PipelineError(
            f"{path} is damaged: put it back from a copy, or start over by removing {path.parent}."
        ) from None
    return found if isinstance(found, dict) else None


def _write(path: Path, value: dict[str, Any]) -> None:
    """Writes a whole file or nothing: a kill leaves the old one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    new.write_text(json.dumps(value), "utf-8")
    new.replace(path)


def _is_spark(process: int) -> bool:
    """Returns whether that process lives and is a Spark: its number may belong to another process
    by now."""
    try:
        return b"SparkSubmit" in Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return False
