"""The delay service as the node's child: started when it is wanted, again when it ends, gone at the
end. A stand-in that only waits for the end of its input is run instead of the service."""

import os
import sys

from headrace.node.metadata.image import MetadataImage
from headrace.node.process.background import delay_process
from headrace.node.process.background.delay_process import DelayProcess, delay_command
from headrace.node.process.server import Server
from headrace.node.process.settings.settings import load_settings
from headrace.wire.contract.delay_topics import REGISTRY
from tests.patience import until

WAITS = [sys.executable, "-c", "import os; os.read(0, 1)"]
FAILS = [sys.executable, "-c", "raise SystemExit(3)"]

WITHOUT = MetadataImage("cluster")
WITH = MetadataImage("cluster", topics={REGISTRY: None})


class ANode:
    """A server's loop without clients."""

    def __init__(self, tmp_path, command):
        settings = load_settings(data=tmp_path / "data", listen="127.0.0.1:0")
        self.server = Server(settings)
        self.server.open(own_process=False)
        self.started = 0

        def counted():
            self.started += 1
            return command

        self.delay = self.server.delay = DelayProcess(self.server.loop, counted)

    def turn_until(self, condition):
        def turn():
            self.server.loop.turn(10)
            return condition()

        until(turn, every_s=0)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.stop()
        self.server.serve()


def is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_it_is_started_with_the_first_delayed_topic_and_ends_with_the_node(tmp_path):
    with ANode(tmp_path, WAITS) as node:
        node.delay.image_changed(WITHOUT)
        for _ in range(30):
            node.server.loop.turn(10)
        assert node.delay.pid is None
        node.delay.image_changed(WITH)
        node.turn_until(lambda: node.delay.pid is not None)
        pid = node.delay.pid
        assert is_alive(pid)
    assert not is_alive(pid)


def test_it_is_started_again_when_it_ends_and_each_time_later(tmp_path, monkeypatch):
    monkeypatch.setattr(delay_process, "SHORTEST_WAIT_MS", 1)
    with ANode(tmp_path, FAILS) as node:
        node.delay.image_changed(WITH)
        node.turn_until(lambda: node.started == 3)
        assert node.delay._wait_ms >= 4


def test_the_store_lies_beside_the_data_because_kafka_refuses_folders_it_does_not_know(tmp_path):
    command = delay_command("localhost:9092", str(tmp_path / "data"), 1)
    assert command[command.index("--folder") + 1] == str(tmp_path / "data-delay")
    assert "--end-with-parent" in command
    assert command[command.index("--log-level") + 1] == "WARNING", "the screen is the node's"
