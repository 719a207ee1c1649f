"""The log shipper under what happens to pipes, clocks, positions and clusters of real machines."""

import json
import os
import threading

import pytest

from headrace.client import Admin
from headrace.client.errors import BufferFull, ClientError
from headrace.services.shipping.positions import FILE, StateError, StateFolder
from tests.sockets.services.shipping.shipping_runs import (
    LINES,
    Clock,
    Shipping,
    add,
    passes,
    written,
)

pytestmark = pytest.mark.usefixtures("quick_producers")

# ---- pipes


def test_what_was_read_of_a_pipe_is_written_when_it_is_stopped(broker, tmp_path):
    shipping = Shipping(broker, tmp_path, "piped-stop")
    read_end, write_end = os.pipe()
    clock = Clock()
    shipper = shipping.shipper("", stdin=read_end, clocks=clock.clocks)
    os.write(write_end, b"INFO one\nINFO two\nINFO three, the newline of which has not come")
    written(shipper, clock, 1)
    shipper.stop()
    shipper.run()
    os.close(write_end)
    os.close(read_end)
    assert shipping.messages() == [
        "INFO one",
        "INFO two",
        "INFO three, the newline of which has not come",
    ]


def test_a_producer_that_fails_costs_no_line_of_a_pipe(nobody, broker, tmp_path):
    shipping = Shipping(broker, tmp_path, "piped-anew")
    read_end, write_end = os.pipe()
    shipper = shipping.shipper("", stdin=read_end, at=nobody)
    os.write(write_end, b"".join(b"INFO %d\n" % n for n in range(50)))
    os.close(write_end)
    while shipper._read_all():
        pass
    shipper._read_all()
    assert [len(run.records) for run in shipper._runs] == [49, 1]
    shipper.connection = shipping.connection
    shipper._begin_anew()
    shipper._flush()
    shipper._close()
    os.close(read_end)
    assert shipping.messages() == [f"INFO {n}" for n in range(50)]
    assert shipper.counters.pipe_lost == 0


def test_what_cannot_be_written_of_a_pipe_is_told_as_lost(nobody, tmp_path):
    shipping = Shipping.__new__(Shipping)
    shipping.connection, shipping.folder, shipping.topic, shipping.notes = nobody, tmp_path, "x", []
    read_end, write_end = os.pipe()
    os.write(write_end, b"INFO 1\nINFO 2\n")
    os.close(write_end)
    shipper = shipping.shipper("", stdin=read_end, grace_s=0)
    shipper.run()
    os.close(read_end)
    assert shipper.counters.pipe_lost == 2
    assert shipper.to_send_again == 0


def test_standard_input_that_cannot_be_read_is_one_sentence(broker, tmp_path):
    shipping = Shipping(broker, tmp_path, "unreadable")
    folder = os.open(tmp_path, os.O_RDONLY)
    with pytest.raises(ClientError, match="Standard input cannot be read: Is a directory"):
        shipping.shipper("", stdin=folder).run()
    os.close(folder)


# ---- clocks


def test_a_clock_that_is_set_back_stops_nothing(broker, tmp_path):
    shipping, log, clock = Shipping(broker, tmp_path, "clock"), tmp_path / "a.log", Clock()
    add(log, LINES[0])
    shipper = shipping.shipper(clocks=clock.clocks)
    shipper.roster.look(clock.now_ms, first=True)
    passes(shipper, clock)
    clock.ahead_ms -= 86_400_000
    add(log, LINES[1])
    passes(shipper, clock, count=3)  # the last group is sent after a pause
    written(shipper, clock, 2)
    stopped = threading.Timer(0, shipper.stop)
    stopped.start()
    shipper.run()
    assert shipping.messages() == LINES[:2]


# ---- positions


def test_positions_of_another_topic_or_cluster_are_refused(tmp_path):
    first = StateFolder(tmp_path, {"topic": "logs", "cluster": "A"})
    first.save([])
    first.close()
    for target in ({"topic": "other", "cluster": "A"}, {"topic": "logs", "cluster": "B"}):
        state = StateFolder(tmp_path, target)
        with pytest.raises(StateError, match="does not have what they say is shipped"):
            state.load()
        state.close()
        adopting = StateFolder(tmp_path, target, adopts=True)
        assert adopting.load() == []
        adopting.close()


@pytest.mark.parametrize(
    ("name", "value"),
    [("id", 7), ("offset", -1), ("offset", 1.5), ("cuts", [True]), ("ended", 1), ("head", None)],
)
def test_a_position_that_is_damaged_is_refused(broker, tmp_path, name, value):
    shipping = Shipping(broker, tmp_path, f"damaged-{name}-{type(value).__name__}")
    add(tmp_path / "a.log", LINES[0])
    shipping.once()
    file = tmp_path / "state" / FILE
    document = json.loads(file.read_text())
    document["files"][0][name] = value
    file.write_text(json.dumps(document))
    with pytest.raises(StateError, match=f"{name} is"):
        shipping.once()


# ---- clusters


def test_a_topic_that_is_made_anew_while_it_is_shipped_to_gets_all_that_follows(broker, tmp_path):
    shipping, log, clock = Shipping(broker, tmp_path, "anew"), tmp_path / "a.log", Clock()
    add(log, *LINES[:3])
    shipper = shipping.shipper(clocks=clock.clocks)
    shipper.roster.look(clock.now_ms, first=True)
    passes(shipper, clock, count=3)
    written(shipper, clock, 3)
    Admin(broker.bootstrap).topics.delete("anew")
    Admin(broker.bootstrap).topics.create("anew", partitions=1)
    add(log, *LINES[3:6])
    passes(shipper, clock, count=3)
    written(shipper, clock, 6)
    shipper._close()
    assert shipping.messages() == LINES[3:6]


@pytest.mark.integration
def test_a_cluster_that_is_away_costs_bounded_memory(nobody, broker, tmp_path):
    shipping, clock = Shipping(broker, tmp_path, "away"), Clock()
    with (tmp_path / "a.log").open("w") as file:
        file.writelines(f"INFO {'x' * 900} {n}\n" for n in range(60_000))
    shipper = shipping.shipper(at=nobody, clocks=clock.clocks)
    take = shipper._producer.take

    def take_until_full(*record):
        try:
            take(*record)
        except BufferFull:
            shipper.stop()
            raise

    shipper._producer.take, shipper._producer.max_block_s = take_until_full, 0
    shipper.roster.look(clock.now_ms, first=True)
    while not shipper._stopping:
        shipper._read_all()
    assert len(shipper._producer) <= 50_000
    assert shipper.counters.lines < 60_000 and shipper.counters.waits
    shipper._close()
    assert shipper.to_send_again


def test_a_refusal_of_the_cluster_ends_it_with_its_sentence(broker, tmp_path):
    shipping = Shipping(broker, tmp_path, "refused", **{"message.timestamp.before.max.ms": "1000"})
    add(tmp_path / "a.log", LINES[0])
    shipping.connection.settings["enable.idempotence"] = "true"
    clock = Clock()
    shipper = shipping.shipper(once=True, clocks=clock.clocks)
    take = shipper._producer.take
    shipper._producer.native = lambda: None  # which takes nothing
    shipper._producer.take = lambda *record: take(*record[:5], 1_000_000_000_000, record[6])
    with pytest.raises(ClientError, match="the clock of this machine"):
        shipper.run()
    assert json.loads((tmp_path / "state" / FILE).read_text())["files"][0]["offset"] == 0
