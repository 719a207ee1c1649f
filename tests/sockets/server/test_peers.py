"""A node asks others: over real sockets, on a clock that the test moves."""

import socket
import ssl
import threading
from contextlib import suppress

import pytest

from headrace.environment import Address, Now
from headrace.node.metadata.config_definitions.definition import BadValue
from headrace.node.process.listeners.addresses import Listener
from headrace.node.process.loop import Loop
from headrace.node.process.peers.peer_security import Plain, Secured
from headrace.node.process.peers.peer_streams import PlainStream
from headrace.node.process.peers.peers import LOOK_EVERY_MS, WARM_UP_MS, Peers
from headrace.node.process.poller import best_poller
from headrace.node.process.server import Server
from headrace.node.process.settings.settings import load_settings
from headrace.node.serving.dispatch import Dispatch
from headrace.node.serving.purgatory import Purgatory
from headrace.wire.protocol.messages import fetch, metadata, vote
from tests.interop.brokers import free_port
from tests.sockets.server.a_secured_server import Certificates, SecuredServer

MINUTE_MS = 60_000


class HeldClock:
    """Stands still unless the test moves it."""

    def __init__(self):
        self.ms = 1_000

    def read(self, now):
        now.monotonic_ms = now.wall_ms = self.ms


class Asking:
    """A loop with nothing but peers, turned by the test until an answer is there."""

    def __init__(self, **how):
        self.clock, now, purgatory = HeldClock(), Now(1_000, 1_000), Purgatory()
        dispatch = Dispatch([], purgatory, now, max_frame=1 << 20)
        self.written = []
        self.loop = Loop(
            best_poller(),
            self.clock,
            now,
            dispatch,
            purgatory,
            lambda: not self.written.append("written"),
            buffer_is_free=lambda: None,
            most_held_bytes=1 << 20,
        )
        self.peers = Peers(client_id="node-1", **how)
        self.peers.attend(self.loop)
        self.answers = []

    def ask(self, to, request, lane="control", messages=metadata, timeout_ms=MINUTE_MS):
        def answered(answer):
            self.answers.append((lane, answer))

        self.peers.ask(to, lane, messages, request, answered, timeout_ms=timeout_ms)

    def wait_for_answers(self, count):
        """Time passes only while nothing else happens; the suite's own limit ends a hang."""
        while len(self.answers) < count:
            turns = self.loop.turns
            self.loop.turn(20)
            self.clock.ms += 20 if self.loop.turns > turns else 0
        return self.answers

    def move_ms(self, ms):
        self.clock.ms += ms
        self.loop.turn(0)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.peers.close()
        self.loop.poller.close()


class Node:
    """A real server in a thread."""

    def __init__(self, folder, listen="127.0.0.1:0"):
        loaded = load_settings(data=str(folder), listen=listen)
        self.server = Server(loaded)
        self.server.open(own_process=False)
        self.address = Address("127.0.0.1", self.server.listeners[0].port)
        self._thread = threading.Thread(target=self.server.serve)
        self._thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.stop()
        self._thread.join()


def all_topics():
    return metadata.MetadataRequest(topics=None)


def long_poll():
    """Answered when there is something to read, which there is not: the partition is empty."""
    partition = fetch.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)
    topic = fetch.FetchTopic(topic="orders", partitions=[partition])
    return fetch.FetchRequest(max_wait_ms=MINUTE_MS, min_bytes=1, topics=[topic])


@pytest.fixture
def node(tmp_path):
    with Node(tmp_path / "node") as running:
        yield running


def test_a_node_answers_what_it_is_asked(node):
    with Asking() as asking:
        for _ in range(3):
            asking.ask(node.address, all_topics())
        answers = asking.wait_for_answers(3)
    assert [answer.brokers[0].port for _, answer in answers] == [node.address.port] * 3


def test_nothing_leaves_before_the_turn_is_written(node):
    """A follower's fetch says what it has: that must be in its files by then."""
    moments = []

    class Watched(PlainStream):
        def put(self, pieces):
            moments.append("asked")
            super().put(pieces)

        def send(self):
            if self.has_unsent:
                moments.append("sent")
            super().send()

    class AllWatched(Plain):
        def stream(self, sock, host):
            return Watched(sock)

    with Asking(security={"PLAINTEXT": AllWatched()}) as asking:
        asking.written = moments

        def answered(answer):
            asking.answers.append(answer)
            if len(asking.answers) < 3:  # as a fetcher does: the next one in the same breath
                ask()

        def ask():
            asking.peers.ask(
                node.address, "fetch", metadata, all_topics(), answered, timeout_ms=MINUTE_MS
            )

        ask()
        asking.wait_for_answers(3)
    asked = [at for at, what in enumerate(moments) if what == "asked"]
    assert len(asked) == 4  # the greeting and three questions
    assert all(moments[at + 1 : at + 3] == ["written", "sent"] for at in asked)


