"""A whole node without sockets, threads or real time: requests in, answers out, a clock in hand."""

from collections import deque

from headrace.environment import FileSlice, Now
from headrace.node.assembly.node import Node
from headrace.node.broker.records.lost_acknowledgements import take_back
from headrace.node.process.folders.real_disk import RealDisk
from headrace.node.process.settings.settings import load_settings
from headrace.node.serving.api import ClosesConnection
from headrace.node.serving.session import Session
from headrace.wire.protocol import record_batch
from headrace.wire.protocol.framing import decode_response, encode_request
from headrace.wire.protocol.messages import (
    create_partitions,
    create_topics,
    delete_topics,
    fetch,
    incremental_alter_configs,
    produce,
)
from headrace.wire.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
)

WAITS = "waits"
START_MS = 1_700_000_000_000


class CutOff(Exception):
    """The node has ended this connection: what its answer rests on is lost."""


class Rig:
    """`flushes_wait=True` keeps work for the other thread until `run_background` is called."""

    client_id = "rig"
    ids: dict[str, bytes]  # of topics that a test has made

    def __init__(
        self,
        folder,
        *,
        flushes_wait=False,
        compaction=None,
        scrub=None,
        request_clock=None,
        open_files=100,
        disk=None,
        now=None,
        randomness=None,
        **settings,
    ):
        self.folder = folder
        self.now = now or Now(1_000, START_MS)
        self.background = deque()
        self.sessions = []
        self.flushes_wait = False
        self.slowly = False  # then work in slices comes one step further by each `until_stable`
        if disk is None:
            folder.mkdir(exist_ok=True)
        names = {name.replace("_", "."): str(value) for name, value in settings.items()}
        data = None if "log.dirs" in names else str(folder)
        loaded = load_settings(data=data, listen="127.0.0.1:0", overrides=names)
        self.node = Node(
            disk or RealDisk(),
            loaded.for_node({"PLAINTEXT": 9092}),
            self.now,
            randomness=randomness or Randomness(),
            submit=lambda work, done: self.background.append((work, done)),
            space=lambda _: (1_000_000, 500_000),
            open_files=open_files,
            compaction=compaction,
            scrub=scrub,
            request_clock=request_clock,
        )
        self.until_idle()
        self.flushes_wait = flushes_wait

    def connect(self):
        self.sessions.append(Session("127.0.0.1", "PLAINTEXT"))
        return self.sessions[-1]

    def until_idle(self):
        """Turns of the loop until nothing moves any more."""
        node = self.node
        if self.slowly:
            node.work(lambda: True)
        while True:
            if not self.slowly:
                node.work(lambda: False)
            node.purgatory.expire(self.now.monotonic_ms)
            node.purgatory.try_woken()
            if not node.end_turn():
                self.tell_of_loss()
                continue
            if not self.background or self.flushes_wait:
                return
            self.run_background()

    def tell_of_loss(self):
        """As the server does it."""
        lost, self.node.lost = self.node.lost, []
        for session in take_back(self.sessions, lost):
            self.node.dispatch.forget(session)

    def run_background(self):
        while self.background:
            work, done = self.background.popleft()
            error = None
            try:
                work()
            except OSError as failure:
                error = failure
            done(error)
            while not self.node.end_turn():
                self.tell_of_loss()
            self.node.purgatory.try_woken()

    def advance(self, milliseconds):
        self.now.monotonic_ms += milliseconds
        self.now.wall_ms += milliseconds
        for period_ms, do in self.node.timers():
            if milliseconds >= period_ms:
                do()
        self.until_idle()

    def stop(self):
        self.node.stop()
        self.until_idle()
        assert self.node.stopped

    def ask(self, messages, request, *, version=None, session=None):
        """The decoded answer, WAITS, or None if there is none; answers go through the codecs."""
        version = messages.VERSIONS[-1] if version is None else version
        session = self.send(messages, request, version=version, session=session)
        self.until_idle()
        for failed, why in self.node.dispatch.failed:
            if failed is session and len(session.line) == 1:  # of a large request, as in the loop
                self.node.dispatch.failed.clear()
                self.node.dispatch.forget(session)
                raise ClosesConnection(why)
        if session.closing and not session.outbox:
            raise CutOff
        if not session.outbox:
            return WAITS if session.line else None
        return self.answer_on(session, messages, version)

    def send(self, messages, request, *, version, session=None):
        """The request arrives, the turn is not over; answers the session that it came on."""
        session = session or self.connect()
        pieces = encode_request(messages, version, 7, self.client_id, request)
        data = bytearray(b"".join(bytes(piece) for piece in pieces))
        self.node.dispatch.feed(session, memoryview(data), len(data))
        return session

    def answer_on(self, session, messages, version=None):
        version = messages.VERSIONS[-1] if version is None else version
        frame = b"".join(read_piece(piece) for piece in session.outbox)
        session.outbox.clear()
        return decode_response(messages, version, memoryview(frame)[4:])[1]

    # What most stories begin with

    def create(self, name, partitions=1, **configs):
        topic = create_topics.CreatableTopic(name, partitions, -1)
        topic.configs = [
            create_topics.CreatableTopicConfig(key.replace("_", "."), str(value))
            for key, value in configs.items()
        ]
        request = create_topics.CreateTopicsRequest([topic], 1000)
        [result] = self.ask(create_topics, request).topics
        assert result.error_code == 0, result.error_message
        return result.topic_id

    def grow(self, name, partitions):
        more = create_partitions.CreatePartitionsTopic(name, partitions, None)
        request = create_partitions.CreatePartitionsRequest([more], 1000)
        [result] = self.ask(create_partitions, request).results
        assert result.error_code == 0, result.error_message

    def delete(self, name):
        state = delete_topics.DeleteTopicState(name)
        request = delete_topics.DeleteTopicsRequest([state], [], 1000)
        [result] = self.ask(delete_topics, request).responses
        assert result.error_code == 0, result.error_message

    def alter(self, kind, name, **configs):
        """`kind` is Kafka's number of what has settings: 2 a topic, 4 a broker, 32 a group."""
        changes = [
            AlterableConfig(key.replace("_", "."), 0, str(value)) for key, value in configs.items()
        ]
        resource = AlterConfigsResource(kind, name, changes)
        request = incremental_alter_configs.IncrementalAlterConfigsRequest([resource])
        [result] = self.ask(incremental_alter_configs, request).responses
        assert result.error_code == 0, result.error_message

    def produce(self, topic, *values, partition=0, acks=-1, session=None, **batch):
        data = batch.pop("records", None) or build(values, self.now.wall_ms, **batch)
        request = produce.ProduceRequest(
            None,
            acks,
            1_000,
            [
                produce.TopicProduceData(
                    topic, bytes(16), [produce.PartitionProduceData(partition, data)]
                )
            ],
        )
        answer = self.ask(produce, request, version=12, session=session)
        if answer is None or answer == WAITS:
            return answer
        return answer.responses[0].partition_responses[0]

    def fetch(self, topic, offset=0, *, partition=0, session=None, **options):
        request = fetch_request(topic, offset, partition=partition, **options)
        answer = self.ask(fetch, request, version=12, session=session)
        return answer if answer == WAITS else only_partition(answer)


