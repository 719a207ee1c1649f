"""The log shipper on a broker: what it finds, and what it says."""

import json
import os

import pytest

from headrace.client import Admin
from headrace.client.errors import ClientError
from headrace.services.shipping.positions import FILE, StateError, StateFolder
from headrace.testing import Broker
from tests.sockets.services.shipping.shipping_runs import LINES, Shipping, add

pytestmark = pytest.mark.usefixtures("quick_producers")


def test_a_file_is_read_on_where_it_was_left(broker, tmp_path):
    shipping, log = Shipping(broker, tmp_path, "left"), tmp_path / "a.log"
    add(log, *LINES[:2])
    assert shipping.once().written == 2
    add(log, *LINES[2:4])
    assert shipping.once().written == 2
    assert shipping.once().written == 0
    assert shipping.messages() == LINES[:4]


def test_a_file_that_was_renamed_while_nobody_followed_it_is_found_in_its_folder(broker, tmp_path):
    shipping, log = Shipping(broker, tmp_path, "renamed"), tmp_path / "a.log"
    add(log, *LINES[:2])
    shipping.once("a.log")
    add(log, *LINES[2:4])
    log.rename(tmp_path / "kept-elsewhere")
    add(log, *LINES[4:6])
    shipping.once("a.log")
    assert sorted(shipping.messages()) == LINES[:6]


def test_a_file_that_was_copied_and_emptied_goes_on_in_its_copy(broker, tmp_path):
    shipping, log = Shipping(broker, tmp_path, "copied"), tmp_path / "a.log"
    add(log, *LINES[:3])
    shipping.once()
    add(log, *LINES[3:5])
    (tmp_path / "a.log.1").write_bytes(log.read_bytes())
    os.truncate(log, 0)
    add(log, *LINES[5:7])
    shipping.once()
    assert sorted(shipping.messages()) == LINES[:7]
    assert len({one["id"] for one in shipping.records()}) == 7
    assert any("is the copy of" in note for note in shipping.notes)


def test_a_file_that_is_gone_before_it_was_read_is_told_of(broker, tmp_path):
    shipping, log = Shipping(broker, tmp_path, "gone"), tmp_path / "a.log"
    add(log, *LINES[:1])
    shipping.once()
    state = json.loads((tmp_path / "state" / FILE).read_text())
    state["files"][0]["size"] += 100  # it had grown when it was last looked at
    (tmp_path / "state" / FILE).write_text(json.dumps(state))
    log.unlink()
    assert shipping.once().files_lost == 1
    assert any("is gone: 100 bytes of it, or more, were not shipped" in n for n in shipping.notes)


def test_what_cannot_be_followed_is_told_of_once(broker, tmp_path):
    shipping = Shipping(broker, tmp_path, "cannot")
    (tmp_path / "b.log.gz").write_bytes(b"x")
    os.mkfifo(tmp_path / "c.log")
    add(tmp_path / "a.log", LINES[0])
    counters = shipping.once()
    assert (counters.written, counters.not_followed) == (1, 2)
    assert any("b.log.gz is not followed: it is compressed." in note for note in shipping.notes)
    assert any("c.log is not followed: it is not a plain file" in note for note in shipping.notes)


def test_lines_that_are_too_long_come_in_pieces(broker, tmp_path):
    shipping = Shipping(broker, tmp_path, "long")
    add(tmp_path / "a.log", "x" * 2500, "INFO short")
    assert shipping.once(max_line=1024).cut == 3
    found = [(len(one["message"]), one.get("cut")) for one in shipping.records()]
    assert found == [(1024, "begin"), (1024, "middle"), (452, "end"), (10, None)]


def test_a_record_that_the_topic_does_not_take_is_shortened_and_says_so(broker, tmp_path):
    shipping = Shipping(broker, tmp_path, "small", **{"max.message.bytes": "6000"})
    chaos = "".join(chr(33 + (n * n * 7 + n // 3) % 90) for n in range(30_000))
    add(tmp_path / "a.log", chaos, "INFO short")
    counters = shipping.once(compression="none")
    assert (counters.shortened, counters.written) == (1, 2)
    found = {len(one["message"]): one.get("problem") for one in shipping.records()}
    assert found == {4096: "larger than the topic takes: the rest was left out", 10: None}


@pytest.mark.integration  # the client looks for the topic for a second
def test_a_topic_that_is_gone_ends_it_with_a_sentence_and_nothing_is_forgotten(tmp_path):
    with Broker(settings={"auto.create.topics.enable": "false"}) as broker:
        shipping = Shipping(broker, tmp_path, "away")
        add(tmp_path / "a.log", *LINES[:2])
        shipping.connection.settings["topic.metadata.propagation.max.ms"] = "1000"
        Admin(broker.bootstrap).topics.delete("away")
        with pytest.raises(ClientError, match="away"):
            shipping.once()
    assert json.loads((tmp_path / "state" / FILE).read_text())["files"][0]["offset"] == 0


def test_a_state_folder_is_one_shippers_and_what_cannot_be_read_is_not_taken_for_empty(tmp_path):
    first = StateFolder(tmp_path)
    with pytest.raises(StateError, match="Another shipper uses the state folder"):
        StateFolder(tmp_path)
    (tmp_path / FILE).write_text("{")
    with pytest.raises(StateError, match="Move it away"):
        first.load()
    first.close()


# ---- the commands
