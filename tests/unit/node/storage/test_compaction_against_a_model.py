"""Whatever is written, compaction leaves what a plain model says; and a kill between any two steps
of a swap loses nothing."""

import shutil

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.node.process.folders.real_disk import RealDisk, RealFile
from headrace.node.storage.compaction.compaction import clean
from tests.effort import examples
from tests.unit.node.storage.a_compacted_log import ACompactedLog
from tests.unit.node.storage.a_log import NOW

RETENTION = 1000
QUICK_TO_COPY = {"segment_index_bytes": 1200}
KEYS = st.sampled_from([b"a", b"b", b"c", b"d", b"long" * 40])
RECORDS = st.lists(
    st.tuples(KEYS, st.one_of(st.none(), st.binary(max_size=3))), min_size=1, max_size=5
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), RECORDS, st.integers(0, 4), st.sampled_from([-1, 5])),
        st.tuples(st.just("send"), RECORDS, st.integers(0, 4), st.sampled_from([1, 2])),
        st.tuples(st.just("end"), st.booleans(), st.sampled_from([1, 2])),
        st.tuples(st.just("roll")),
        st.tuples(st.just("compact"), st.sampled_from([700, 1 << 20])),
        st.tuples(st.just("wait")),
        st.tuples(st.just("kill")),
    ),
    max_size=25,
)


class Entry:
    """One record of the model."""

    def __init__(self, offset, batch, key, value, producer):
        self.offset, self.batch, self.key, self.value = offset, batch, key, value
        self.producer = producer  # of the open transaction it belongs to
        self.aborted = False


class Model:
    """A list of all records ever written, and the rules in their shortest form."""

    def __init__(self):
        self.entries = []
        self.horizons = {}  # batch -> when its tombstones may go

    def compact(self, cleaned_to, limit, now):
        kept_at = {e.key: e.offset for e in self.entries if e.offset < cleaned_to and not e.aborted}
        stays = []
        for entry in self.entries:
            clean = entry.offset < cleaned_to
            if entry.aborted and entry.offset < limit and clean:
                continue
            if clean and entry.offset != kept_at[entry.key]:
                continue
            horizon = self.horizons.get(entry.batch, now + 1)
            if clean and entry.value is None and horizon <= now:
                continue
            stays.append(entry)
        for entry in stays:
            if entry.offset < cleaned_to and entry.value is None:
                self.horizons.setdefault(entry.batch, now + RETENTION)
        self.entries = stays

    def end(self, producer, commit):
        for entry in self.entries:
            if entry.producer == producer:
                entry.producer, entry.aborted = None, not commit


class Story:
    def __init__(self, folder):
        self.log = ACompactedLog(folder, delete_retention_ms=RETENTION)
        self.model = Model()
        self.now = NOW
        self.sequences = {}
        self.open = set()

    def tell(self, step, *arguments):
        getattr(self, step)(*arguments)

    def put(self, records, codec, producer):
        self._write(records, codec, producer, None)

    def send(self, records, codec, producer):
        self.open.add(producer)
        self._write(records, codec, producer, producer, is_transactional=True)

    def _write(self, records, codec, producer, transaction, **how):
        if producer >= 0:
            sequence = self.sequences.get(producer, 0)
            self.sequences[producer] = sequence + len(records)
            how |= {"producer_id": producer, "producer_epoch": 0, "base_sequence": sequence}
        base = self.log.put(*records, compression=codec, **how)
        for number, (key, value) in enumerate(records):
            entry = Entry(base + number, base, key, value, transaction)
            self.model.entries.append(entry)

    def end(self, commit, producer):
        if producer in self.open:
            self.open.discard(producer)
            self.log.log.writer.append_marker(
                commit=commit,
                producer_id=producer,
                producer_epoch=0,
                coordinator_epoch=0,
                leader_epoch=0,
                wall_ms=NOW,
            )
            self.model.end(producer, commit)

    def roll(self):
        self.log.roll()

    def wait(self):
        self.now += RETENTION

    def kill(self):
        before = len(self.log.log.producers.open_transactions)
        self.log.kill()
        assert len(self.log.log.producers.open_transactions) == before
        for producer, sequence in self.sequences.items():
            assert self.log.log.producers.producers[producer].next_sequence == sequence

    def compact(self, memory):
        cleanable = self.log.cleanable(self.now)
        if not cleanable.dirty_bytes:
            return
        limit = cleanable.first_uncleanable
        self.log.compact(wall_ms=self.now, memory=memory)
        self.model.compact(self.log.cleaned_to, limit, self.now)
        self.check()

    def check(self):
        expected = [(e.offset, e.key, e.value) for e in self.model.entries]
        # What lies behind the round in segments that it touched may have lost aborted records.
        aborted = {e.offset for e in self.model.entries if e.aborted}
        found = self.log.records()
        assert [r for r in found if r[0] not in aborted] == [
            r for r in expected if r[0] not in aborted
        ]
        assert self.committed() == [
            (e.offset, e.key, e.value)
            for e in self.model.entries
            if not e.aborted and e.offset < self.stable()
        ]

    def stable(self):
        log = self.log.log
        return log.producers.last_stable_offset(log.end_offset)

    def committed(self):
        return [entry for entry in committed(self.log) if entry[0] < self.stable()]