def test_lanes_do_not_wait_for_each_other(node):
    with Asking() as asking:
        asking.ask(node.address, metadata.MetadataRequest(topics=[topic("orders")]))
        asking.wait_for_answers(1)
        request = long_poll()
        asking.peers.ask(
            node.address,
            "fetch",
            fetch,
            request,
            lambda answer: asking.answers.append(("fetch", answer)),
            timeout_ms=10 * MINUTE_MS,
            newest=12,  # the last one that names topics
        )
        for _ in range(5):
            asking.loop.turn(10)
        asking.ask(node.address, all_topics())
        assert asking.wait_for_answers(2)[1][0] == "control"


def topic(name):
    return metadata.MetadataRequestTopic(name=name)


def test_a_node_that_is_away_is_silence_and_then_it_is_there(tmp_path):
    address = Address("127.0.0.1", free_port())
    with Asking() as asking:
        asking.ask(address, all_topics())
        assert asking.wait_for_answers(1) == [("control", None)]
        with Node(tmp_path / "node", listen=f"127.0.0.1:{address.port}"):
            while asking.answers[-1][1] is None:
                asking.ask(address, all_topics())
                asking.wait_for_answers(len(asking.answers) + 1)


def test_a_node_that_ends_leaves_nobody_waiting(tmp_path):
    with Asking() as asking:
        with Node(tmp_path / "node") as node:
            asking.ask(node.address, all_topics())
            asking.wait_for_answers(1)
        asking.ask(node.address, all_topics())
        assert asking.wait_for_answers(2)[1] == ("control", None)


def test_a_connection_that_is_closed_while_it_is_idle_is_not_a_warning(tmp_path, caplog):
    """A node closes connections that nobody uses (`connections.max.idle.ms`)."""
    with Asking() as asking:
        with Node(tmp_path / "node") as node:
            asking.ask(node.address, all_topics())
            asking.wait_for_answers(1)
        while asking.peers._connections:
            asking.loop.turn(20)
    assert "is gone" not in caplog.text


