"""The controller: the one place where changes of the metadata are decided and written.

Decide (pure, `topics.py` and its neighbours) -> append to the metadata log -> replay into `image`
-> answer when committed. Later decisions see what is not committed yet (`image`), others see
only what is (`committed_image`, `on_committed`). A quorum of one commits by flushing, which never
happens here: the controller puts itself on the list `wants_flush`, whoever serves that list takes
`flush_target()`, runs it on another thread, and reports with `flushed(...)`.

Rules: nothing changes `image` but `append`; answers leave after the listeners of `on_committed`
have seen the image they speak of. Sessions of other brokers are kept in memory alone
(`broker_heartbeats.py`). Not done: other voters.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Any, Protocol, TypeVar

from headrace.consensus.metadata_log import MetadataLog
from headrace.consensus.snapshots import SnapshotWork
from headrace.controller import brokers, features, topics
from headrace.controller.broker_heartbeats import BrokerSessions
from headrace.controller.brokers import Membership
from headrace.controller.decision import MOST_RECORDS_PER_BATCH
from headrace.controller.leader_balance import balance_leaders
from headrace.controller.prepared_change import PreparedChange, prepare
from headrace.controller.producer_ids import Block, allocate_block
from headrace.controller.topics import TopicRules
from headrace.environment import Now
from headrace.metadata.image import MetadataImage
from headrace.protocol.messages.abort_transaction_record import AbortTransactionRecord
from headrace.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from headrace.protocol.messages.no_op_record import NoOpRecord
from headrace.protocol.steps import in_steps
from headrace.serving.api import Parked, Waitable
from headrace.serving.authorization import Authorizer

log = logging.getLogger(__name__)

Response = TypeVar("Response")
Decided = TypeVar("Decided", bound="HasRecords")

DEFAULT_TIMEOUT_MS = 60_000
# One takes some tenths of a second at most: who decides ten times a second may hold the loop once.
ATTEMPTS_IN_SLICES = 3
SMALLEST_WORTH_A_SNAPSHOT = 1 << 20


@dataclass(slots=True)
class ControllerSettings:
    """Named after Kafka's settings, with its defaults where not said otherwise."""

    node_id: int = 1
    topic_rules: TopicRules = field(default_factory=TopicRules)
    # What the node was started with; passwords are among it.
    given: Mapping[str, str] = field(default_factory=dict, repr=False)
    min_in_sync_replicas: int = 1
    session_timeout_ms: int = 9_000  # broker.session.timeout.ms
    balance_leaders: bool = True  # auto.leader.rebalance.enable
    balance_interval_ms: int = 300_000  # leader.imbalance.check.interval.seconds
    # Names of the controller's listeners that this node opens; mostly none in a cluster of one.
    open_listeners: frozenset[str] = frozenset()
    snapshot_after_bytes: int = 20 << 20  # metadata.log.max.record.bytes.between.snapshots
    snapshot_after_ms: int = 3_600_000  # metadata.log.max.snapshot.interval.ms
    retention_bytes: int = 100 << 20  # metadata.max.retention.bytes
    retention_ms: int = 7 * 24 * 3600 * 1000  # metadata.max.retention.ms
    # metadata.max.idle.interval.ms; Apache writes a NoOp each 500 ms so that followers can tell
    # that they are up to date. A quorum of one has none, so here it is off: no flush while idle.
    idle_interval_ms: int = 0


def _always_usable(settings: Mapping[str, str]) -> None:
    """Of a node without listeners that encrypt or ask for a login."""


class HasRecords(Protocol):
    """What a decision is, to the one who writes it."""

    @property
    def records(self) -> Sequence[Any]: ...


class Commit:
    """Records on their way to the disk; requests hang on it until they are there."""

    __slots__ = ("image", "waiting")

    def __init__(self, image: MetadataImage) -> None:
        self.image = image  # as it will be when these records are committed
        self.waiting: dict[Parked, None] = {}


