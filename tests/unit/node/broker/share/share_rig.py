"""A node whose share state is kept in memory, and members that fetch and acknowledge there."""

from dataclasses import replace

from headrace.environment import FileSlice
from headrace.node.broker.broker import Broker
from headrace.node.broker.coordinators.groups import GroupCoordinator
from headrace.node.broker.share.led_partitions import LedSharePartitions
from headrace.node.coordination.group.settings import ShareGroupSettings
from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages import (
    read_share_group_state,
    share_acknowledge,
    share_fetch,
    write_share_group_state,
)
from tests.unit.node.broker.rig import WAITS, Rig, values_in

GROUP = "jobs"
ACCEPT, RELEASE, REJECT, RENEW, GAP = 1, 2, 3, 4, 0


class StatesInMemory:
    """A share coordinator; `slow` keeps replies until `reply` is called."""

    def __init__(self):
        self.slow = False
        self.held = []
        self.refuse_with = ErrorCode.NONE
        self.state_epoch = 0
        self.leader_epoch = -1
        self.start_offset = -1
        self.finished = -1
        self.batches = {}  # offset -> state and deliveries
        self.writes = []

    def read(self, key, leader_epoch, reply):
        self.leader_epoch = max(self.leader_epoch, leader_epoch)

        def answer():
            batches = [
                read_share_group_state.StateBatch(offset, offset, *kept)
                for offset, kept in sorted(self.batches.items())
                if offset >= self.start_offset
            ]
            reply(
                read_share_group_state.PartitionResult(
                    key.partition,
                    self.refuse_with,
                    None,
                    self.state_epoch,
                    self.start_offset,
                    batches,
                )
            )

        self._later(answer)

    def write(self, key, data, reply):
        self.writes.append(data)

        def answer():
            code = self.refuse_with
            if data.state_epoch < self.state_epoch:
                code = ErrorCode.FENCED_STATE_EPOCH
            if data.leader_epoch < self.leader_epoch:
                code = ErrorCode.FENCED_LEADER_EPOCH
            if code == ErrorCode.NONE:
                self._keep(data)
            reply(write_share_group_state.PartitionResult(data.partition, code))

        self._later(answer)

    def _keep(self, data):
        if data.start_offset >= 0:
            self.start_offset, self.finished = data.start_offset, data.delivery_complete_count
        for batch in data.state_batches:
            for offset in range(batch.first_offset, batch.last_offset + 1):
                self.batches[offset] = (batch.delivery_state, batch.delivery_count)

    def _later(self, answer):
        if self.slow:
            self.held.append(answer)
        else:
            answer()

    def reply(self):
        held, self.held = self.held, []
        for answer in held:
            answer()


class ShareRig(Rig):
    def __init__(self, folder, states=None, monkeypatch=None, **settings):
        super().__init__(folder, **settings)
        monkeypatch.setattr(Broker, "share_groups_served", property(lambda self: True))
        self.settings = ShareGroupSettings()
        monkeypatch.setattr(GroupCoordinator, "share_settings", lambda _, group: self.settings)
        self.states = states or StatesInMemory()
        broker = self.node.broker
        broker.shared = LedSharePartitions(
            self.states,
            lambda _: self.settings,
            broker.purgatory,
            self.now,
            broker.letter_store,
        )

    def set(self, **settings):
        """The settings of all share groups."""
        self.settings = replace(self.settings, **settings)

    def member(self, name, group=GROUP):
        return Member(self, name, group)

    @property
    def led(self):
        return self.node.broker.shared


class Member:
    """A share consumer: its connection, its session."""

    def __init__(self, rig, name, group):
        self.rig, self.name, self.group = rig, name, group
        self.session = rig.connect()
        self.epoch = 0

    def fetch(self, topic_id=None, *, acknowledge=(), partitions=(0,), version=2, **other):
        """The answer, or WAITS; see `records_of`."""
        request = share_fetch.ShareFetchRequest(self.group, self.name, self.epoch)
        request.max_wait_ms = other.pop("max_wait_ms", 0)
        request.min_bytes = other.pop("min_bytes", 1)
        request.max_bytes = other.pop("max_bytes", 1_000_000)
        request.max_records = other.pop("max_records", 500)
        request.batch_size = other.pop("batch_size", 500)
        request.share_acquire_mode = other.pop("mode", 0)
        request.is_renew_ack = other.pop("renews", False)
        request.share_session_epoch = other.pop("epoch", self.epoch)
        assert not other, other
        batches = [share_fetch.AcknowledgementBatch(*each) for each in acknowledge]
        if topic_id is not None and (self.epoch == 0 or batches or partitions != (0,)):
            parts = [share_fetch.FetchPartition(index, batches) for index in partitions]
            request.topics = [share_fetch.FetchTopic(topic_id, parts)]
        answer = self.rig.ask(share_fetch, request, version=version, session=self.session)
        if answer == WAITS or answer.error_code == ErrorCode.NONE:
            self.epoch = request.share_session_epoch + 1
        return answer

    def answer(self):
        """The one that has waited."""
        self.rig.until_idle()
        if not self.session.outbox:
            return WAITS
        return self.rig.answer_on(self.session, share_fetch, 2)

    def acknowledge(self, topic_id, *batches, partition=0, version=2, **other):
        request = share_acknowledge.ShareAcknowledgeRequest(self.group, self.name)
        request.share_session_epoch = other.pop("epoch", self.epoch)
        request.is_renew_ack = other.pop("renews", False)
        assert not other, other
        parts = [
            share_acknowledge.AcknowledgePartition(
                partition, [share_acknowledge.AcknowledgementBatch(*each) for each in batches]
            )
        ]
        request.topics = [share_acknowledge.AcknowledgeTopic(topic_id, parts)]
        answer = self.rig.ask(share_acknowledge, request, version=version, session=self.session)
        if answer == WAITS or answer.error_code == ErrorCode.NONE:
            self.epoch += 1
        return answer

    def disconnect(self):
        self.rig.node.dispatch.forget(self.session)
        self.rig.until_idle()


def only(answer):
    [topic] = answer.responses
    [part] = topic.partitions
    return part


def acquired(answer):
    """First and last offset and count of deliveries of what was acquired."""
    assert answer != WAITS and answer.error_code == ErrorCode.NONE, answer
    return [
        (each.first_offset, each.last_offset, each.delivery_count)
        for topic in answer.responses
        for part in topic.partitions
        for each in part.acquired_records
    ]


def outcome(answer):
    """The code of the acknowledgement of the only partition."""
    assert answer != WAITS
    assert answer.error_code == ErrorCode.NONE, answer
    return ErrorCode(only(answer).error_code)


def values(answer):
    found = []
    for topic in answer.responses:
        for part in topic.partitions:
            assert not isinstance(part.records, FileSlice)
            found += values_in(bytes(part.records or b""))
    return found
