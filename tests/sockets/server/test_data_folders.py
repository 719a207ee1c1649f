"""A server with two data folders, one of which cannot be read while it is sent."""

import errno
import os
import threading
import time

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.node.process.server import Server
from headrace.node.process.settings.settings import CannotStart, load_settings

WITHIN_S = 60
LARGE = b"x" * 100_000  # goes by sendfile


class Running:
    def __init__(self, folders):
        named = {"log.dirs": ",".join(map(str, folders))}
        self.server = Server(load_settings(listen="127.0.0.1:0", overrides=named))
        self.server.open(own_process=False)
        self.thread = threading.Thread(target=self.server.serve)
        self.thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.stop()
        self.thread.join(WITHIN_S)
        assert not self.thread.is_alive()

    @property
    def offline(self):
        return list(self.server.node.partitions.folders.offline)


@pytest.mark.integration
def test_a_file_that_cannot_be_sent_takes_its_folder_offline(tmp_path, monkeypatch):
    one, two = tmp_path / "one", tmp_path / "two"
    with Running((one, two)) as running:
        where = {"bootstrap.servers": running.server.address}
        admin = AdminClient(where)
        for made in admin.create_topics([NewTopic("orders", 2, 1)]).values():
            made.result(WITHIN_S)
        index = 1 if (two / "orders-1").exists() else 0
        producer = Producer(where)
        for partition in (0, 1):
            producer.produce("orders", LARGE, partition=partition)
        assert producer.flush(WITHIN_S) == 0
        sent = os.sendfile

        def broken(out, source, position, length):
            if os.readlink(f"/proc/self/fd/{source}").startswith(str(two)):
                raise OSError(errno.EIO, "Input/output error")
            return sent(out, source, position, length)

        monkeypatch.setattr(os, "sendfile", broken)
        # Its group's offsets may lie in the folder that goes: a last commit would be waited for.
        own = {"group.id": "g", "auto.offset.reset": "earliest", "enable.auto.commit": False}
        consumer = Consumer({**where, **own})
        consumer.assign([TopicPartition("orders", index, 0)])
        deadline = time.monotonic() + WITHIN_S
        while not running.offline and time.monotonic() < deadline:
            consumer.poll(0.1)
        assert running.offline == [str(two)]
        consumer.assign([TopicPartition("orders", 1 - index, 0)])
        assert consumer.poll(WITHIN_S).value() == LARGE
        consumer.close()


def test_a_second_folder_that_another_process_uses_is_refused(tmp_path):
    one, two, three = (tmp_path / name for name in ("one", "two", "three"))
    with Running((one, two)), pytest.raises(CannotStart, match=f"Another process uses {two}"):
        Running((three, two))
    with Running((three,)):
        pass  # its lock was given back


def test_a_new_node_needs_all_its_folders(tmp_path):
    (tmp_path / "two").write_text("a file where a folder should be")
    with pytest.raises(CannotStart, match="two cannot be used"):
        Running((tmp_path / "one", tmp_path / "two"))


def test_a_node_that_was_there_starts_without_a_folder(tmp_path):
    folders = (tmp_path / "one", tmp_path / "two")
    with Running(folders):
        pass
    (tmp_path / "two").rename(tmp_path / "elsewhere")
    (tmp_path / "two").write_text("a file where a folder should be")
    with Running(folders) as running:
        assert running.offline == [str(tmp_path / "two")]
