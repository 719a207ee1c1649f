"""A transactional producer that speaks with a whole node, in either generation of the protocol."""

from headrace.wire.protocol import record_batch
from headrace.wire.protocol.messages import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    describe_transactions,
    end_txn,
    find_coordinator,
    init_producer_id,
    list_offsets,
    list_transactions,
    offset_fetch,
    produce,
    txn_offset_commit,
    write_txn_markers,
)
from headrace.wire.protocol.messages import fetch as fetch_messages
from tests.unit.node.broker.rig import Rig, build, fetch_request, only_partition

READ_COMMITTED = 1


class TransactionRig(Rig):
    def __init__(self, folder, **settings):
        few = {"transaction_state_log_num_partitions": 3, "offsets_topic_num_partitions": 3}
        super().__init__(folder, **(few | settings))
        for key_type in (0, 1):
            request = find_coordinator.FindCoordinatorRequest("any", key_type, ["any"])
            assert self.ask(find_coordinator, request).coordinators[0].error_code == 0

    def producer(self, transactional_id="t", **how):
        producer = TransactionalProducer(self, transactional_id, **how)
        assert producer.init() == 0
        return producer

    def committed(self, topic, offset=0, *, partition=0):
        """Values that a reader of committed records keeps, as clients filter them."""
        return [value for _, value in self.committed_records(topic, offset, partition)]

    def committed_records(self, topic, offset=0, partition=0):
        answer = self.fetch_committed(topic, offset, partition=partition)
        waiting = sorted((a.first_offset, a.producer_id) for a in answer.aborted_transactions)
        aborting, kept = set(), []
        for position, header in record_batch.headers_in(answer.records):
            while waiting and waiting[0][0] <= header.last_offset:
                aborting.add(waiting.pop(0)[1])
            records = list(
                record_batch.walk(answer.records[position : position + header.size], 1 << 20)
            )
            if header.is_control:
                aborting.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in aborting):
                kept += [(record.offset, record.value.decode()) for record in records]
        return kept

    def fetch_committed(self, topic, offset=0, *, partition=0):
        request = fetch_request(topic, offset, partition=partition)
        request.isolation_level = READ_COMMITTED
        return only_partition(self.ask(fetch_messages, request, version=12))

    def end_offset(self, topic, *, committed=False):
        part = list_offsets.ListOffsetsPartition(0, -1, -1)
        request = list_offsets.ListOffsetsRequest(
            -1, int(committed), [list_offsets.ListOffsetsTopic(topic, [part])]
        )
        return self.ask(list_offsets, request, version=9).topics[0].partitions[0].offset

    def describe(self, transactional_id):
        request = describe_transactions.DescribeTransactionsRequest([transactional_id])
        return self.ask(describe_transactions, request).transaction_states[0]

    def list(self, **filters):
        request = list_transactions.ListTransactionsRequest(**filters)
        found = self.ask(list_transactions, request, version=2).transaction_states
        return {each.transactional_id: each.transaction_state for each in found}

    def write_marker(self, topic, producer_id, epoch, *, coordinator_epoch=0, version=0):
        marker = write_txn_markers.WritableTxnMarker(
            producer_id,
            epoch,
            False,
            [write_txn_markers.WritableTxnMarkerTopic(topic, [0])],
            coordinator_epoch,
            version,
        )
        request = write_txn_markers.WriteTxnMarkersRequest([marker])
        answer = self.ask(write_txn_markers, request).markers[0]
        return answer.topics[0].partitions[0].error_code

    def offset_of(self, group, topic, *, require_stable=False):
        """Offset and code."""
        wanted = offset_fetch.OffsetFetchRequestGroup(group)
        wanted.topics = [offset_fetch.OffsetFetchRequestTopics(topic, bytes(16), [0])]
        request = offset_fetch.OffsetFetchRequest()
        request.groups, request.require_stable = [wanted], require_stable
        found = self.ask(offset_fetch, request, version=9).groups[0].topics[0].partitions[0]
        return found.committed_offset, found.error_code


class TransactionalProducer:
    """`bumps=False`: a client from before KIP-890."""

    def __init__(self, rig, transactional_id, *, bumps=True, timeout_ms=60_000):
        self.rig = rig
        self.transactional_id = transactional_id
        self.timeout_ms = timeout_ms
        self.bumps = bumps
        self.id = self.epoch = -1
        self.sequences = {}

    def init(self, *, expected=False, version=None):
        who = (self.id, self.epoch) if expected else (-1, -1)
        request = init_producer_id.InitProducerIdRequest(
            self.transactional_id, self.timeout_ms, *who
        )
        answer = self.rig.ask(init_producer_id, request, version=version)
        if answer.error_code == 0:
            self.id, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequences = {}
        return answer.error_code

    def add(self, *partitions, version=3):
        topics = {}
        for topic, index in partitions:
            topics.setdefault(topic, []).append(index)
        named = [add_partitions_to_txn.AddPartitionsToTxnTopic(*pair) for pair in topics.items()]
        request = add_partitions_to_txn.AddPartitionsToTxnRequest(
            [],
            self.transactional_id,
            self.id,
            self.epoch,
            named,
        )
        answer = self.rig.ask(add_partitions_to_txn, request, version=version)
        return [
            part.partition_error_code
            for topic in answer.results_by_topic_v3_and_below
            for part in topic.results_by_partition
        ]

    def send(self, topic, *values, partition=0, version=None, session=None, sequence=None, **how):
        """The code of the answer, or what the rig says when there is none yet."""
        place = (topic, partition)
        if sequence is None:
            sequence = self.sequences.get(place, 0)
        batch = {
            "producer_id": self.id,
            "producer_epoch": self.epoch,
            "base_sequence": sequence,
            "is_transactional": True,
        } | how
        records = build(values, self.rig.now.wall_ms, **batch)
        data = [produce.PartitionProduceData(partition, records)]
        request = produce.ProduceRequest(
            self.transactional_id, -1, 1_000, [produce.TopicProduceData(topic, bytes(16), data)]
        )
        if version is None:
            version = 12 if self.bumps else 10
        answer = self.rig.ask(produce, request, version=version, session=session)
        if not isinstance(answer, produce.ProduceResponse):
            return answer
        code = answer.responses[0].partition_responses[0].error_code
        if code == 0:
            self.sequences[place] = sequence + len(values)
        return code

    def commit(self, **how):
        return self.end(True, **how)

    def abort(self, **how):
        return self.end(False, **how)

    def end(self, commit, *, version=None):
        if version is None:
            version = 5 if self.bumps else 4
        request = end_txn.EndTxnRequest(self.transactional_id, self.id, self.epoch, commit)
        answer = self.rig.ask(end_txn, request, version=version)
        if answer.error_code == 0 and version >= 5:
            self.id, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequences = {}
        return answer.error_code

    def add_offsets(self, group):
        request = add_offsets_to_txn.AddOffsetsToTxnRequest(
            self.transactional_id, self.id, self.epoch, group
        )
        return self.rig.ask(add_offsets_to_txn, request, version=3).error_code

    def commit_offset(self, group, topic, offset, *, generation=-1, member="", partition=0):
        part = txn_offset_commit.TxnOffsetCommitRequestPartition(partition, offset)
        request = txn_offset_commit.TxnOffsetCommitRequest(
            self.transactional_id,
            group,
            self.id,
            self.epoch,
            generation,
            member,
            None,
            [txn_offset_commit.TxnOffsetCommitRequestTopic(topic, [part])],
        )
        version = 5 if self.bumps else 4
        answer = self.rig.ask(txn_offset_commit, request, version=version)
        return answer.topics[0].partitions[0].error_code