def test_a_node_that_does_not_listen_yet_is_logged_only_if_it_stays_away(caplog):
    """The nodes of a cluster start one after the other."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        away = Address("127.0.0.1", server.getsockname()[1])
    with Asking() as asking:
        asking.ask(away, all_topics())
        asking.wait_for_answers(1)
        assert "is gone" not in caplog.text
        asking.move_ms(WARM_UP_MS)
        asking.ask(away, all_topics())
        asking.wait_for_answers(2)
    assert caplog.text.count("is gone") == 1


def test_no_node_warns_of_the_others_while_the_whole_cluster_stops(caplog):
    with Asking() as asking, socket.create_server(("127.0.0.1", 0)) as server:
        asking.peers.expect_cluster_stop()
        asking.ask(Address("127.0.0.1", server.getsockname()[1]), all_topics())
        client = None
        while client is None:
            asking.loop.turn(10)
            client = accepted(server)
        client.close()
        assert asking.wait_for_answers(1) == [("control", None)]
    assert "is gone" not in caplog.text


def accepted(server):
    """The client that has connected, if one has."""
    server.settimeout(0.01)
    with suppress(TimeoutError):
        return server.accept()[0]
    return None


def test_silence_ends_when_the_time_is_up(caplog):
    with Asking() as asking, socket.create_server(("127.0.0.1", 0)) as silent:
        address = Address("127.0.0.1", silent.getsockname()[1])
        asking.ask(address, all_topics(), timeout_ms=5_000)
        asking.ask(address, all_topics(), timeout_ms=50_000)
        for _ in range(5):
            asking.loop.turn(10)
        assert asking.answers == []
        asking.move_ms(5_000 + LOOK_EVERY_MS)
        # The second one cannot be told from the first any more.
        assert asking.answers == [("control", None), ("control", None)]
    assert "has not answered in time" in caplog.text


@pytest.mark.parametrize(
    "said", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0\0\0\x04\0\0\0\x63", b"\x7f\xff\xff\xff"]
)
def test_who_answers_nonsense_is_left(said, caplog):
    with Asking() as asking, socket.create_server(("127.0.0.1", 0)) as server:

        def talk():
            client, _ = server.accept()
            with client:
                client.recv(1_000)
                client.sendall(said)
                with suppress(ConnectionError):
                    client.recv(1_000)  # until the other side has left

        thread = threading.Thread(target=talk)
        thread.start()
        asking.ask(Address("127.0.0.1", server.getsockname()[1]), all_topics())
        assert asking.wait_for_answers(1) == [("control", None)]
        thread.join()
    assert "is gone" in caplog.text


def test_what_a_node_does_not_know_is_silence(node, caplog):
    with Asking() as asking:
        asking.ask(node.address, vote.VoteRequest(), messages=vote)
        assert asking.wait_for_answers(1) == [("control", None)]
        asking.ask(node.address, all_topics())
        assert asking.wait_for_answers(2)[1][1] is not None
    assert "does not know Vote" in caplog.text


USERS = (
    "org.apache.kafka.common.security.{}LoginModule required "
    'username="node" password="between us"{};'
)
LOGINS = {
    "plain.sasl.jaas.config": USERS.format("plain.Plain", ' user_node="between us"'),
    "scram-sha-256.sasl.jaas.config": USERS.format("scram.Scram", ""),
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
}


@pytest.fixture(scope="module")
def secured(tmp_path_factory):
    folder = tmp_path_factory.mktemp("secured")
    certificates = Certificates(folder / "certificates")
    settings = certificates.settings(ssl_client_auth="required") | LOGINS
    listeners = ("SSL", "SASL_SSL", "SASL_PLAINTEXT", "PLAINTEXT")
    with SecuredServer(folder / "node", *listeners, **settings) as server:
        yield server


def named(protocol):
    return Listener(protocol, "", 0, protocol)


@pytest.mark.parametrize("listener", ["SSL", "SASL_SSL", "SASL_PLAINTEXT", "PLAINTEXT"])
def test_a_node_is_asked_as_its_listener_wants(secured, listener):
    security = {listener: secured.server.security.calls_to(named(listener), "PLAIN")}
    with Asking(security=security) as asking:
        asking.ask(Address("localhost", secured.port(listener), listener), all_topics())
        assert asking.wait_for_answers(1)[0][1] is not None


def test_a_node_whose_login_is_refused_hears_nothing(secured, caplog):
    """No user of that name is in the metadata."""
    security = {"SASL_SSL": secured.server.security.calls_to(named("SASL_SSL"), "SCRAM-SHA-256")}
    with Asking(security=security) as asking:
        asking.ask(Address("localhost", secured.port("SASL_SSL"), "SASL_SSL"), all_topics())
        assert asking.wait_for_answers(1) == [("control", None)]
    assert "it refuses the login" in caplog.text


def test_a_node_whose_certificate_nobody_trusts_is_not_asked(secured, tmp_path, caplog):
    stranger = Certificates(tmp_path / "elsewhere")
    security = {"SSL": Secured(ssl.create_default_context(cafile=str(stranger.ca)), None)}
    with Asking(security=security) as asking:
        asking.ask(Address("localhost", secured.port("SSL"), "SSL"), all_topics())
        assert asking.wait_for_answers(1) == [("control", None)]
    assert "certificate verify failed" in caplog.text


def test_a_mechanism_that_nodes_cannot_use_is_said(secured):
    with pytest.raises(BadValue, match="cannot log in to each other by GSSAPI"):
        secured.server.security.calls_to(named("SASL_SSL"), "GSSAPI")


def test_a_host_that_refuses_is_told_from_one_that_is_silent(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as silent, Asking() as asking:
        quiet = Address("127.0.0.1", silent.getsockname()[1])
        gone = Address("127.0.0.1", free_port())
        asking.ask(gone, all_topics())
        asking.wait_for_answers(1)
        assert asking.peers.refuses(gone) and not asking.peers.refuses(quiet)
        asking.ask(quiet, all_topics(), timeout_ms=100)
        asking.wait_for_answers(2)
        assert not asking.peers.refuses(quiet)
        with Node(tmp_path, f"127.0.0.1:{gone.port}"):
            asking.move_ms(MINUTE_MS)
            asking.ask(gone, all_topics())
            assert asking.wait_for_answers(3)[-1][1] is not None
            assert not asking.peers.refuses(gone), "somebody listens again"