def fetch_request(topic, offset, *, partition=0, max_wait_ms=0, min_bytes=1, max_bytes=1_000_000):
    request = fetch.FetchRequest()
    request.max_wait_ms = max_wait_ms
    request.min_bytes = min_bytes
    request.max_bytes = max_bytes
    wanted = fetch.FetchPartition(partition)
    wanted.fetch_offset = offset
    wanted.partition_max_bytes = max_bytes
    request.topics = [fetch.FetchTopic(topic, bytes(16), [wanted])]
    return request


def only_partition(answer):
    return answer.responses[0].partitions[0]


def values_in(records):
    found = []
    for position, header in record_batch.headers_in(records):
        batch = records[position : position + header.size]
        found += [record.value for record in record_batch.walk(batch, 1 << 20)]
    return found


def build(values, wall_ms, **options):
    records = [
        record_batch.Record(key=None, value=value.encode(), timestamp=wall_ms) for value in values
    ]
    return record_batch.build(records, base_offset=0, leader_epoch=-1, **options)


def read_piece(piece):
    if isinstance(piece, FileSlice):
        return piece.file.read(piece.length, piece.position)
    return bytes(piece)


class Randomness:
    """Counts: different each time, the same in each run."""

    def __init__(self):
        self.drawn = 0

    def __call__(self, size):
        self.drawn += 1
        return self.drawn.to_bytes(size, "big")
