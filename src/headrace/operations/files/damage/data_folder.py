"""A check of a whole data folder: the metadata, every partition, and the files beside them.

Changes nothing. Also reports whether a node would start on the folder as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from headrace.node.broker.folders.identity import identity_from_bytes
from headrace.node.consensus import quorum_state, recovery_point
from headrace.node.consensus.first_files import METADATA_FOLDER
from headrace.node.consensus.metadata_recovery import UnusableMetadata, require_whole
from headrace.node.consensus.metadata_survey import Survey, survey
from headrace.node.consensus.quorum.believable_epochs import LAST_EPOCH
from headrace.node.consensus.snapshots import BOOTSTRAP_FILE, fault_in_snapshot
from headrace.node.process.folders.real_disk import FolderInUse, FolderLock, RealDisk
from headrace.node.storage import checkpoints
from headrace.node.storage.checkpoints import MalformedCheckpoint, Partition
from headrace.node.storage.log_folder import STRAY, partition_of
from headrace.operations.files.damage.finding import CannotMend, Finding, Kind, Remedy
from headrace.operations.files.damage.log_files import LogFiles, check_log_files

Progress = Callable[[str, int], None]  # the folder that is read, and bytes read since the last call
Offsets = dict[Partition, int]


@dataclass(slots=True)
class Check:
    """One data folder, and the findings in it."""

    folder: Path
    progress: Progress
    clean: bool = False  # whether the last stop was clean
    findings: list[Finding] = field(default_factory=list)
    folders: int = 0
    bytes: int = 0
    refusal: str | None = None  # the sentence of a start that would be refused

    @property
    def metadata(self) -> Path:
        return self.folder / METADATA_FOLDER

    @property
    def damage(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.kind is Kind.DAMAGED]

    def run(self) -> None:
        if not self.metadata.is_dir() and not (self.folder / checkpoints.META_PROPERTIES).exists():
            raise CannotMend(
                f"{self.folder} is not a data folder: it has no {METADATA_FOLDER}. Name the folder "
                "that `headrace start --data` was given."
            )
        self.clean = (self.folder / checkpoints.CLEAN_SHUTDOWN).exists()
        offsets = {name: self._offsets(name) for name in OFFSETS}
        self._check_identity()
        if self.metadata.is_dir():
            self._check_metadata()
        else:
            self._note_metadata_elsewhere()
        flushed, starts = offsets[checkpoints.RECOVERY_POINTS], offsets[checkpoints.START_OFFSETS]
        for path in sorted(self.folder.iterdir()):
            partition = partition_of(path.name) if path.is_dir() else None
            if partition is not None:
                self._check_partition(path, flushed.get(partition, 0), starts.get(partition))
            elif path.is_dir() and path.name.endswith(STRAY):
                self._note_stray(path)

    def _found(self, kind: Kind, path: Path, what: str, advice: str, *remedies: Remedy) -> None:
        self.findings.append(Finding(kind, path, what, advice=advice, remedies=remedies))

    # --- beside the logs

    def _offsets(self, name: str) -> Offsets:
        path = self.folder / name
        if not path.exists():
            return {}
        try:
            return checkpoints.offsets_from_bytes(path.read_bytes())
        except MalformedCheckpoint as problem:
            self._found(Kind.DAMAGED, path, str(problem), OFFSETS[name], Remedy.SET_ASIDE)
            return {}

    def _check_identity(self) -> None:
        path = self.folder / checkpoints.META_PROPERTIES
        advice = "a start is refused"
        if not path.exists():
            if any(file.stat().st_size for file in self.metadata.glob("*.log")):
                self._found(Kind.DAMAGED, path, "it is missing", advice, Remedy.IDENTITY)
                self.refusal = f"{path} is missing"
            return
        try:
            identity_from_bytes(path.read_bytes())
        except MalformedCheckpoint as problem:
            self._found(Kind.DAMAGED, path, str(problem), advice, Remedy.IDENTITY)
            self.refusal = f"{path} is damaged: {problem}"

    # --- logs

    def _check_metadata(self) -> None:
        disk, folder = RealDisk(), str(self.metadata)
        found = survey(disk, folder, everything=True)
        flushed = max([found.recovery_point or 0, *(s.end_offset for s in found.all_snapshots)])
        # A snapshot may replace all flushed records before it.
        required = flushed if found.base < flushed else 0
        log = LogFiles(self.metadata, self.clean, flushed, required, contiguous=True)
        self.findings += check_log_files(log, lambda size: self._passed(METADATA_FOLDER, size))
        self._add_wrong_epochs(found)
        self.folders += 1
        for snapshot, fault in found.bad_snapshots:
            path = self.metadata / snapshot.file_name
            advice = "an older snapshot and the log replace it, if they are complete"
            self._found(Kind.DAMAGED, path, fault, advice, Remedy.FLIP, Remedy.SET_ASIDE)
        if found.recovery_point_fault is not None:
            path = self.metadata / recovery_point.FILE_NAME
            what, advice = "its checksum does not fit", "the next start writes it again"
            self._found(Kind.DAMAGED, path, what, advice, Remedy.SET_ASIDE)
        self._judge_start(found)
        self._check_quorum_state(disk, folder, found.end_offset)
        self._check_bootstrap(disk)

    def _add_wrong_epochs(self, found: Survey) -> None:
        """Find batches that only the metadata log shows to be wrong."""
        known = {(str(finding.path), finding.position) for finding in self.findings}
        for damage in found.damage:
            if damage.size and (damage.path, damage.position) not in known:
                path, what = Path(damage.path), damage.reason
                finding = Finding(Kind.DAMAGED, path, what, damage.position, damage.size)
                finding.offset, finding.remedies = damage.offset, (Remedy.CUT_METADATA,)
                self.findings.append(finding)

    def _judge_start(self, found: Survey) -> None:
        try:
            require_whole(found, clean=self.clean)
        except UnusableMetadata as refusal:
            self.refusal = self.refusal or str(refusal).partition(" `headrace")[0]

    def _check_quorum_state(self, disk: RealDisk, folder: str, end_offset: int) -> None:
        path = self.metadata / quorum_state.FILE_NAME
        try:
            state = quorum_state.read_quorum_state(disk, folder)
        except quorum_state.BadQuorumState as problem:
            what, refusal = str(problem).partition(": ")[2], str(problem)
        else:
            if state is None:
                if end_offset > 0:
                    what = "it is missing, and the metadata log has records: the votes are lost"
                    advice = "a voter continues in a later epoch, in which it cannot have voted"
                    self._found(Kind.DAMAGED, path, what, advice)
                return
            if state.leader_epoch < LAST_EPOCH:
                return
            what = f"its epoch, {state.leader_epoch}, is the last one: no election can follow"
            refusal = f"{path}: {what}"
        self._found(Kind.DAMAGED, path, what, "a start is refused", Remedy.EPOCH)
        self.refusal = self.refusal or refusal

    def _check_bootstrap(self, disk: RealDisk) -> None:
        path = self.folder / BOOTSTRAP_FILE
        fault = fault_in_snapshot(disk, str(path)) if path.exists() else None
        if fault is not None:
            advice = "only the first start of a cluster needs it"
            self._found(Kind.DAMAGED, path, fault, advice, Remedy.FLIP, Remedy.SET_ASIDE)

    def _check_partition(self, path: Path, flushed: int, start: int | None) -> None:
        log = LogFiles(path, self.clean, flushed, required_end=flushed)
        self.findings += check_log_files(log, lambda size: self._passed(path.name, size))
        self.folders += 1
        if start is not None and start > log.end_offset:
            what = f"{path.name} begins at {start}, and its log ends at {log.end_offset}"
            self._found(
                Kind.DAMAGED,
                self.folder / checkpoints.START_OFFSETS,
                what,
                OFFSETS[checkpoints.START_OFFSETS],
                Remedy.SET_ASIDE,
            )

    def _passed(self, folder: str, size: int) -> None:
        self.bytes += size
        self.progress(folder, size)

    def _note_metadata_elsewhere(self) -> None:
        what = "it is not here: it is in another data folder of this node, or it is lost"
        advice = "check the first folder of log.dirs, or that of metadata.log.dir"
        self._found(Kind.NOTE, self.metadata, what, advice)

    def _note_stray(self, path: Path) -> None:
        size = sum(file.stat().st_size for file in path.glob("*.log"))
        what = "no topic owned this folder when a node started"
        self.findings.append(
            Finding(Kind.NOTE, path, what, size=size, advice="deleted after a long wait")
        )


# The effect on a start without the file.
OFFSETS = {
    checkpoints.RECOVERY_POINTS: "a start reads all batches again",
    checkpoints.START_OFFSETS: "deleted records of the first segment may come back",
    checkpoints.HIGH_WATERMARKS: "not needed by a cluster of one",
    checkpoints.CLEANED_OFFSETS: "compaction starts over",
}


def shown(check: Check, finding: Finding) -> str:
    """The file's path, relative to the data folder."""
    return str(finding.path.relative_to(check.folder))


def as_object(check: Check, finding: Finding) -> dict[str, object]:
    return {
        "kind": finding.kind.value,
        "file": shown(check, finding),
        "byte": finding.position,
        "bytes": finding.size,
        "offset": finding.offset,
        "next_good_offset": finding.until,
        "what": finding.what,
        "advice": finding.advice or None,
        "ways": [remedy.value for remedy in finding.remedies],
    }


def sizes_of(folder: Path) -> Iterator[int]:
    """The sizes of the log's segments, to know how much there is to read."""
    for path in folder.glob("*/*.log"):
        yield path.stat().st_size


def is_in_use(folder: Path) -> bool:
    """Whether a node runs on the folder; a folder without a lock never had one."""
    if not (folder / ".lock").exists():
        return False
    try:
        FolderLock(str(folder)).release()
    except FolderInUse:
        return True
    except OSError:
        return False
    return False
