"""The reactor with real sockets and both pollers: order, torn frames, big frames, slow readers."""

import os
import select
import socket
from contextlib import suppress
from struct import pack, unpack

import pytest

from headrace.environment import FileSlice
from headrace.node.process.clock import SystemClock
from headrace.node.process.folders.real_disk import RealDisk
from headrace.node.process.listeners.connection import Connection
from headrace.node.process.loop import BIG_FRAME_BYTES, MOST_LINES_PER_SECOND, Loop
from headrace.node.process.poller import EpollPoller, SelectorsPoller
from headrace.node.serving.api import WaitingRequest
from headrace.node.serving.session import Session
from headrace.wire.protocol.messages import fetch, find_coordinator, metadata
from tests.readable import readable
from tests.unit.node.serving.conversation import Conversation, frame

pollers = [SelectorsPoller] + ([EpollPoller] if hasattr(select, "epoll") else [])
METADATA, FIND_COORDINATOR, FETCH = 3, 10, 1
ASK = frame(METADATA, 1, pack(">i", -1))


class Station:
    """A loop and clients of it, on this thread: a client's turn, then the loop's."""

    def __init__(
        self,
        poller,
        handlers,
        *,
        max_frame=10_000_000,
        most_held_bytes=100_000_000,
        buffer_is_free=lambda: None,
        stopwatch=lambda: 1,
    ):
        talk = Conversation(handlers, max_frame=max_frame)

        def work(is_over):
            talk.dispatch.long_answers.run(is_over)
            return bool(talk.dispatch.long_answers)

        self.loop = Loop(
            poller,
            SystemClock(),
            talk.dispatch.now,
            talk.dispatch,
            talk.purgatory,
            lambda: True,
            buffer_is_free=buffer_is_free,
            most_held_bytes=most_held_bytes,
            work=work,
            stopwatch=stopwatch,
        )
        self.purgatory = talk.purgatory
        self.clients = []

    def connect(self, descriptor=None):
        """`descriptor`: a free one that our side has to get."""
        ours, theirs = socket.socketpair()
        if theirs.fileno() == descriptor:
            ours, theirs = theirs, ours
        elif descriptor not in {None, ours.fileno()}:
            with ours:
                ours = socket.socket(fileno=os.dup2(ours.fileno(), descriptor))
        ours.setblocking(False)
        theirs.settimeout(60)
        session = Session("127.0.0.1", "PLAINTEXT")
        session.connection = Connection(ours, session, "127.0.0.1:1", 0)
        self.loop.add(session.connection)
        self.clients.append(theirs)
        return theirs

    def turns(self, count=1):
        for _ in range(count):
            self.loop.turn(0)


@pytest.fixture(params=pollers)
def poller(request):
    made = request.param()
    yield made
    made.close()


def answer_metadata(owner, request, call):
    return metadata.MetadataResponse(controller_id=call.correlation_id)


def read_reply(client):
    (size,) = unpack(">i", read_exactly(client, 4))
    return read_exactly(client, size)


def read_exactly(client, size):
    data = b""
    while len(data) < size:
        received = client.recv(size - len(data))
        assert received, "the connection ended"
        data += received
    return data


def correlation_id(reply):
    return unpack(">i", reply[:4])[0]


def test_a_request_in_many_small_pieces_is_answered_when_it_is_complete(poller):
    station = Station(poller, {metadata: answer_metadata})
    client = station.connect()
    for byte in ASK:
        client.send(bytes([byte]))
        station.turns()
    assert correlation_id(read_reply(client)) == 1


def test_many_requests_in_one_piece_are_answered_in_order(poller):
    station = Station(poller, {metadata: answer_metadata})
    client = station.connect()
    asks = [frame(METADATA, 1, pack(">i", -1), correlation_id=n) for n in range(500)]
    client.sendall(b"".join(asks))
    station.turns(5)
    assert [correlation_id(read_reply(client)) for _ in asks] == list(range(500))


class Costly:
    """A handler whose requests take milliseconds, on a clock of its own."""

    def __init__(self, milliseconds):
        self.now_ns = 1
        self.answered = []
        self._cost_ns = milliseconds * 1_000_000

    def __call__(self, owner, request, call):
        self.now_ns += self._cost_ns
        self.answered.append(call.correlation_id)
        return metadata.MetadataResponse(controller_id=call.correlation_id)

    def time(self):
        return self.now_ns