def committed(log):
    """As a consumer with read_committed sees it: aborted producers by the index, until their
    marker comes."""
    log.end_turn()
    aborted = sorted(
        {
            (entry.first_offset, entry.producer_id)
            for segment in log.log.segments.items
            for entry in segment.transaction_index.entries()
        },
        reverse=True,
    )
    dropped, read = set(), []
    for header, records in log.batches():
        while aborted and aborted[-1][0] <= header.last_offset:
            dropped.add(aborted.pop()[1])
        if header.is_control:
            for record in records:
                if record.key == b"\0\0\0\0":
                    dropped.discard(header.producer_id)
        elif header.producer_id not in dropped or not header.is_transactional:
            read += [(r.offset, r.key, r.value) for r in records]
    return read


@settings(max_examples=examples(100), deadline=None, suppress_health_check=list(HealthCheck))
@given(STEPS)
def test_compaction_leaves_what_the_model_says(tmp_path_factory, steps):
    folder = tmp_path_factory.mktemp("log")
    story = Story(folder)
    for step in [*steps, ("roll",), ("compact", 1 << 20), ("kill",)]:
        story.tell(*step)
    story.check()
    shutil.rmtree(folder)


class CopyingDisk(RealDisk):
    """Keeps a copy of the folder as it is before each rename and each removal."""

    __slots__ = ("folder", "copies", "watching")

    def __init__(self, folder):
        self.folder, self.copies, self.watching = folder, [], False

    def rename(self, old, new):
        self.keep()
        super().rename(old, new)

    def remove(self, path):
        self.keep()
        super().remove(path)

    def keep(self):
        if self.watching:
            copy = self.folder / f"copy-{len(self.copies)}"
            shutil.copytree(self.folder / "orders-0", copy / "orders-0")
            self.copies.append(copy)


def test_a_kill_between_any_two_steps_of_a_swap(tmp_path, monkeypatch):
    monkeypatch.setattr(RealFile, "flush", lambda file: None)  # a kill takes nothing unflushed
    disk = CopyingDisk(tmp_path)
    log = ACompactedLog(tmp_path, disk=disk, **QUICK_TO_COPY)
    story = Story(tmp_path / "other")
    story.log = log
    for round_ in range(3):
        log.put((b"a", b"%d" % round_), (b"b", b"%d" % round_), producer_id=5, producer_epoch=0,
                base_sequence=2 * round_)  # fmt: skip
        story.send([(b"a", b"aborted")], 0, 1)
        story.end(False, 1)
        log.put((b"key-%d" % round_, b"x"))
        log.roll()
    log.put((b"last", b"x"))
    before = latest(log)
    groups = []
    disk.watching = True
    clean(disk, log.job(), lambda length: disk.keep(), groups.append)
    for group in groups:
        assert log.swap_in(group)
    disk.keep()
    disk.watching = False
    assert latest(log) == before
    assert len(log.log.segments.bases) == 2
    assert len(disk.copies) > 20
    for number, copy in enumerate(disk.copies):
        for start in ("kill", "restart"):
            shutil.copytree(copy / "orders-0", copy / start / "orders-0")
            # A second kill in some states: in all it takes longer than it is worth.
            twice = start == "kill" and number % 6 == 0
            begin_again(copy / start, start, before, log.log.end_offset, twice=twice)


def begin_again(folder, start, before, end_offset, *, twice):
    """A start on this folder; `twice`: and on what a kill at any step of it leaves."""
    disk = CopyingDisk(folder)
    disk.watching = twice
    again = ACompactedLog(folder, disk=disk, **QUICK_TO_COPY)
    disk.watching = False
    getattr(again, start)()
    assert latest(again) == before, folder
    assert again.log.end_offset == end_offset
    names = again.open_files.disk.list(again.folder)
    assert not [n for n in names if n.endswith((".cleaned", ".swap"))]
    again.roll()
    again.compact()
    assert latest(again) == before, folder
    for second in disk.copies:
        begin_again(second, start, before, end_offset, twice=False)


def latest(log):
    """Key -> offset and value of its last record that was not aborted."""
    return {key: (offset, value) for offset, key, value in committed(log)}
