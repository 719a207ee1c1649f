"""The thread that waits for confirmations: deletes confirmed messages, sends the rest again.

The relay that has shard 0 does it for all shards. Nothing is sent again before every confirmation
was read that was there when the time was over, so a relay that comes back after a day resends
nothing that was confirmed meanwhile. To confirm twice is to confirm once; so how far was read is an
ordinary commit of a group, and a lost one does no harm.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from time import monotonic

from sqlalchemy.exc import SQLAlchemyError

from headrace.client.admin.own_topics import OwnTopic, ensure_own
from headrace.client.admin.topics import Topics
from headrace.client.connection import ClientSettings
from headrace.client.errors import ClientError
from headrace.client.faults import Fault
from headrace.client.intake import Arrived, GroupOffset, Intake
from headrace.client.records import TopicPartition
from headrace.services.outbox.confirmations import Confirmations, Due
from headrace.wire.contract import confirmations as contract
from headrace.wire.contract.own_records import OwnRecords

log = logging.getLogger("headrace.outbox")

LOOK_EVERY_S = 1.0
# Another program's transaction may be open that long; nothing is sent again meanwhile.
LONGEST_READ_S = 30.0
RECORDS_PER_CALL = 1000


class ConfirmationWatch:
    """`run` is the thread's body; it ends with `stopping`."""

    def __init__(
        self,
        at: ClientSettings,
        table: Confirmations,
        *,
        resends: int,
        is_mine: Callable[[], bool],
        stopping: threading.Event,
    ) -> None:
        self.resent = self.given_up = self.confirmed = 0
        self._at, self._table, self._resends = at, table, resends
        self._is_mine, self._stopping = is_mine, stopping
        self._outbox_id = ""
        self._intake: Intake | None = None
        self._own = OwnRecords(contract.TOPIC, log)
        self._reached: dict[int, int] = {}  # partition: the offset up to which was read
        self._problem: str | None = None

    def run(self, outbox_id: str) -> None:
        self._outbox_id = outbox_id
        while not self._stopping.is_set():
            try:
                self.look()
                self._problem = None
            except (SQLAlchemyError, OSError, ClientError) as failure:
                self._close()
                self._say(str(failure).partition("\n")[0])
            except Exception:  # without this thread nothing would be sent again, silently
                self._close()
                log.exception("a bug in the search for confirmations; it starts again")
            self._stopping.wait(LOOK_EVERY_S)
        self._close()

    def look(self) -> None:
        """Looks once: reads what was confirmed, then resends or gives up what was not."""
        if not self._is_mine() or not self._table.any_open():
            self._close()
            return
        now_ms = self._table.now_ms()  # before the reading: what came later is not missed
        self._table.start_clocks(now_ms)
        try:
            if not self._read_to_end():
                return
        except Fault as fault:
            raise fault.explained(self._at.bootstrap, topic=contract.TOPIC) from fault
        for due in self._table.due(now_ms):
            self._see_to(due)

    def _see_to(self, due: Due) -> None:
        if due.resends < self._resends:
            if self._table.resend(due):
                self.resent += 1
                log.warning(
                    "message %s for %s is not confirmed and is sent again, %d of %d",
                    due.message_id, due.topic, due.resends + 1, self._resends,
                )  # fmt: skip
        elif self._table.give_up(due):
            self.given_up += 1
            log.error(
                "message %s for %s was sent %d times and never confirmed; `headrace outbox show` "
                "has it as %d",
                due.message_id, due.topic, due.resends + 1, due.id,
            )  # fmt: skip

    # ---- the topic

    def _read_to_end(self) -> bool:
        """Returns False if the end cannot be reached now: then it is unknown what was confirmed."""
        intake = self._opened()
        ends = {partition: self._bounds(intake, partition)[1] for partition in self._reached}
        if any(ends[partition] < reached for partition, reached in self._reached.items()):
            self._close()  # the topic was deleted and created again
            return False
        before = dict(self._reached)
        deadline = monotonic() + LONGEST_READ_S
        while any(self._reached[partition] < end for partition, end in ends.items()):
            if self._stopping.is_set():
                return False
            if monotonic() > deadline:
                self._say(f"{contract.TOPIC} cannot be read to its end")
                return False
            self._take(intake.read(0.1, RECORDS_PER_CALL))
        if self._reached != before:
            intake.commit(self._offsets())
        return True

    def _take(self, arrived: Arrived) -> None:
        """Writes to the table first, then commits the place: reading twice does no harm."""
        for _, fault in arrived.faults:
            if not fault.is_passing:
                raise fault
        confirmed = []
        reached = dict(self._reached)
        for (_, partition), records in arrived.stretches:
            for record in records:
                offset = record.offset() or 0
                reached[partition] = offset + 1
                said = self._own.read(
                    contract.read_confirmation,
                    record.key(),
                    record.value(),
                    partition=partition,
                    offset=offset,
                )
                if said is not None and said[0] == self._outbox_id:
                    confirmed.append(said[1])
        for (_, partition), end in arrived.ends.items():
            reached[partition] = max(reached[partition], end)
        if confirmed:
            self.confirmed += self._table.confirmed(confirmed)
        self._reached = reached

    def _opened(self) -> Intake:
        """Returns a reader of all partitions, including added ones."""
        if self._intake is None:
            own = OwnTopic(contract.TOPIC, contract.PARTITIONS, contract.SETTINGS)
            ensure_own(Topics(self._at), own)
            self._intake = Intake(
                self._at.with_settings(
                    group_id=f"headrace-outbox-{self._outbox_id}",
                    isolation_level="read_committed",
                    enable_auto_commit=False,
                    enable_partition_eof=True,
                    auto_offset_reset="earliest",
                )
            )
            self._reached = {}
        intake = self._intake
        count = intake.wait_for_topic(self._at, contract.TOPIC)
        if count != len(self._reached):
            asked = [TopicPartition(contract.TOPIC, number) for number in range(count)]
            kept = intake.committed(asked, self._at.timeout_s)
            for place, (offset, _) in kept.items():
                low, high = self._bounds(intake, place.partition)
                self._reached[place.partition] = offset if low <= offset <= high else low
            intake.assign({each.place: each.offset for each in self._offsets()})
        return intake

    def _bounds(self, intake: Intake, partition: int) -> tuple[int, int]:
        """Returns the offsets of committed records: the reader uses read_committed."""
        return intake.bounds(TopicPartition(contract.TOPIC, partition), self._at.timeout_s)

    def _offsets(self) -> list[GroupOffset]:
        return [
            GroupOffset(TopicPartition(contract.TOPIC, partition), offset)
            for partition, offset in self._reached.items()
        ]

    def _close(self) -> None:
        intake, self._intake = self._intake, None
        if intake is not None:
            intake.close()

    def _say(self, problem: str) -> None:
        if problem != self._problem:
            log.warning("confirmations are not read: %s", problem)
        self._problem = problem
