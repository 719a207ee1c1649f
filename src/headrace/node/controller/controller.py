"""The controller: decides and writes all changes of the metadata.

Decide (pure, `topics.py` and the modules beside it) -> append to the metadata log -> replay into
`image` -> answer when committed. Later decisions see uncommitted changes (`image`), others see only
committed ones (`committed_image`, `on_committed`).

Every node has one. It is active while its node leads the quorum, which calls it as a
`MetadataListener`: `elected` (it takes over), `committed`, `deposed` (all pending requests are
answered with NOT_CONTROLLER). A controller that is not active, and a node that is only a broker,
replays the committed records, so the listeners of `on_committed` get the same images everywhere.

Rules: nothing changes `image` but `append` and the quorum; answers leave after the listeners of
`on_committed` have seen the image they speak of. The listeners are not called before this node has
once caught up with the leader: a topic that is not known yet is not a deleted one. Sessions of
other brokers are kept in memory alone (`broker_heartbeats.py`).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Protocol, TypeVar

from headrace.environment import Now
from headrace.node.consensus.metadata_log import MetadataLog
from headrace.node.consensus.snapshots import SnapshotWork
from headrace.node.controller import features, topics
from headrace.node.controller.controller_settings import ControllerSettings
from headrace.node.controller.decision import MOST_RECORDS_PER_BATCH
from headrace.node.controller.members import brokers
from headrace.node.controller.members.broker_heartbeats import BrokerSessions
from headrace.node.controller.members.brokers import Membership
from headrace.node.controller.partitions.election_counts import ElectionCounts
from headrace.node.controller.partitions.leader_balance import balance_leaders
from headrace.node.controller.partitions.replica_directories import (
    directories_are_missing,
    directories_failed,
)
from headrace.node.controller.prepared_change import PreparedChange, prepare
from headrace.node.controller.producer_ids import Block, allocate_block
from headrace.node.controller.snapshot_schedule import SnapshotSchedule
from headrace.node.metadata.image import MetadataImage
from headrace.node.serving.api import Waitable, WaitingRequest
from headrace.node.serving.authorization import Authorizer
from headrace.node.steps import at_once
from headrace.wire.protocol.errors import ErrorCode, KafkaError
from headrace.wire.protocol.messages.abort_transaction_record import AbortTransactionRecord
from headrace.wire.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from headrace.wire.protocol.messages.no_op_record import NoOpRecord

log = logging.getLogger(__name__)

Response = TypeVar("Response")
Decided = TypeVar("Decided", bound="HasRecords")

DEFAULT_TIMEOUT_MS = 60_000
# One attempt takes some tenths of a second at most. So a client that makes ten decisions a second
# may make the last attempt hold the loop once.
ATTEMPTS_IN_SLICES = 3


@dataclass(slots=True)
class Opening:
    """The records that a controller writes when it becomes the active one."""

    membership: Membership
    bootstrap: Callable[[], Iterable[Any]]  # records of a cluster whose log is empty
    first_users: Sequence[Any] = field(default=(), repr=False)  # records of a cluster without users


def _always_usable(settings: Mapping[str, str]) -> None:
    """Accepts all settings: the node has no listener with TLS or SASL."""


class HasRecords(Protocol):
    """A decision, as far as its writer needs it."""

    @property
    def records(self) -> Sequence[Any]: ...


class Commit:
    """Records that are being written to disk; requests wait for it until they are there."""

    __slots__ = ("image", "waiting", "is_lost")

    def __init__(self, image: MetadataImage) -> None:
        self.image = image  # the state when these records are committed
        self.waiting: dict[WaitingRequest, None] = {}
        self.is_lost = False  # this controller was deposed before they were committed


class Controller:
    __slots__ = (
        "log",
        "settings",
        "image",
        "committed_image",
        "on_committed",
        "snapshots",
        "authorizer",
        "require_usable",
        "new_id",
        "is_active",
        "_now",
        "_opening",
        "has_caught_up",
        "wake",
        "_pending",
        "_unapplied",
        "applied_offset",
        "_append_ms",
        "sessions",
        "_balanced_ms",
        "elections",
    )

    def __init__(
        self,
        log: MetadataLog,
        settings: ControllerSettings,
        *,
        now: Now,
        new_id: Callable[[], bytes],
        wake: Callable[[Waitable], None],
        authorizer: Authorizer | None = None,
    ) -> None:
        """`now` has both clocks, and is current whenever the quorum calls."""
        self.log = log  # loaded; this node does not lead yet
        self.settings = settings
        self.image = log.image
        self.committed_image = log.image
        self.on_committed: list[Callable[[MetadataImage], None]] = []
        self.snapshots = SnapshotSchedule(log, settings)
        self.authorizer = authorizer  # None: every client may do everything
        # Raises BadValue for settings of this broker that it could not use.
        self.require_usable: Callable[[Mapping[str, str]], None] = _always_usable
        self.new_id = new_id
        self.is_active = False
        self._now = now
        self._opening: Opening | None = None
        self.has_caught_up = settings.alone
        self.wake = wake
        self._pending: deque[Commit] = deque()
        self._unapplied: deque[Commit] = deque()  # committed, but not applied by the broker yet
        # Up to where the broker has created the files of the partitions in the metadata.
        self.applied_offset: Callable[[], int] = lambda: self.committed_image.offset
        self._append_ms = 0
        self.sessions = BrokerSessions(settings.session_timeout_ms)
        self._balanced_ms = 0
        self.elections = ElectionCounts()

    @property
    def background(self) -> list[SnapshotWork]:
        """Snapshots to be written elsewhere, then finished on the loop; the caller that takes them
        clears the list."""
        return self.snapshots.background

    # Life

    def start(self, opening: Opening) -> None:
        """Join the quorum. The only voter leads before this returns; its broker may serve once that
        is committed. Raises KafkaError if a node without others cannot lead."""
        self._opening = opening
        self.snapshots.begin(self._now.monotonic_ms)
        self.log.host.start()

    def _take_over(self, opening: Opening, now: Now) -> None:
        """Write the first records of a new active controller."""
        brokers.require_features(self.image)
        if self.image.transaction is not None:
            self.append([AbortTransactionRecord(reason="controller failover")], now)
        if not self.image.metadata_version:
            first = features.bootstrap_records(
                opening.bootstrap(), self.settings.min_in_sync_replicas
            )
            self.append(first, now)
            brokers.require_features(self.image)
        self.append(brokers.register_controller(opening.membership), now)
        if self.settings.alone:
            self._let_in_only(opening.membership, now)
        if not self.image.scram_credentials:
            self.append(opening.first_users, now)
        # Another controller got the heartbeats: each broker has a whole session from now on.
        heard = self.log.host.quorum.leader_heard
        self.sessions.begin(self.image, now.monotonic_ms, heard)
        self._balanced_ms = now.monotonic_ms

    def _let_in_only(self, membership: Membership, now: Now) -> None:
        """Register and unfence the own broker, and fence all others: they cannot reach a node
        without other nodes."""
        epoch = self.log.log.end_offset
        self.append(brokers.register_broker(self.image, membership, epoch), now)
        for broker in list(self.image.brokers.values()):
            if broker.id != self.settings.node_id and not broker.fenced:
                self._fence(broker.id, now)
        self.append(brokers.unfence(self.image, self.settings.node_id), now)
        minimum = self.settings.min_in_sync_replicas
        me = self.image.brokers[self.settings.node_id]
        self.append(list(directories_are_missing(self.image, me, minimum)), now)

    def directories_failed(self, broker_id: int, failed: Collection[bytes], now: Now) -> None:
        """Data folders of a broker have failed: replicas there lead nothing any more."""
        broker, minimum = self.image.brokers[broker_id], self.settings.min_in_sync_replicas
        self.append(list(directories_failed(self.image, broker, failed, minimum)), now)

    def stop(self, now: Now) -> None:
        """Transfer what this node leads; must be flushed before the node ends."""
        node_id = self.settings.node_id
        minimum = self.settings.min_in_sync_replicas
        self.append(list(brokers.controlled_shutdown(self.image, node_id, minimum)), now)
        self._fence(node_id, now)

    def tick(self, now: Now) -> None:
        """Periodic work: fence silent brokers, give partitions back to preferred leaders, write a
        record that shows that this controller is alive; and take a snapshot, on every node."""
        if self.is_active:
            try:
                self._tick_as_active(now)
            except KafkaError as refusal:
                if refusal.code not in (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_CONTROLLER):
                    raise  # else the disk is full, which was logged: another node takes over
        elif not self.has_caught_up and self._has_all_that_was_heard_of():
            # No newer record exists: this node had all of them from the beginning.
            self._tell_if_caught_up()
        self.snapshots.take_if_due(self.committed_image, now)

    def _tick_as_active(self, now: Now) -> None:
        if len(self.image.brokers) > 1:
            self._look_after_brokers(now)
        idle_ms = self.settings.idle_interval_ms
        if idle_ms and now.monotonic_ms - self._append_ms >= idle_ms:
            self.append([NoOpRecord()], now)

    def _look_after_brokers(self, now: Now) -> None:
        settings = self.settings
        own = settings.node_id if settings.alone else None  # it is alive if this process is
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
        """Returns the epoch of this node's broker; -1 before it is registered."""
        broker = self.image.brokers.get(self.settings.node_id)
        return -1 if broker is None else broker.epoch

    # Changes

    def require_active(self) -> None:
        if not self.is_active or not self.log.host.leads:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "Another node is the active controller.")

    def append(self, records: Sequence[Any], now: Now) -> None:
        """Write and replay. Raises KafkaError, without a change, if the disk refuses or another
        node is the active controller."""
        self.require_active()
        remaining = iter(records)
        while chunk := list(islice(remaining, MOST_RECORDS_PER_BATCH)):
            with self._or_not_controller():
                self.log.append(
                    chunk,
                    metadata_version=self.version_for(chunk),
                    wall_ms=now.wall_ms,
                )
            self._replayed(chunk, now)
        self.elections.note(records)

    def append_prepared(self, change: PreparedChange, now: Now) -> None:
        """Like `append`, for records that are already encoded, and replayed onto the present
        image."""
        assert change.base is self.image, "another change came between decision and append"
        self.require_active()
        with self._or_not_controller():
            self.log.append_prepared(change.batch)
        offset, epoch = self.log.log.end_offset - 1, self.log.epoch
        self._advance(replace(change.image, offset=offset, epoch=epoch), now)

    @contextmanager
    def _or_not_controller(self) -> Iterator[None]:
        """Answers NOT_CONTROLLER if the disk refuses the append and this node has resigned: the
        client then asks the next active controller."""
        try:
            yield
        except KafkaError as refusal:
            if self.log.host.leads:
                raise
            text = f"This node has resigned as the active controller: {refusal.message}"
            raise KafkaError(ErrorCode.NOT_CONTROLLER, text) from refusal

    def commit(
        self,
        records: Sequence[Any],
        answer: Response,
        now: Now,
        *,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
        late: Callable[[Response], Response] | None = None,
        with_files: bool = False,
    ) -> Response | WaitingRequest:
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
    ) -> Response | WaitingRequest:
        """Returns the answer when all decisions so far are committed: now, or a WaitingRequest.

        A decision without records may also refer to changes that are not committed, so it waits for
        those. `late(answer)` makes the answer of a request whose time is up. `with_files`: it also
        waits until new partitions have their files, so that its client can use them at once; if
        they are committed and have no files yet when the time is up, the answer is success.
        NOT_CONTROLLER: this controller was deposed before, and the outcome is unknown.
        """
        commit = self._pending[-1] if self._pending else None
        if with_files and commit is None and self._unapplied:
            commit = self._unapplied[-1]
        if commit is None:
            return answer
        offset = commit.image.offset

        def attempt(expired: bool) -> Response | None:
            if commit.is_lost:
                raise KafkaError(ErrorCode.NOT_CONTROLLER, "Another node leads by now.")
            if self.committed_image.offset >= offset:
                if expired or not with_files or self.applied_offset() >= offset:
                    return answer
            elif expired:
                return late(answer) if late is not None else answer
            return None

        deadline_ms = now.monotonic_ms + max(timeout_ms, 0)
        return WaitingRequest(attempt, deadline_ms=deadline_ms, hangs_on=[commit])

    def create_topics(
        self, request: CreateTopicsRequest, now: Now, admit: topics.Admit | None = None
    ) -> CreateTopicsResponse:
        """Decide and write; the topics exist once `committed_image` has them."""
        decision = topics.create_topics(
            self.image, request, self.settings.topic_rules, self.new_id, admit
        )
        self.append(decision.records, now)
        return decision.response

    def create_topics_in_slices(
        self, request: CreateTopicsRequest, now: Now
    ) -> Generator[None, None, CreateTopicsResponse]:
        """Like `create_topics` for many, without a quota: a quota may be charged only once, so its
        request must be decided once."""
        decision = yield from self.decide_in_slices(
            topics.create_topics_in_steps, now, request, self.settings.topic_rules, self.new_id
        )
        return decision.response

    def decide_in_slices(
        self, decide: Callable[..., Generator[None, None, Decided]], now: Now, *arguments: Any
    ) -> Generator[None, None, Decided]:
        """Decide and write as `append` would, in slices up to the last step, which writes all
        records: no part of it is visible before. If another decision is made meanwhile, it begins
        again; the last attempt is one step. So `decide(image, *arguments)` may be called several
        times."""
        for _ in range(ATTEMPTS_IN_SLICES):
            base = self.image
            decision = yield from decide(base, *arguments)
            if not decision.records:
                return decision
            version = self.version_for(decision.records)
            change = yield from prepare(base, decision.records, version, now.wall_ms)
            if self.image is base:
                self.append_prepared(change, now)
                self.elections.note(decision.records)
                return decision
        decision = at_once(decide(self.image, *arguments))
        self.append(decision.records, now)
        return decision

    def allocate_producer_ids(self, broker_id: int, broker_epoch: int, now: Now) -> Block:
        """Returns a block that no other broker has; it may be used once it is committed."""
        block, record = allocate_block(self.image, broker_id, broker_epoch)
        self.append([record], now)
        return block

    # For the quorum (MetadataListener)

    def elected(self, epoch: int) -> None:
        """Take over with everything in the log: it will be committed with our first record."""
        now, opening = self._now, self._opening
        assert opening is not None, "the quorum runs only after `start`"
        if not self.settings.alone:
            log.info("this node is the active controller, in epoch %d", epoch)
        self.is_active = True
        self._advance(self.log.replay(self.committed_image, self.log.log.end_offset), now)
        try:
            self._take_over(opening, now)
        except KafkaError as refusal:
            if self.settings.alone:
                raise
            log.error("this node gives its role as the active controller up: %s", refusal)
            self.log.host.resign()

    def deposed(self, epoch: int) -> None:
        """The outcome of pending requests is unknown."""
        log.info("this node is not the active controller any more, since epoch %d", epoch)
        self.is_active = False
        self.image = self.committed_image
        pending, self._pending = self._pending, deque()
        for commit in pending:
            commit.is_lost = True
            if commit.waiting:
                self.wake(commit)

    def truncated(self, to_offset: int) -> None:
        """Only uncommitted records were removed, so the image of a follower does not change."""
        assert to_offset > self.committed_image.offset, "committed records stay"

    def committed(self, high_watermark: int) -> None:
        """The records before it are committed: tell the listeners, then answer the waiting
        requests."""
        if not self.is_active:
            self._follow(self.log.replay(self.committed_image, high_watermark))
            return
        committed: list[Commit] = []
        while self._pending and self._pending[0].image.offset < high_watermark:
            committed.append(self._pending.popleft())
        if not committed:
            return
        self.committed_image = committed[-1].image
        self.has_caught_up = True
        self._tell()
        for commit in committed:
            if commit.waiting:
                self.wake(commit)
        self._unapplied += committed
        self.files_are_made()

    def snapshot_installed(self, end_offset: int) -> None:
        self._follow(self.log.load_latest_snapshot(self.committed_image.cluster_id))

    def _follow(self, image: MetadataImage) -> None:
        """Another node leads: follow it."""
        if image is self.committed_image:
            return
        self.image = self.committed_image = image
        self._tell_if_caught_up()

    def _has_all_that_was_heard_of(self) -> bool:
        """Returns whether this node has all records that it knows of. A snapshot of the leader
        alone proves nothing: its log continues after it, and the first answer with a high watermark
        shows how far."""
        return 0 <= self.log.leader_high_watermark <= self.committed_image.offset + 1

    def _tell_if_caught_up(self) -> None:
        self.has_caught_up = self.has_caught_up or self._has_all_that_was_heard_of()
        self._tell()
        self.files_are_made()

    def _tell(self) -> None:
        if self.has_caught_up:
            for listener in self.on_committed:
                listener(self.committed_image)

    def files_are_made(self) -> None:
        """The broker has applied more of the committed records: wake the requests that wait for
        it."""
        applied = self.applied_offset()
        while self._unapplied and self._unapplied[0].image.offset <= applied:
            commit = self._unapplied.popleft()
            if commit.waiting:
                self.wake(commit)

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

    def version_for(self, records: Sequence[Any]) -> int:
        """Returns the finalized metadata.version; the one that is being bootstrapped if there is
        none."""
        return self.image.metadata_version or features.metadata_version_in(records)

    def _fence(self, broker_id: int, now: Now) -> None:
        minimum = self.settings.min_in_sync_replicas
        self.append(list(brokers.fence(self.image, broker_id, minimum)), now)
