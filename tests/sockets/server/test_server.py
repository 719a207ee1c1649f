"""A whole server on real sockets: limits, metrics, and a clean end."""

import os
import socket
import stat
import struct
import threading
import urllib.request

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.node.process.folders.real_disk import RealFile
from headrace.node.process.loop import Loop, Slice
from headrace.node.process.server import DiskFailed, Server
from headrace.node.process.settings.settings import CannotStart, load_settings
from headrace.node.storage.durability.flush import Flush


class Running:
    def __init__(self, folder, *, metrics=None, **settings):
        names = {name.replace("_", "."): str(value) for name, value in settings.items()}
        loaded = load_settings(
            data=str(folder), listen="127.0.0.1:0", overrides=names, metrics=metrics
        )
        self.server = Server(loaded)
        self.server.open(own_process=False)
        self.failure = None
        self.thread = threading.Thread(target=self._serve)
        self.thread.start()

    def _serve(self):
        try:
            self.server.serve()
        except DiskFailed as failure:
            self.failure = failure

    @property
    def address(self):
        host, port = self.server.address.rsplit(":", 1)
        return host, int(port)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.stop()
        self.thread.join(60)
        assert not self.thread.is_alive()


def produce(running, value=b"x"):
    producer = Producer({"bootstrap.servers": "{}:{}".format(*running.address)})
    producer.produce("orders", value)
    assert producer.flush(60) == 0


def test_prometheus_sees_requests_connections_and_logs(tmp_path):
    with Running(tmp_path, metrics="127.0.0.1:0") as running:
        produce(running)
        counted = 'headrace_request_seconds_count{api="Produce"}'
        while float((samples := scraped(running)).get(counted, 0)) < 1:
            pass  # the answer is sent a moment before it is counted
    assert any(key.startswith('headrace_requests_total{api="Produce"') for key in samples)
    assert float(samples[counted]) == 1
    assert float(samples['headrace_log_end_offset{topic="orders",partition="0"}']) == 1
    assert float(samples["headrace_connections_accepted_total"]) >= 1


def test_a_start_does_not_wait_between_the_slices_of_its_work(tmp_path, monkeypatch):
    """Opening thousands of logs takes many slices; with a rest after each, it took minutes."""
    monkeypatch.setattr(Slice, "is_over", lambda self: True)  # one log in each slice
    with Running(tmp_path) as running:
        admin = AdminClient({"bootstrap.servers": "{}:{}".format(*running.address)})
        admin.create_topics([NewTopic("orders", 20, 1)])["orders"].result(60)
    waits = []
    turn = Loop.turn

    def watched(self, wait_ms):
        if self.has_work:
            waits.append(wait_ms)
        turn(self, wait_ms)

    monkeypatch.setattr(Loop, "turn", watched)
    with Running(tmp_path):
        assert len(waits) >= 20 and not any(waits)


def scraped(running):
    url = f"http://127.0.0.1:{running.server.metrics.port}/metrics"
    lines = urllib.request.urlopen(url, timeout=60).read().decode().splitlines()
    return dict(line.rsplit(" ", 1) for line in lines if line and not line.startswith("#"))


@pytest.mark.integration
def test_more_connections_than_one_address_may_have_are_turned_away(tmp_path, caplog):
    with Running(tmp_path, max_connections_per_ip=3) as running:
        clients = [socket.create_connection(running.address, timeout=60) for _ in range(5)]
        closed = set()
        while len(closed) < 2:  # the suite's own time limit ends this
            closed |= {client for client in clients if client not in closed and is_closed(client)}
        assert not any(is_closed(client) for client in clients if client not in closed)
        for client in clients:
            client.close()
    assert caplog.text.count("turned away") == 2


def is_closed(client):
    client.settimeout(0.2)
    try:
        return client.recv(1) == b""
    except TimeoutError:
        return False
    except ConnectionResetError:
        return True


def test_a_clean_end_leaves_the_sign_of_it(tmp_path):
    with Running(tmp_path) as running:
        produce(running)
        assert not (tmp_path / ".kafka_cleanshutdown").exists()
    assert (tmp_path / ".kafka_cleanshutdown").exists()
    assert (tmp_path / "recovery-point-offset-checkpoint").read_text() == "0\n1\norders 0 1\n"


def test_a_node_with_many_descriptors_ends_as_cleanly(tmp_path):
    with open(os.devnull) as nothing:
        many = [os.dup(nothing.fileno()) for _ in range(1_100)]
        try:
            with Running(tmp_path) as running:
                produce(running)
        finally:
            for descriptor in many:
                os.close(descriptor)
    assert (tmp_path / ".kafka_cleanshutdown").exists()


def test_a_disk_that_fails_a_flush_ends_the_node(tmp_path, monkeypatch):
    def fail(self, disk):
        raise OSError(5, "Input/output error")

    running = Running(tmp_path, headrace_durability="disk")
    produce(running)
    with monkeypatch.context() as broken_disk:
        broken_disk.setattr(Flush, "run", fail)
        producer = Producer({"bootstrap.servers": "{}:{}".format(*running.address)})
        producer.produce("orders", b"never acknowledged")
        running.thread.join(60)
        assert not running.thread.is_alive()
        assert producer.flush(0) == 1
        producer.purge()
    assert "Input/output error" in str(running.failure)
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    Running(tmp_path).__exit__()  # and the folder is free for the next start