def pipelined(first, count):
    asks = [frame(METADATA, 1, pack(">i", -1), correlation_id=first + n) for n in range(count)]
    return b"".join(asks)


def test_pipelined_requests_have_a_share_of_each_turn(poller):
    """100 ListGroups of 11 ms in one piece held the loop for 1.1 s."""
    costly = Costly(11)
    station = Station(poller, {metadata: costly}, stopwatch=costly.time)
    client = station.connect()
    client.sendall(pipelined(0, 100))
    turns = 0
    while len(costly.answered) < 100:
        before = len(costly.answered)
        station.turns()
        turns += 1
        assert 1 <= len(costly.answered) - before <= 2
    assert [correlation_id(read_reply(client)) for _ in range(100)] == list(range(100))


def test_connections_share_a_turn(poller):
    costly = Costly(1)
    station = Station(poller, {metadata: costly}, stopwatch=costly.time)
    for number in range(5):
        station.connect().sendall(pipelined(100 * number, 50))
    station.turns()
    counts = [sum(one // 100 == number for one in costly.answered) for number in range(5)]
    assert counts == [4] * 5, "20 ms for five"
    station.turns(20)
    assert len(costly.answered) == 250


def test_who_is_put_off_comes_first_in_the_next_turn(poller):
    """Replies of a turn leave when it ends: it does not last until all have been answered."""
    costly = Costly(9)
    station = Station(poller, {metadata: costly}, stopwatch=costly.time)
    clients = [station.connect() for _ in range(10)]
    for number, client in enumerate(clients):
        client.sendall(pipelined(10 * number, 2))
    seen = []
    while len(costly.answered) < 20:
        before = len(costly.answered)
        station.turns()
        this_turn = costly.answered[before:]
        assert 1 <= len(this_turn) <= 4
        seen.append(this_turn)
    firsts = [one for turn in seen for one in turn][:10]
    assert sorted(one // 10 for one in firsts) == list(range(10)), "each once before any twice"
    for client in clients:
        assert read_reply(client) and read_reply(client)


def test_one_that_pipelines_is_not_put_off_for_ever_by_newcomers(poller):
    """Whoever was put off came first; one with requests left came after them, each turn anew."""
    costly = Costly(30)
    station = Station(poller, {metadata: costly}, stopwatch=costly.time)
    pipelining = station.connect()
    pipelining.sendall(pipelined(0, 3))
    station.turns()
    others = [station.connect() for _ in range(6)]
    asked = {client: 0 for client in others}
    for turn in range(30):
        for client in others:
            if not asked[client] or readable([client], 0):
                if asked[client]:
                    read_reply(client)
                client.sendall(pipelined(1_000 + turn, 1))
                asked[client] += 1
        station.turns()
    assert [one for one in costly.answered if one < 1_000] == [0, 1, 2]
    assert min(asked.values()) >= 3, "and the others have their turn"


def test_slow_requests_of_two_do_not_put_off_a_third_for_ever(poller):
    costly = Costly(30)
    station = Station(poller, {metadata: costly}, stopwatch=costly.time)
    for number in range(3):
        station.connect().sendall(pipelined(100 * number, 50))
    station.turns(12)
    counts = [sum(one // 100 == number for one in costly.answered) for number in range(3)]
    assert max(counts) - min(counts) <= 1, counts


def test_large_frames_count_as_well(poller):
    """Each of them was received in a buffer of its own, and no clock was read."""
    costly = Costly(9)
    station = Station(poller, {metadata: costly}, stopwatch=costly.time)
    for route in station.loop.dispatch.routes.values():
        route.large_from = 1_000_000  # as for Produce: they are answered at once
    body = pack(">i", 1) + pack(">h", 5) + b"topic" + b"\0" * (100 * 1024)
    one = frame(METADATA, 1, body)
    clients = [station.connect() for _ in range(10)]
    for client in clients:
        client.sendall(one[:-1])
    station.turns(3)
    for client in clients:
        client.sendall(one[-1:])
    while len(costly.answered) < 10:
        before = len(costly.answered)
        station.turns()
        assert 1 <= len(costly.answered) - before <= 3
    for client in clients:
        assert read_reply(client)


def test_departures_count_as_well(poller, monkeypatch):
    """All that leave together were closed in one turn, whatever that took."""
    costly = Costly(0)
    station = Station(poller, {metadata: costly}, stopwatch=costly.time)
    clients = [station.connect() for _ in range(10)]
    close = Connection.close

    def close_slowly(connection):
        costly.now_ns += 9_000_000
        close(connection)

    monkeypatch.setattr(Connection, "close", close_slowly)
    for client in clients:
        client.close()
    while left := len(station.loop.connections):
        station.turns()
        assert 1 <= left - len(station.loop.connections) <= 3


def test_one_that_is_put_off_is_not_taken_for_one_that_left(poller):
    """Its answer filled the socket before its turn came: then it is not watched for reading."""
    gate, costly = Gate(), Costly(30)

    def wait(owner, request, call):
        found = find_coordinator.FindCoordinatorResponse(error_message="x" * 30_000)
        return WaitingRequest(
            lambda expired: found if gate.open else None, deadline_ms=2**62, hangs_on=[gate]
        )

    handlers = {metadata: costly, find_coordinator: wait}
    station = Station(poller, handlers, stopwatch=costly.time)
    others = [station.connect() for _ in range(2)]
    waits = station.connect()
    connection = list(station.loop.connections.values())[-1]
    count = 90
    waits.sendall(
        b"".join(
            frame(FIND_COORDINATOR, 1, pack(">h", 1) + b"gb", correlation_id=n)
            for n in range(count)
        )
    )
    station.turns(3)
    for client in others:
        client.sendall(pipelined(0, 1))
    waits.sendall(frame(METADATA, 1, pack(">i", -1), correlation_id=count))
    gate.open = True
    station.purgatory.wake(gate)
    station.turns(3)
    assert connection.blocked, "else this shows nothing"
    replies = [read_reply_while_turning(waits, station) for _ in range(count + 1)]
    assert [correlation_id(reply) for reply in replies] == list(range(count + 1))


def test_requests_that_wait_for_the_next_turn_end_no_connection(poller, caplog):
    """They are complete: `queued.max.request.bytes` is about those that are not."""
    costly = Costly(30)
    station = Station(poller, {metadata: costly}, stopwatch=costly.time, most_held_bytes=15_000)
    ask = frame(METADATA, 1, pack(">i", -1), client_id=b"c" * 2_000)
    clients = [station.connect() for _ in range(4)]
    for client in clients:
        client.sendall(5 * ask)
    station.turns(60)
    assert len(costly.answered) == 20 and not caplog.text
    for client in clients:
        assert [read_reply(client) for _ in range(5)]


def test_a_late_end_of_a_connection_that_is_gone_does_not_end_the_next_one(poller):
    """Its descriptor belongs to another connection by then."""
    costly = Costly(0)
    station = Station(poller, {metadata: costly})
    first = station.connect()
    [gone] = station.loop.connections.values()
    station.loop.close(gone)
    second = station.connect(gone.descriptor)
    station.loop.dispatch.failed.append((gone.session, "its request failed later"))
    station.turns()
    second.sendall(ASK)
    station.turns(2)
    assert costly.answered and read_reply(second) and first.recv(1) == b""


def test_one_that_leaves_while_it_is_put_off_is_forgotten(poller):
    costly = Costly(30)
    station = Station(poller, {metadata: costly}, stopwatch=costly.time)
    clients = [station.connect() for _ in range(4)]
    for client in clients:
        client.sendall(pipelined(0, 1))
    station.turns()
    assert station.loop._put_off
    for connection in list(station.loop._put_off):
        station.loop.close(connection)
    answered = len(costly.answered)
    station.turns(3)
    assert len(costly.answered) == answered and not station.loop._put_off


def test_a_frame_larger_than_the_receive_buffer_arrives_whole(poller):
    seen = []

    station = Station(poller, {metadata: lambda o, r, c: seen.append(len(c.frame)) or None})
    client = station.connect()
    body = pack(">i", 1) + pack(">h", 5) + b"topic" + b"\0" * (3 * BIG_FRAME_BYTES)
    data = memoryview(frame(METADATA, 1, body) + frame(METADATA, 1, pack(">i", -1)))
    client.setblocking(False)
    while data:
        with suppress(BlockingIOError):
            data = data[client.send(data) :]
        station.turns()
    station.turns(3)
    assert seen[0] > 3 * BIG_FRAME_BYTES
    assert len(seen) == 2
    assert station.loop._held_bytes == 0


def test_what_handlers_still_look_at_is_there_until_the_buffer_is_declared_free(poller):
    """Also of a request in front of one that ends the connection, and of one in many pieces."""
    views, seen = [], []

    def look_later(owner, request, call):
        views.append(call.frame)

    def buffer_is_free():
        seen.extend(view.tobytes() for view in views)
        views.clear()

    station = Station(poller, {metadata: look_later}, buffer_is_free=buffer_is_free)
    asks = [frame(METADATA, 1, pack(">i", -1), client_id=b"%d" % n * 30_000) for n in range(4)]
    for ask in asks[:3]:
        station.connect().sendall(ask)
    station.connect().sendall(asks[3] + frame(999, 1))
    station.turns(100)
    assert sorted(seen) == sorted(ask[4:] for ask in asks)


def test_a_client_that_never_reads_is_not_read_either(poller):
    station = Station(
        poller, {metadata: lambda o, r, c: metadata.MetadataResponse(cluster_id="x" * 30_000)}
    )
    client = station.connect()
    client.setblocking(False)
    one = frame(METADATA, 2, pack(">i", -1))
    sent = 0
    for _ in range(2000):
        try:
            sent += client.send(one * 50)
        except BlockingIOError:
            break
        station.turns()
    else:
        pytest.fail("the loop read on for ever")
    [connection] = station.loop.connections.values()
    held = sum(len(piece) for piece in connection.session.outbox)
    assert connection.blocked and held < 3_000_000
    # and when it reads at last, it gets everything it asked for
    client.settimeout(60)
    for _ in range(sent // len(one)):
        while not readable([client], 0):
            station.turns()
        read_reply_while_turning(client, station)


def read_reply_while_turning(client, station):
    client.setblocking(False)
    wanted, data = None, b""
    while wanted is None or len(data) < wanted:
        try:
            data += client.recv((wanted or 4) - len(data))
        except BlockingIOError:
            station.turns()
        if wanted is None and len(data) == 4:
            wanted = 4 + unpack(">i", data)[0]
    client.settimeout(60)
    return data[4:]


class Gate:
    def __init__(self):
        self.waiting = {}
        self.open = False


def test_what_was_sent_behind_a_muting_request_is_answered_after_it(poller):
    gate = Gate()

    def wait(owner, request, call):
        def attempt(expired):
            return find_coordinator.FindCoordinatorResponse() if gate.open or expired else None

        return WaitingRequest(attempt, deadline_ms=2**62, hangs_on=[gate], mutes=True)

    station = Station(poller, {metadata: answer_metadata, find_coordinator: wait})
    client = station.connect()
    other = station.connect()
    client.send(frame(FIND_COORDINATOR, 0, pack(">h", 1) + b"g", correlation_id=1))
    client.send(frame(METADATA, 1, pack(">i", -1), correlation_id=2))
    station.turns(3)
    client.send(frame(METADATA, 1, pack(">i", -1), correlation_id=3))
    other.send(frame(METADATA, 1, pack(">i", -1), correlation_id=9))
    station.turns(3)
    assert correlation_id(read_reply(other)) == 9  # others are not held up
    gate.open = True
    station.purgatory.wake(gate)
    station.turns(3)
    assert [correlation_id(read_reply(client)) for _ in range(3)] == [1, 2, 3]


def test_who_waited_is_sent_to_before_the_one_who_ended_the_wait(poller, monkeypatch):
    gate, sent_to = Gate(), []

    def wait(owner, request, call):
        return WaitingRequest(
            lambda expired: find_coordinator.FindCoordinatorResponse() if gate.open else None,
            deadline_ms=2**62,
            hangs_on=[gate],
        )

    def end_the_wait(owner, request, call):
        gate.open = True
        station.purgatory.wake(gate)
        return answer_metadata(owner, request, call)

    send = Connection.send
    monkeypatch.setattr(Connection, "send", lambda c: sent_to.append(c.session) or send(c))
    station = Station(poller, {find_coordinator: wait, metadata: end_the_wait})
    waits, ends = station.connect(), station.connect()
    waits.send(frame(FIND_COORDINATOR, 0, pack(">h", 1) + b"g"))
    station.turns()
    ends.send(ASK)
    station.turns()
    first, second = (connection.session for connection in station.loop.connections.values())
    assert sent_to == [first, second]
    assert read_reply(waits) and read_reply(ends)


def test_slices_of_files_are_sent_as_they_lie_on_disk(poller, tmp_path):
    path = tmp_path / "records"
    content = os.urandom(300_000)
    path.write_bytes(content)
    file = RealDisk().open(str(path))

    def answer(owner, request, call):
        response = fetch.FetchResponse()
        response.responses = [
            fetch.FetchableTopicResponse(
                "t",
                bytes(16),
                [
                    fetch.PartitionData(0, 0, 9, records=FileSlice(file, 10, 5_000)),
                    fetch.PartitionData(1, 0, 9, records=FileSlice(file, 20_000, 250_000)),
                    fetch.PartitionData(2, 0, 9, records=b""),
                ],
            )
        ]
        return response

    station = Station(poller, {fetch: answer})
    client = station.connect()
    body = pack(">iiiib", -1, 0, 0, 1000, 0) + pack(">i", 0)
    client.send(frame(FETCH, 4, body))
    reply = read_reply_while_turning(client, station)
    response, _ = fetch.DECODE_RESPONSE[4](memoryview(reply), 4)
    [topic] = response.responses
    assert bytes(topic.partitions[0].records) == content[10:5_010]
    assert bytes(topic.partitions[1].records) == content[20_000:270_000]
    assert bytes(topic.partitions[2].records) == b""


@pytest.mark.parametrize("announced", [60_000, 300_000, 900_000])
def test_unfinished_requests_share_one_limit(poller, announced, caplog):
    station = Station(poller, {metadata: answer_metadata}, most_held_bytes=150_000)
    good = station.connect()
    idlers = [station.connect() for _ in range(8)]
    for idler in idlers:
        idler.send(frame(METADATA, 1, b"\0" * announced)[:40_000])
        station.turns(2)
    assert len(station.loop.connections) == 1 + 3  # three times 40,000 fit
    assert caplog.text.count("unfinished request") == 5
    good.send(ASK)
    station.turns(2)
    assert correlation_id(read_reply(good)) == 1
    for idler in idlers:
        idler.close()
    station.turns(3)
    assert station.loop._held_bytes == 0


def test_garbage_ends_only_its_own_connection(poller, caplog):
    station = Station(poller, {metadata: answer_metadata})
    bad, good = station.connect(), station.connect()
    bad.send(b"GET / HTTP/1.1\r\n\r\n")
    good.send(ASK)
    station.turns(2)
    assert bad.recv(10) == b""
    assert correlation_id(read_reply(good)) == 1
    assert caplog.text.count("closed the connection") == 1


def test_idle_connections_are_closed_but_not_those_that_wait_for_us(poller):
    gate = Gate()

    def wait(owner, request, call):
        return WaitingRequest(lambda expired: None, deadline_ms=2**62, hangs_on=[gate])

    station = Station(poller, {find_coordinator: wait, metadata: answer_metadata})
    idle, waiting = station.connect(), station.connect()
    waiting.send(frame(FIND_COORDINATOR, 0, pack(">h", 1) + b"g"))
    idle.send(ASK)
    station.turns(2)
    read_reply(idle)
    for connection in station.loop.connections.values():
        connection.active_at_ms -= 60_000
    station.loop.close_idle(50_000)
    assert idle.recv(1) == b""
    assert len(station.loop.connections) == 1


def test_a_crowd_that_is_sent_away_does_not_fill_the_log(poller, caplog):
    station = Station(poller, {metadata: answer_metadata})
    for _ in range(MOST_LINES_PER_SECOND + 30):
        station.connect().sendall(b"GET / HTTP/1.1\r\n\r\n")
    station.turns(5)
    assert not station.loop.connections
    assert station.loop.refused == MOST_LINES_PER_SECOND + 30
    assert caplog.text.count("closed the connection of") == MOST_LINES_PER_SECOND
    station.loop._said_since_ms -= 1_000  # a second later
    station.connect().sendall(b"GET / HTTP/1.1\r\n\r\n")
    station.turns(5)
    assert "closed 30 more connections" in caplog.text


def test_those_without_a_line_are_counted_though_nobody_else_is_sent_away(poller, caplog):
    station = Station(poller, {metadata: answer_metadata})
    for _ in range(MOST_LINES_PER_SECOND + 30):
        station.connect().sendall(b"GET / HTTP/1.1\r\n\r\n")
    station.turns(5)
    assert "more connections" not in caplog.text
    station.loop._said_since_ms -= 1_000  # a second later
    station.loop.timers.run(station.loop.now.monotonic_ms + 1_000)
    assert "closed 30 more connections" in caplog.text


@pytest.mark.parametrize("resumed", [False, True])
def test_a_bug_that_one_connection_finds_ends_that_connection_only(
    poller, caplog, monkeypatch, resumed
):
    """Outside of any handler, as with tokens that have no request around them."""
    station = Station(poller, {metadata: answer_metadata})
    bad, good = station.connect(), station.connect()
    feed = station.loop.dispatch.feed

    def feed_with_bug(session, view, filled):
        if bytes(view[8:12]) == b"\x00\x00\x00\x0d":
            raise KeyError("nobody has looked")
        return feed(session, view, filled)

    monkeypatch.setattr(
        type(station.loop.dispatch), "feed", lambda s, *given: feed_with_bug(*given)
    )
    harm = frame(METADATA, 1, pack(">i", -1), correlation_id=13)
    if resumed:
        connection = next(iter(station.loop.connections.values()))
        connection.tail, connection.tail_is_ready = harm, True
        station.loop._held_bytes += len(harm)
        station.loop._again[connection] = True
    else:
        bad.send(harm)
    good.send(ASK)
    station.turns(2)
    assert bad.recv(10) == b""
    assert correlation_id(read_reply(good)) == 1
    assert "nobody has looked" in caplog.text and station.loop._held_bytes == 0


def test_a_large_frame_for_which_there_is_no_memory_ends_its_connection_only(poller, monkeypatch):
    def no_memory(descriptor, size):
        raise OSError(12, "no memory")

    monkeypatch.setattr("headrace.node.process.loop.mmap.mmap", no_memory)
    station = Station(poller, {metadata: answer_metadata})
    bad, good = station.connect(), station.connect()
    bad.send(frame(METADATA, 1, b"\0" * 900_000)[:40_000])
    good.send(ASK)
    station.turns(3)
    assert bad.recv(10) == b"" and station.loop._held_bytes == 0
    assert correlation_id(read_reply(good)) == 1


def test_who_leaves_most_unread_is_closed_when_all_leave_too_much(poller, monkeypatch, caplog):
    monkeypatch.setattr("headrace.node.process.loop.MOST_UNREAD_BYTES", 3_000_000)

    def handle(owner, request, call):
        size = 3_000_000 if call.client_id() == "greedy" else 1_000_000
        topic = metadata.MetadataResponseTopic(0, "t" * 30_000)
        return metadata.MetadataResponse(topics=[topic] * (size // 30_000))

    station = Station(poller, {metadata: handle})
    modest, greedy = station.connect(), station.connect()
    modest.sendall(frame(METADATA, 1, pack(">i", -1)))
    station.turns(3)
    greedy.sendall(frame(METADATA, 1, pack(">i", -1), client_id=b"greedy"))
    station.turns(3)
    assert station.loop.dispatch.holds_back and len(station.loop.connections) == 2
    station.loop._close_worst_reader()
    assert len(station.loop.connections) == 2, "it has some time to read"
    station.loop.now.monotonic_ms += 10_000
    station.loop._close_worst_reader()
    assert "bytes of answers unread" in caplog.text
    assert len(station.loop.connections) == 1 and not station.loop.dispatch.holds_back
    assert read_reply_while_turning(modest, station)
    assert station.loop.unread_bytes == 0


def test_many_who_read_nothing_make_room_together(poller, monkeypatch):
    """One was closed every ten seconds, and the next of them took its room."""
    monkeypatch.setattr("headrace.node.process.loop.MOST_UNREAD_BYTES", 3_500_000)

    def handle(owner, request, call):
        topic = metadata.MetadataResponseTopic(0, "t" * 30_000)
        return metadata.MetadataResponse(topics=[topic] * 35)

    station = Station(poller, {metadata: handle})
    clients = [station.connect() for _ in range(5)]
    for client in clients:
        client.sendall(frame(METADATA, 1, pack(">i", -1)))
    station.turns(3)
    assert station.loop.dispatch.holds_back
    station.loop.now.monotonic_ms += 10_000
    station.loop._close_worst_reader()
    assert 0 < station.loop.unread_bytes <= 3_500_000 // 2
