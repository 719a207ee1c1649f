"""The state of the cluster: which pairs are registered, and their topics as they are now.

A thread of its own reads the registry and asks for metadata and limits, so that the loop never
waits for such an answer: it looks at `current`, which is replaced as a whole. A companion with less
partitions than its target is given more; the topics for rejections, outcomes and far messages are
made when they are missing. A target is never made. A failure for one pair, for lack of a permission
or otherwise, does not keep the others waiting.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from time import monotonic

from headrace.client.admin.requests import Requests
from headrace.client.admin.topics import Topics as ClusterTopics
from headrace.client.connection import ClientSettings, addresses, program_settings
from headrace.client.errors import ClientError
from headrace.client.faults import Fault, codes
from headrace.client.intake import BEGINNING, Intake
from headrace.client.records import TopicPartition
from headrace.client.wire import Wire
from headrace.wire.contract import delay_topics
from headrace.wire.contract.own_records import OwnRecords
from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages import metadata
from headrace.wire.protocol.uuids import to_text

log = logging.getLogger("headrace.delay")

# How soon a registration, a new partition, a topic that came or went, a changed limit is noticed.
REGISTRY_WAIT_S = 0.2
METADATA_EVERY_S = 1.0
FIRST_LOOKS_EVERY_S = 0.2  # until there is a delayed topic: a user waits for the first one
LIMITS_EVERY_S = 15.0
AFTER_A_BUG_S = 1.0
ANSWER_WITHIN_S = 10.0
# Kafka's default of max.message.bytes.
DEFAULT_LARGEST_BYTES = 1_048_588
THERE_ALREADY = codes("TOPIC_ALREADY_EXISTS")
# The most that the setting can say.
LARGEST_ROOM_BYTES = 2**31 - 1


@dataclass(slots=True, frozen=True)
class Pair:
    """A target and its companion, as the cluster has them now."""

    target: str
    companion: str
    companion_id: str  # another one if the topic was created again; empty: not known
    partitions: int  # of the companion
    target_partitions: int  # 0: the topic does not exist
    largest_bytes: int  # of a batch in the target
    wants_keys: bool  # it is compacted
    rejected_partitions: int
    outcomes_partitions: int
    far_partitions: int


@dataclass(slots=True, frozen=True)
class Catalog:
    """Replaced as a whole; `number` grows with each change."""

    number: int = 0
    pairs: Mapping[str, Pair] = field(default_factory=dict)  # by companion
    complete: bool = False  # the registry was read to its end once

    @property
    def largest_batch_bytes(self) -> int:
        """The largest batch that every target takes."""
        found = (pair.largest_bytes for pair in self.pairs.values())
        return min(found, default=DEFAULT_LARGEST_BYTES)


def beside(target: str) -> tuple[str, str, str]:
    """The topics that belong to a pair, beside its companion."""
    rejected, outcomes = delay_topics.rejected_of(target), delay_topics.outcomes_of(target)
    return rejected, outcomes, delay_topics.FAR


class Topics:
    """Watches from `start` to `stop`; `only` limits it to some targets."""

    def __init__(
        self, connection: ClientSettings, *, only: Callable[[str], bool] = lambda target: True
    ) -> None:
        self.current = Catalog()
        self.problem: str | None = None  # why the cluster's topics are not known
        self.registrations = OwnRecords(delay_topics.REGISTRY, log)
        self._connection = connection
        self._only = only
        self._requests = Requests(connection)
        self._registry: Intake | None = None
        self._unread: set[int] = set()  # partitions of the registry whose end was not seen yet
        self._registered: dict[str, str] = {}  # companion by target
        self._limits: dict[str, int] = {}
        self._compacted: set[str] = set()
        self._ids: dict[str, str] = {}  # of companions
        self._troubles: list[str] = []  # what the last look could not do
        self._told: set[str] = set()
        self._look_again_at = 0.0
        self._limits_again_at = 0.0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="headrace-delay-topics", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def look_again(self) -> None:
        """Asks again at once: an answer of the cluster does not fit what is known."""
        self._look_again_at = self._limits_again_at = 0.0

    def make_room(self, name: str, size: int) -> bool:
        """At least doubles what a topic of ours takes: it refused a record that must go there.

        `size` is without headers. Waits for the answer, so that the next try is the last. Needed
        because a producer that compresses fits more into a companion than its limit says.
        """
        topics = ClusterTopics(self._connection)
        try:
            now = int(topics.settings_of(name)["max.message.bytes"].value)
            wanted = min(2 * max(now, size), LARGEST_ROOM_BYTES)
            topics.change_settings(name, to={"max.message.bytes": str(wanted)})
        except ClientError as failure:
            log.warning("%s refuses a record, and takes no more: %s", name, failure)
            return False
        log.warning("%s refused a record: its max.message.bytes is %d now", name, wanted)
        return True

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._turn()
                self.problem = " ".join(self._troubles) or None
            except ClientError as failure:
                if self.problem is None:
                    log.warning("the cluster's topics cannot be asked for: %s", failure)
                self.problem = str(failure)
                self._stopping.wait(REGISTRY_WAIT_S)
            except Exception as bug:  # without this thread, new topics would silently not be served
                said = f"a bug in the watch over topics, which goes on: {bug!r}"[:300]
                if self.problem != said:
                    log.exception("a bug in the watch over topics; it goes on")
                self.problem = said
                self._stopping.wait(AFTER_A_BUG_S)
        if self._registry is not None:
            self._registry.close()

    def _turn(self) -> None:
        if monotonic() >= self._look_again_at:
            self._look_again_at = monotonic() + (
                FIRST_LOOKS_EVERY_S if self._registry is None else METADATA_EVERY_S
            )
            self._look()
        if self._read_registry():
            self._look_again_at = 0.0

    # ---- the registry

    def _read_registry(self) -> bool:
        if self._registry is None:
            self._stopping.wait(REGISTRY_WAIT_S)
            return False
        changed = False
        arrived = self._registry.read(REGISTRY_WAIT_S, 10_000)
        for (_, partition), records in arrived.stretches:
            for record in records:
                place = partition, record.offset() or 0
                changed = self._register(record.key(), record.value(), *place) or changed
        for _, partition in arrived.ends:
            changed = changed or partition in self._unread
            self._unread.discard(partition)
        return changed

    def _register(
        self, key: bytes | None, value: bytes | None, partition: int, offset: int
    ) -> bool:
        if value is None:
            return self._registered.pop((key or b"").decode(errors="replace"), None) is not None
        entry = self.registrations.read(
            delay_topics.read_registration, key, value, partition=partition, offset=offset
        )
        if entry is None:
            return False
        if not self._only(entry.target) or entry.target in self._registered:
            return False
        self._registered[entry.target] = entry.companion
        return True

    def _follow_registry(self, partitions: Iterable[int]) -> None:
        settings = program_settings(
            self._connection,
            {
                "group.id": delay_topics.REGISTRY,  # needed by librdkafka, never used
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 500,
            },
        )
        registry = Intake(settings)
        self._unread = set(partitions)
        registry.assign({TopicPartition(delay_topics.REGISTRY, p): BEGINNING for p in self._unread})
        self._registry = registry

    # ---- the topics

    def _look(self) -> None:
        self._troubles.clear()
        counts = self._requests.partition_counts(ANSWER_WITHIN_S)
        if self._registry is None and delay_topics.REGISTRY in counts:
            self._follow_registry(range(counts[delay_topics.REGISTRY]))
        registered = dict(self._registered)
        self._read_limits([target for target in registered if target in counts])
        self._read_ids([each for each in registered.values() if each in counts])
        for target, companion in registered.items():
            self._keep_up(target, companion, counts)
        pairs = {
            companion: Pair(
                target,
                companion,
                self._ids.get(companion, ""),
                counts[companion],
                counts.get(target, 0),
                self._limits.get(target, DEFAULT_LARGEST_BYTES),
                target in self._compacted,
                counts[delay_topics.rejected_of(target)],
                counts[delay_topics.outcomes_of(target)],
                counts[delay_topics.FAR],
            )
            for target, companion in registered.items()
            if companion in counts and all(name in counts for name in beside(target))
        }
        complete = self._registry is not None and not self._unread
        if pairs != self.current.pairs or complete != self.current.complete:
            self.current = Catalog(self.current.number + 1, pairs, complete)

    def _keep_up(self, target: str, companion: str, counts: dict[str, int]) -> None:
        """Creates the missing topics of a pair."""
        if companion not in counts:
            return
        wanted = max(counts.get(target, 0), counts[companion])
        if counts[companion] < wanted:
            self._grow(companion, wanted)
        largest = self._limits.get(target, DEFAULT_LARGEST_BYTES)
        stamped = delay_topics.STAMPED_BY_THE_BROKER
        room = {"max.message.bytes": str(max(largest, DEFAULT_LARGEST_BYTES) * 2), **stamped}
        for name, partitions, settings in (
            (delay_topics.rejected_of(target), wanted, room),
            (delay_topics.outcomes_of(target), wanted, stamped),
            (delay_topics.FAR, 1, {"cleanup.policy": "compact", **room}),
        ):
            if name not in counts:
                if self._create(name, partitions, settings):
                    counts[name] = partitions
            elif counts[name] < partitions:
                self._grow(name, partitions)

    def _grow(self, name: str, partitions: int) -> None:
        log.info("%s gets %d partitions, as many as its target", name, partitions)
        grow = partial(self._requests.grow, name, partitions, ANSWER_WITHIN_S)
        self._try(name, "cannot be given more partitions", grow)

    def _create(self, name: str, partitions: int, settings: Mapping[str, str]) -> bool:
        """Creates a topic. Returns whether it exists now."""
        create = partial(self._requests.create, name, partitions, settings, ANSWER_WITHIN_S)
        return self._try(name, "cannot be made", create, fine=THERE_ALREADY)

    def _try(
        self, name: str, what: str, call: Callable[[], None], *, fine: Container[str] = ()
    ) -> bool:
        """Returns whether it was done. A failure is reported, and tried again with the next
        look."""
        try:
            call()
        except Fault as fault:
            if fault.is_local:
                raise  # no broker answers
            if fault.code not in fine:
                trouble = f"{name} {what}: {fault}."
                self._troubles.append(trouble)
                self._tell(trouble)
                return False
        return True

    def _tell(self, trouble: str) -> None:
        if trouble not in self._told:
            self._told.add(trouble)
            log.error("%s", trouble)

    def _read_ids(self, companions: list[str]) -> None:
        """With our own codecs: librdkafka 2.16 ends the process when a broker dies meanwhile."""
        wanted = [metadata.MetadataRequestTopic(name=name) for name in companions]
        request = metadata.MetadataRequest(wanted, False)
        for address in addresses(self._connection.bootstrap) if wanted else ():
            try:
                with Wire(self._connection, address) as wire:
                    found = wire.ask(metadata, request)
            except ClientError:
                continue  # another one answers, or the next look does
            known = [each for each in found.topics if each.error_code == ErrorCode.NONE]
            self._ids.update({each.name: to_text(each.topic_id) for each in known})
            return

    def _read_limits(self, targets: list[str]) -> None:
        now = monotonic()
        if now >= self._limits_again_at:
            self._limits_again_at = now + LIMITS_EVERY_S
            asked = targets
        else:
            asked = [target for target in targets if target not in self._limits]
        if not asked:
            return
        for name, answer in self._requests.settings_of(asked).items():
            try:
                found = answer.result(ANSWER_WITHIN_S)
            except Fault as fault:
                if fault.is_local:
                    raise
                # The default is assumed: if the topic refuses a record all the same, the limit is
                # learnt then.
                self._limits.setdefault(name, DEFAULT_LARGEST_BYTES)
                self._tell(f"{name} does not show its settings: {fault}.")
                continue
            self._limits[name] = int(found["max.message.bytes"])
            if "compact" in found["cleanup.policy"]:
                self._compacted.add(name)
            else:
                self._compacted.discard(name)