class Controller:
    __slots__ = (
        "log",
        "settings",
        "image",
        "committed_image",
        "on_committed",
        "background",
        "authorizer",
        "require_usable",
        "new_id",
        "_wants_flush",
        "_wake",
        "_pending",
        "_unapplied",
        "applied_offset",
        "_flush_asked",
        "_snapshot_running",
        "_snapshot_ms",
        "_append_ms",
        "sessions",
        "_balanced_ms",
    )

    def __init__(
        self,
        log: MetadataLog,
        settings: ControllerSettings,
        *,
        new_id: Callable[[], bytes],
        wants_flush: list[Any],
        wake: Callable[[Waitable], None],
        authorizer: Authorizer | None = None,
    ) -> None:
        self.log = log  # loaded; not leading yet
        self.settings = settings
        self.image = log.image
        self.committed_image = log.image
        self.on_committed: list[Callable[[MetadataImage], None]] = []
        self.background: list[SnapshotWork] = []  # run elsewhere, then finish on the loop
        self.authorizer = authorizer  # None: everybody may do everything
        # Raises BadValue for settings of this broker that what runs on it could not use.
        self.require_usable: Callable[[Mapping[str, str]], None] = _always_usable
        self.new_id = new_id
        self._wants_flush = wants_flush
        self._wake = wake
        self._pending: deque[Commit] = deque()
        self._unapplied: deque[Commit] = deque()  # committed; the broker is not done with them
        # Up to where the broker has made the files that the metadata speaks of.
        self.applied_offset: Callable[[], int] = lambda: self.committed_image.offset
        self._flush_asked = False
        self._snapshot_running = False
        self._snapshot_ms = 0
        self._append_ms = 0
        self.sessions = BrokerSessions(settings.session_timeout_ms)
        self._balanced_ms = 0

    # Life

    def start(self, membership: Membership, bootstrap: Iterable[Any], now: Now) -> None:
        """Lead a new epoch and let this node's broker in; it may serve once that is committed."""
        self._snapshot_ms = now.monotonic_ms
        brokers.require_features(self.image)
        self.log.lead(now.wall_ms)
        self._replayed((), now)
        if self.image.transaction is not None:
            self.append([AbortTransactionRecord(reason="controller failover")], now)
        if not self.image.metadata_version:
            self.append(
                features.bootstrap_records(bootstrap, self.settings.min_in_sync_replicas), now
            )
            brokers.require_features(self.image)
        self.append(brokers.register_controller(membership), now)
        epoch = self.log.log.end_offset
        self.append(brokers.register_broker(self.image, membership, epoch), now)
        for broker in list(self.image.brokers.values()):
            # No other broker can reach a controller that takes no heartbeats.
            if broker.id != self.settings.node_id and not broker.fenced:
                self._fence(broker.id, now)
        self.append(brokers.unfence(self.image, self.settings.node_id), now)
        self.sessions.begin(self.image, now.monotonic_ms)
        self._balanced_ms = now.monotonic_ms

    def stop(self, now: Now) -> None:
        """Hand over what this node leads; to be flushed before the node ends."""
        node_id = self.settings.node_id
        minimum = self.settings.min_in_sync_replicas
        self.append(list(brokers.controlled_shutdown(self.image, node_id, minimum)), now)
        self._fence(node_id, now)

    def tick(self, now: Now) -> None:
        """What is due by time: silent brokers are fenced, preferred leaders get back what they led,
        a snapshot, or a record that shows we are alive."""
        if len(self.image.brokers) > 1:
            self._look_after_brokers(now)
        idle_ms = self.settings.idle_interval_ms
        if idle_ms and now.monotonic_ms - self._append_ms >= idle_ms:
            self.append([NoOpRecord()], now)
        if self._snapshot_is_due(now):
            self._snapshot_running = True
            self._snapshot_ms = now.monotonic_ms
            self.background.append(
                self.log.snapshot(
                    self.committed_image,
                    now.wall_ms,
                    partial(self._snapshot_ended, wall_ms=now.wall_ms),
                )
            )

    def _look_after_brokers(self, now: Now) -> None:
        settings = self.settings
        own = settings.node_id  # in this process: it is as alive as we are
        expired = self.sessions.expired(self.image, now.monotonic_ms, without=own)
        if expired is not None:
            log.warning("broker %d was not heard of for its session: it is fenced", expired)
            self._fence(expired, now)
        if (
            settings.balance_leaders
            and now.monotonic_ms - self._balanced_ms >= settings.balance_interval_ms
        ):
            self._balanced_ms = now.monotonic_ms
            self.append(balance_leaders(self.image, settings.min_in_sync_replicas), now)

    @property
    def broker_epoch(self) -> int:
        """Of this node's broker; -1 before it is registered."""
        broker = self.image.brokers.get(self.settings.node_id)
        return -1 if broker is None else broker.epoch

    # Changes

    def append(self, records: Sequence[Any], now: Now) -> None:
        """Write and replay; raises KafkaError, with nothing changed, if the disk refuses."""
        remaining = iter(records)
        while chunk := list(islice(remaining, MOST_RECORDS_PER_BATCH)):
            self.log.append(
                chunk,
                metadata_version=self.version_for(chunk),
                wall_ms=now.wall_ms,
            )
            self._replayed(chunk, now)

    def append_prepared(self, change: PreparedChange, now: Now) -> None:
        """The same for records that are encoded and replayed already, onto the image as it is."""
        assert change.base is self.image, "somebody has decided something else meanwhile"
        self.log.append_prepared(change.batch, wall_ms=change.wall_ms)
        offset, epoch = self.log.log.end_offset - 1, self.log.epoch
        self._advance(replace(change.image, offset=offset, epoch=epoch), now)

    def commit(
        self,
        records: Sequence[Any],
        answer: Response,
        now: Now,
        *,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
        late: Callable[[Response], Response] | None = None,
        with_files: bool = False,
    ) -> Response | Parked:
        """Append, then `answer`."""
        self.append(records, now)
        return self.answer(answer, now, timeout_ms=timeout_ms, late=late, with_files=with_files)

    def answer(
        self,
        answer: Response,
        now: Now,
        *,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
        late: Callable[[Response], Response] | None = None,
        with_files: bool = False,
    ) -> Response | Parked:
        """The answer when all that was decided so far is committed: now, or later by Parked.

        Also a decision without records may speak of changes that are not committed, so it waits for
        those. `late(answer)` makes the answer of a request whose time is up. `with_files`: it also
        waits until new partitions have their files, so that its client can use them at once; what
        is committed and has no files yet when the time is up is answered as done, for it is.
        """
        commit = self._pending[-1] if self._pending else None
        if with_files and commit is None and self._unapplied:
            commit = self._unapplied[-1]
        if commit is None:
            return answer
        offset = commit.image.offset

        def attempt(expired: bool) -> Response | None:
            if self.committed_image.offset >= offset:
                if expired or not with_files or self.applied_offset() >= offset:
                    return answer
            elif expired:
                return late(answer) if late is not None else answer
            return None

        deadline_ms = now.monotonic_ms + max(timeout_ms, 0)
        return Parked(attempt, deadline_ms=deadline_ms, hangs_on=[commit])

    def create_topics(
        self, request: CreateTopicsRequest, now: Now, admit: topics.Admit | None = None
    ) -> CreateTopicsResponse:
        """Decide and write; the answer counts once `committed_image` has the topics."""
        decision = topics.create_topics(
            self.image, request, self.settings.topic_rules, self.new_id, admit
        )
        self.append(decision.records, now)
        return decision.response

    def create_topics_in_slices(
        self, request: CreateTopicsRequest, now: Now
    ) -> Generator[None, None, CreateTopicsResponse]:
        """The same for many, without a quota: to be asked once, that must be decided once."""
        decision = yield from self.decide_in_slices(
            topics.create_topics, now, request, self.settings.topic_rules, self.new_id
        )
        return decision.response

    def decide_in_slices(
        self, decide: Callable[..., Decided], now: Now, *arguments: Any
    ) -> Generator[None, None, Decided]:
        """Decide and write as `append` would, in slices up to the last step, which writes it all:
        nobody sees a part of it. Others may decide something meanwhile; then it begins again, and
        the last attempt is one step. `decide(image, *arguments)` may so be called several times.
        """
        for _ in range(ATTEMPTS_IN_SLICES):
            base = self.image
            decision: Decided = yield from in_steps(decide)(base, *arguments)
            if not decision.records:
                return decision
            version = self.version_for(decision.records)
            change = yield from prepare(base, decision.records, version, now.wall_ms)
            if self.image is base:
                self.append_prepared(change, now)
                return decision
        decision = decide(self.image, *arguments)
        self.append(decision.records, now)
        return decision

    def allocate_producer_ids(self, broker_id: int, broker_epoch: int, now: Now) -> Block:
        """A block that nobody else has; to be used once it is committed."""
        block, record = allocate_block(self.image, broker_id, broker_epoch)
        self.append([record], now)
        return block

    # Flushing

    def flush_target(self) -> Any:
        """What to flush now; later appends ask again. None: the log is flushed already."""
        self._flush_asked = False
        flush = self.log.log.flush_target(everything=True)
        if flush is None:
            self._commit_what_is_durable()
        return flush

    def flushed(self, flush: Any) -> bool:
        """What is before the flush's offset is committed: tell the listeners, then the waiting.
        False: it proves nothing, ask again."""
        counts = self.log.flushed(flush)
        self._commit_what_is_durable()
        return counts

    def _commit_what_is_durable(self) -> None:
        durable = self.log.log.recovery_point
        committed: list[Commit] = []
        while self._pending and self._pending[0].image.offset < durable:
            committed.append(self._pending.popleft())
        if not committed:
            return
        self.committed_image = committed[-1].image
        for listener in self.on_committed:
            listener(self.committed_image)
        for commit in committed:
            if commit.waiting:
                self._wake(commit)
        self._unapplied += committed
        self.files_are_made()

    def files_are_made(self) -> None:
        """The broker has come further with what is committed: tell those who wait for it."""
        applied = self.applied_offset()
        while self._unapplied and self._unapplied[0].image.offset <= applied:
            commit = self._unapplied.popleft()
            if commit.waiting:
                self._wake(commit)

    def _replayed(self, records: Sequence[Any], now: Now) -> None:
        image = self.image.apply(
            records,
            offset=self.log.log.end_offset - 1,
            epoch=self.log.epoch,
            wall_ms=now.wall_ms,
        )
        self._advance(image, now)

    def _advance(self, image: MetadataImage, now: Now) -> None:
        self.image = image
        self._append_ms = now.monotonic_ms
        self._pending.append(Commit(self.image))
        if not self._flush_asked:
            self._flush_asked = True
            self._wants_flush.append(self)

    def version_for(self, records: Sequence[Any]) -> int:
        """The finalized metadata.version; the one that is being bootstrapped if there is none."""
        return self.image.metadata_version or features.metadata_version_in(records)

    def _fence(self, broker_id: int, now: Now) -> None:
        minimum = self.settings.min_in_sync_replicas
        self.append(list(brokers.fence(self.image, broker_id, minimum)), now)

    def _snapshot_is_due(self, now: Now) -> bool:
        image = self.committed_image
        if self._snapshot_running or image.transaction is not None:
            return False
        if image.offset < self.log.latest_snapshot_end:
            return False
        # A start replays what is behind the snapshot, at about 15 us for 60 bytes: so it is kept in
        # proportion to the snapshot, not only below Kafka's limit of 20 MiB (5 s).
        proportionate = max(SMALLEST_WORTH_A_SNAPSHOT, 2 * self.log.snapshot_bytes)
        limit = min(self.settings.snapshot_after_bytes, proportionate)
        if self.log.bytes_since_snapshot >= limit:
            return True
        interval = self.settings.snapshot_after_ms
        return interval > 0 and now.monotonic_ms - self._snapshot_ms >= interval

    def _snapshot_ended(self, error: OSError | None, wall_ms: int) -> None:
        """The next one is tried after as long, or as many bytes, whether this one failed or not."""
        self._snapshot_running = False
        if error is not None:
            log.warning("a snapshot of the metadata could not be written: %s", error)
            return
        self.log.clean_up(
            wall_ms,
            retention_bytes=self.settings.retention_bytes,
            retention_ms=self.settings.retention_ms,
        )