def test_a_folder_in_use_is_refused_in_one_sentence(tmp_path):
    with Running(tmp_path), pytest.raises(CannotStart, match="Another process uses"):
        Running(tmp_path)


def test_a_port_in_use_is_refused_in_one_sentence(tmp_path):
    with Running(tmp_path / "one") as running:
        taken = "{}:{}".format(*running.address)
        settings = load_settings(data=str(tmp_path / "two"), listen=taken)
        with pytest.raises(CannotStart, match="Cannot listen"):
            Server(settings)
        # and its folder is free again
        Running(tmp_path / "two").__exit__()


def test_a_port_in_use_by_another_endpoint_of_metrics_is_refused_in_one_sentence(tmp_path):
    with Running(tmp_path / "one", metrics="127.0.0.1:0") as running:
        taken = f"127.0.0.1:{running.server.metrics.port}"
        with pytest.raises(CannotStart, match="Cannot serve metrics on 127.0.0.1:"):
            Running(tmp_path / "two", metrics=taken)
        # and its folder is free again, after a clean end
        assert (tmp_path / "two" / ".kafka_cleanshutdown").exists()
        Running(tmp_path / "two").__exit__()


def test_a_folder_of_another_node_is_refused(tmp_path):
    with Running(tmp_path):
        pass
    with pytest.raises(CannotStart, match="belongs to node 1"):
        Running(tmp_path, node_id=7)


def no_space(*_, **__):
    raise OSError(28, "No space left on device")


def test_a_disk_that_is_full_for_one_topic_ends_no_connection(tmp_path, monkeypatch):
    """Clients go on as they are, and what was refused arrives when there is room."""
    with Running(tmp_path, metrics="127.0.0.1:0") as running:
        produce(running)
        server = running.server
        append = RealFile.append
        refused = threading.Event()

        def append_if_room(file, data):
            if "/orders-0/" in file.path:
                refused.set()
                no_space()
            append(file, data)

        bootstrap = "{}:{}".format(*running.address)
        waits, others = (
            Producer({"bootstrap.servers": bootstrap}),
            Producer({"bootstrap.servers": bootstrap}),
        )
        others.produce("others", b"before")
        assert others.flush(60) == 0
        with monkeypatch.context() as full:
            full.setattr(RealFile, "append", append_if_room)
            waits.produce("orders", b"again and again")
            assert refused.wait(60)
            others.produce("others", b"meanwhile")
            assert others.flush(60) == 0
            assert waits.flush(0) == 1
        assert waits.flush(60) == 0
        assert server.loop.refused == 0
        url = f"http://127.0.0.1:{server.metrics.port}/metrics"
        text = urllib.request.urlopen(url, timeout=60).read().decode()
        samples = dict(
            line.rsplit(" ", 1) for line in text.splitlines() if line and not line.startswith("#")
        )
        assert float(samples["headrace_disk_refusals_total"]) >= 1
        assert float(samples["headrace_disk_free_bytes"]) > 0
        assert float(samples['headrace_log_end_offset{topic="orders",partition="0"}']) == 2


def test_a_start_on_a_full_disk_is_refused_in_one_sentence(tmp_path, monkeypatch):
    Running(tmp_path).__exit__()
    with monkeypatch.context() as full:
        full.setattr(RealFile, "append", no_space)
        with pytest.raises(CannotStart, match=r"is full: .* MiB are free, .* needs about 1.0 MiB"):
            Running(tmp_path)
    Running(tmp_path).__exit__()  # and the folder is free for the next start


def test_a_scraper_that_breaks_off_leaves_no_traceback_and_the_next_one_is_served(tmp_path, capfd):
    with Running(tmp_path, metrics="127.0.0.1:0") as running:
        for _ in range(3):
            with socket.create_connection(("127.0.0.1", running.server.metrics.port)) as scraper:
                # A reset as soon as the answer begins.
                scraper.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                scraper.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        assert scraped(running)
    assert "Traceback" not in capfd.readouterr().err


def test_a_bug_on_the_flushers_thread_ends_the_node_with_a_sentence(tmp_path, monkeypatch):
    running = Running(tmp_path)

    def stumble():
        raise ZeroDivisionError("division by zero")

    running.server.flusher.submit(stumble, lambda error: None)
    running.thread.join(60)
    assert not running.thread.is_alive()
    assert "ended with ZeroDivisionError: division by zero. That is a bug" in str(running.failure)
    Running(tmp_path).__exit__()


def test_a_flush_that_fails_while_the_node_stops_does_not_hang_it(tmp_path, monkeypatch):
    running = Running(tmp_path)
    with monkeypatch.context() as failing:
        failing.setattr(Flush, "run", no_space)
        running.__exit__()
    assert "No space left on device" in str(running.failure)


def test_what_a_node_writes_is_its_owners_alone(tmp_path):
    folder = tmp_path / "data"
    with Running(folder, auto_create_topics_enable="true") as running:
        produce(running)
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in [folder, *folder.rglob("*")]}
    assert {path for path, mode in modes.items() if mode & 0o077} == set()


def test_a_quorum_that_fails_ends_the_node_at_once(tmp_path):
    running = Running(tmp_path)
    running.server.node.member._failed(OSError(0, "epoch 3 is led by 1 and by 2"))
    running.thread.join(60)
    if running.thread.is_alive():
        running.server.stop()
        pytest.fail("it has waited for a flush")
    assert "led by 1 and by 2" in str(running.failure)
