"""Runs a member of the quorum in its node: performs the machine's effects, brings results back.

Requests go out by `environment.Peers`, fetches on a lane of their own since the leader keeps them
waiting. Flushes run on another thread: the host is on the node's list of flushes (`flush_target`,
`flushed`), as a log is. A `MetadataListener`, the controller and its image, is called with the
outcome of records. Nothing here waits.

A broken disk that refuses `quorum-state`, metadata that cannot be read and a quorum that breaks its
promises end the node (`on_failure`): from that moment on nothing of the quorum leaves it. A full
disk does not: the member resigns, does not vote, and follows as far as it can without a write.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, Protocol

from headrace.environment import Address, Now, Peers
from headrace.node.consensus.metadata_recovery import UnusableMetadata
from headrace.node.consensus.quorum.effects import (
    Committed,
    Deposed,
    Effect,
    Elected,
    Flush,
    Reply,
    Send,
    SnapshotInstalled,
    Truncated,
)
from headrace.node.consensus.quorum.fetcher import CommittedRecordsDiverge
from headrace.node.consensus.quorum.machine import Quorum, TwoLeaders
from headrace.node.consensus.quorum.messages import FetchRequest, FetchSnapshotRequest, Response
from headrace.node.consensus.quorum.roles import Leader
from headrace.node.consensus.quorum.wire import INCOMING, OUTGOING
from headrace.node.consensus.quorum.wire.names import Names
from headrace.node.consensus.quorum_files import QuorumFiles
from headrace.node.consensus.voters import VoterEndpoint
from headrace.node.storage.durability.open_files import is_full
from headrace.wire.protocol.errors import ErrorCode, KafkaError, MalformedMessage

log = logging.getLogger(__name__)

FETCH_LANE = "quorum-fetch"
LANE = "quorum"
# Addresses come from settings and voters, so there are few; of more nothing is remembered.
MOST_STRANGERS = 100
QUIET_ABOUT_ROOM_MS = 60_000


class MetadataListener(Protocol):
    """A listener of the metadata log: it is called in the order of the events."""

    def elected(self, epoch: int) -> None: ...

    def deposed(self, epoch: int) -> None: ...

    def truncated(self, to_offset: int) -> None: ...

    def committed(self, high_watermark: int) -> None: ...

    def snapshot_installed(self, end_offset: int) -> None: ...


class QuorumHost:
    def __init__(
        self,
        quorum: Quorum,
        files: QuorumFiles,
        *,
        peers: Peers | None,
        names: Names,
        listener: MetadataListener,
        wants_flush: list[Any],
        now: Callable[[], Now],
        on_failure: Callable[[OSError], None] | None = None,
    ) -> None:
        """`peers` None: there are no other members to ask. `on_failure` None: the caller gets the
        exception."""
        self.quorum = quorum
        self._files = files
        self._peers = peers
        self._names = names
        self._listener = listener
        self._wants_flush = wants_flush
        self._now = now
        self._on_failure = on_failure
        # Returns whether the host of an address has refused the last connection to it.
        self.is_refused: Callable[[Address], bool] = lambda address: False
        self._is_performing = False
        self._is_over = False  # `on_failure` was called
        self._quiet_until_ms = 0
        self._logged_epochs = 0  # of `unbelievable_epochs`
        self._claimed = ""  # the last report of a second leader
        self._strangers: set[VoterEndpoint] = set()  # of another cluster, and already logged

    # For the node

    def start(self) -> None:
        self.quorum.start(self._now())
        self._perform()

    def tick(self) -> int:
        """Do what is due; returns when to call again at the latest, in monotonic ms."""
        now = self._now()
        with self._or_end():
            self.quorum.tick(now)
            self._perform()
        return self.quorum.next_ms(now.monotonic_ms)

    def next_ms(self) -> int:
        return self.quorum.next_ms(self._now().monotonic_ms)

    @property
    def leads(self) -> bool:
        """False as soon as the quorum has decided that another member leads. The listener gets
        `deposed` a little later, after the records that were committed before."""
        return isinstance(self.quorum.role, Leader)

    def append(self, batches: bytes | bytearray) -> None:
        """KafkaError: the disk refuses, and nothing has changed, but that this member has resigned
        if there are others."""
        try:
            self.quorum.append(batches, self._now())
        except OSError as failure:
            self._end(failure)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(failure)) from failure
        except KafkaError as refusal:
            if self.quorum.other_voters():
                log.error("this node resigns as the active controller: %s", refusal)
            self._perform()
            raise
        self._perform()

    def resign(self) -> None:
        with self._or_end():
            self.quorum.resign(self._now())
            self._perform()

    def receive(self, api: ModuleType, message: Any, answered: Callable[[Any], None]) -> None:
        """A request of another node or of an administrator; KafkaError: it is not for this quorum.

        `answered` gets the response message, now or later.
        """
        incoming = INCOMING[api]
        request = incoming.decode(message, self._names)

        def respond(response: Response) -> None:
            answered(incoming.encode_response(response))

        with self._or_end():
            try:
                self.quorum.receive(request, respond, self._now())
            except TwoLeaders as claim:
                raise self._refused(claim) from claim
            self._log_unbelievable_epochs()
            self._perform()

    def _refused(self, claim: TwoLeaders) -> KafkaError:
        """Any client can name a leader in a request. Such a request ends no leadership; only the
        response of a member that this node has asked does. The leader that is known stays; one line
        for a claim."""
        if str(claim) != self._claimed:
            self._claimed = str(claim)
            log.error("a request is refused that names a second leader: %s", claim)
        return KafkaError(ErrorCode.INVALID_REQUEST, str(claim))

    def _log_unbelievable_epochs(self) -> None:
        """Log the first refused epoch, the second, the fourth and so on: never a flood of lines."""
        count = self.quorum.unbelievable_epochs
        if count > self._logged_epochs and count & (count - 1) == 0:
            self._logged_epochs = count
            log.error(
                "refused an epoch that is too far ahead of this node's, %d (%d times so far): "
                "another program speaks to the controllers' port, or this folder is far behind",
                self.quorum.epoch,
                count,
            )

    # As one that wants its files flushed

    def flush_target(self) -> Any:
        """Returns None if another flush was enough."""
        flush = self._files.flush_target()
        if flush is None:
            self._files.note_flushed()
            self._count_what_is_flushed()
        return flush

    def flushed(self, flush: Any) -> bool:
        """Returns False if the log was truncated in the meantime, so that it must be flushed
        again."""
        counts = self._files.flushed(flush)
        if counts:
            self._count_what_is_flushed()
        return counts

    def _count_what_is_flushed(self) -> None:
        with self._or_end():
            self.quorum.flushed(self._now())
            self._perform()

    # Effects

    @contextmanager
    def _or_end(self) -> Iterator[None]:
        try:
            yield
        except (OSError, TwoLeaders, CommittedRecordsDiverge, UnusableMetadata) as failure:
            if isinstance(failure, OSError) and is_full(failure) and self.quorum.other_voters():
                self._wait_for_room(failure)
                return
            self._end(failure)

    def _end(self, failure: Exception) -> None:
        if self._on_failure is None:
            raise failure
        self._is_over = True
        log.critical("this node must not take part in the quorum any more: %s", failure)
        self._on_failure(failure if isinstance(failure, OSError) else OSError(0, str(failure)))

    def _wait_for_room(self, problem: OSError) -> None:
        """The disk has no room for what an event needs: the event counts as lost in the network,
        and is repeated. Logged at most once a minute."""
        self.quorum.noted.has_no_room = True
        now_ms = self._now().monotonic_ms
        if now_ms >= self._quiet_until_ms:
            self._quiet_until_ms = now_ms + QUIET_ABOUT_ROOM_MS
            log.error("this node takes no part in the quorum until there is room: %s", problem)

    def _perform(self) -> None:
        if self._is_over:
            self.quorum.effects.clear()
            return
        if self._is_performing:
            return  # a listener has called back: what it caused comes after what is under way
        self._is_performing = True
        try:
            # Taken one by one: if one fails, those behind it are performed with the next event.
            while self.quorum.effects and not self._is_over:
                self._perform_one(self.quorum.effects.pop(0))
        finally:
            self._is_performing = False

    def _perform_one(self, effect: Effect) -> None:
        match effect:
            case Send():
                self._send(effect)
            case Reply():
                effect.token(effect.response)
            case Flush():
                if self not in self._wants_flush:
                    self._wants_flush.append(self)
            case Elected():
                self._listener.elected(effect.epoch)
            case Deposed():
                self._listener.deposed(effect.epoch)
            case Truncated():
                self._listener.truncated(effect.to_offset)
            case Committed():
                self._listener.committed(effect.high_watermark)
            case SnapshotInstalled():
                self._listener.snapshot_installed(effect.end_offset)

    def _note_strangers(self, point: VoterEndpoint, response: Response) -> None:
        """Log a wrong address in the settings, or a data folder of another cluster: once for each
        address, since this member asks it again and again."""
        if response.error != ErrorCode.INCONSISTENT_CLUSTER_ID or point in self._strangers:
            return
        if len(self._strangers) < MOST_STRANGERS:
            self._strangers.add(point)
        log.error(
            "the controller at %s:%d belongs to another cluster than this data folder, whose "
            "cluster id is %s: this node is not let in there. Look at "
            "controller.quorum.bootstrap.servers and at the folder",
            point.host,
            point.port,
            self._names.cluster_id,
        )

    def _send(self, send: Send) -> None:
        way = OUTGOING[type(send.request)]
        listeners = [p for p in send.endpoints if p.listener == self._names.listener]
        point = (listeners or list(send.endpoints))[0]
        address = Address(point.host, point.port, point.listener)
        is_fetch = isinstance(send.request, FetchRequest | FetchSnapshotRequest)

        def answered(message: Any) -> None:
            response = None
            if message is not None:
                try:
                    response = way.decode_response(message, self._names)
                except (KafkaError, MalformedMessage):
                    self.quorum.damaged_responses += 1
                else:
                    self._note_strangers(point, response)
            with self._or_end():
                if message is None and self.is_refused(address):
                    self.quorum.refused(send.to, self._now())
                self.quorum.answered(send.to, send.correlation_id, response, self._now())
                self._log_unbelievable_epochs()
                self._perform()

        if self._peers is None:
            answered(None)
            return
        self._peers.ask(
            address,
            FETCH_LANE if is_fetch else LANE,
            way.api,
            way.encode(send.request, self._names),
            answered,
            timeout_ms=self.quorum.timeouts.request_ms,
        )
