"""The log shipper under what happens to files: rotated, emptied, linked, at rest, odd bytes."""

import gzip
import json
import os

import pytest

from headrace.services.shipping import roster
from headrace.services.shipping import shipper as shipping_loop
from headrace.services.shipping.positions import StateFolder
from tests.sockets.services.shipping.shipping_runs import (
    LINES,
    Clock,
    Shipping,
    add,
    passes,
    written,
)

pytestmark = pytest.mark.usefixtures("quick_producers")


def test_a_renamed_file_is_followed_while_its_program_still_writes_to_it(broker, tmp_path):
    shipping, log, clock = Shipping(broker, tmp_path, "slow-program"), tmp_path / "a.log", Clock()
    add(log, LINES[0])
    shipper = shipping.shipper("a.log", clocks=clock.clocks)
    shipper.roster.look(clock.now_ms, first=True)
    log.rename(tmp_path / "old")
    passes(shipper, clock, step_ms=10_000, count=6)
    add(tmp_path / "old", LINES[1])
    passes(shipper, clock, step_ms=10_000, count=2)
    written(shipper, clock, 2)
    passes(shipper, clock, step_ms=roster.RENAMED_WAIT_MS, count=3)
    assert not shipper.roster.open
    shipper._close()
    assert shipping.messages() == LINES[:2]


def test_a_file_that_is_packed_and_deleted_while_it_is_read_is_read_to_its_end(
    broker, tmp_path, monkeypatch
):
    monkeypatch.setattr(shipping_loop, "CHUNK", 100)
    shipping, log, clock = Shipping(broker, tmp_path, "packed"), tmp_path / "a.log", Clock()
    add(log, *LINES[:6])
    shipper = shipping.shipper("a.log*", clocks=clock.clocks)
    shipper.roster.look(clock.now_ms, first=True)
    shipper._read_all()
    (tmp_path / "a.log-20260101.gz").write_bytes(gzip.compress(log.read_bytes()))
    log.unlink()
    add(log, *LINES[6:])
    passes(shipper, clock, step_ms=roster.DELETED_WAIT_MS, count=4)
    written(shipper, clock, len(LINES))
    shipper._close()
    assert sorted(shipping.messages()) == LINES
    assert shipper.counters.files_lost == 0


@pytest.mark.parametrize("lines", [1, 5])  # shorter than what was read, and longer
def test_a_file_that_is_filled_anew_while_it_is_followed_is_another_one(broker, tmp_path, lines):
    shipping, log, clock = Shipping(broker, tmp_path, f"anew-{lines}"), tmp_path / "a.log", Clock()
    add(log, *LINES[:3])
    shipper = shipping.shipper("a.log", clocks=clock.clocks)
    shipper.roster.look(clock.now_ms, first=True)
    passes(shipper, clock, count=3)
    written(shipper, clock, 3)
    os.truncate(log, 0)
    add(log, *LINES[3 : 3 + lines])
    passes(shipper, clock, count=3)
    written(shipper, clock, 3 + lines)
    shipper._close()
    assert sorted(shipping.messages()) == LINES[: 3 + lines]
    assert len({one["id"] for one in shipping.records()}) == 3 + lines


def test_deleted_files_take_a_bounded_part_of_the_disk(nobody, broker, tmp_path):
    """No cluster answers, so nothing is read any more once the buffer is full."""
    shipping, clock = Shipping(broker, tmp_path, "deleted"), Clock()
    shipper = shipping.shipper(at=nobody, clocks=clock.clocks, most_deleted_bytes=256 * 1024)
    for number in range(4):
        (tmp_path / f"{number}.log").write_bytes(b"x" * 1023 + b"\n" + b"y" * 128 * 1024)
    shipper.roster.look(clock.now_ms, first=True)
    for number in range(4):
        (tmp_path / f"{number}.log").unlink()
        clock.now_ms += 10
        shipper.roster.look(clock.now_ms)
    held = sum(one.bytes_on_disk() for one in shipper.roster.open.values())
    assert held <= 256 * 1024
    assert shipper.counters.files_lost == 4 - len(shipper.roster.open) >= 2
    assert any("0.log was deleted and takes too much of the disk" in n for n in shipping.notes)
    shipper._close()


def test_a_file_at_rest_is_closed_and_read_on_when_it_grows_or_is_rotated(broker, tmp_path):
    shipping, clock = Shipping(broker, tmp_path, "rest"), Clock()
    log, other = tmp_path / "a.log", tmp_path / "b.log"
    add(log, LINES[0])
    add(other, LINES[1])
    shipper = shipping.shipper("?.log", clocks=clock.clocks)
    shipper.roster.look(clock.now_ms, first=True)
    passes(shipper, clock, count=3)
    written(shipper, clock, 2)
    passes(shipper, clock, step_ms=roster.REST_MS + 1, count=2)
    assert not shipper.roster.open and len(shipper.roster.resting) == 2
    add(log, LINES[2])
    add(other, LINES[3])
    other.rename(tmp_path / "rotated")  # out of the pattern, before anybody looked
    passes(shipper, clock, count=3)
    written(shipper, clock, 4)
    shipper._close()
    assert sorted(shipping.messages()) == LINES[:4]
    assert len({one["id"] for one in shipping.records()}) == 4


def test_a_copy_of_a_file_at_rest_is_known_as_one(broker, tmp_path):
    """copytruncate of a file that nobody has written to for long, seen in the middle of it."""
    shipping, clock, log = Shipping(broker, tmp_path, "rest-copy"), Clock(), tmp_path / "a.log"
    add(log, *LINES[:3])
    shipper = shipping.shipper("a.log*", clocks=clock.clocks)
    shipper.roster.look(clock.now_ms, first=True)
    passes(shipper, clock, count=3)
    written(shipper, clock, 3)
    passes(shipper, clock, step_ms=roster.REST_MS + 1, count=2)
    assert shipper.roster.resting
    add(log, LINES[3])
    passes(shipper, clock, count=3)
    written(shipper, clock, 4)
    passes(shipper, clock, step_ms=roster.REST_MS + 1, count=2)
    (tmp_path / "a.log.1").write_bytes(log.read_bytes())
    passes(shipper, clock, count=2)
    os.truncate(log, 0)
    add(log, LINES[4])
    passes(shipper, clock, count=3)
    written(shipper, clock, 5)
    passes(shipper, clock, step_ms=roster.COPY_WAIT_MS, count=3)
    shipper._flush()
    shipper._close()
    assert sorted(shipping.messages()) == LINES[:5]


@pytest.mark.integration
def test_more_files_than_may_be_open_are_read_one_after_the_other(broker, tmp_path, monkeypatch):
    monkeypatch.setattr(roster, "MOST_FILES", 3)
    shipping = Shipping(broker, tmp_path, "crowd")
    for number in range(10):
        add(tmp_path / f"{number}.log", f"{LINES[0]} {number}")
    assert shipping.once().written == 10
    assert len({one["id"] for one in shipping.records()}) == 10


def test_links_to_folders_above_do_not_multiply_files(broker, tmp_path):
    """Two of them are 2 ** 40 paths."""
    shipping = Shipping(broker, tmp_path, "links")
    below = tmp_path / "logs" / "below"
    below.mkdir(parents=True)
    for name in ("one", "two"):
        (below / name).symlink_to(tmp_path / "logs")
    add(below / "a.log", LINES[0])
    add(tmp_path / "logs" / "b.log", LINES[1])
    assert shipping.once("logs/**/*.log").written == 2


def test_a_folder_that_is_named_is_told_of(broker, tmp_path):
    shipping = Shipping(broker, tmp_path, "folder")
    (tmp_path / "logs").mkdir()
    assert shipping.once("logs").not_followed == 1
    assert any("it is a folder; name its files" in note for note in shipping.notes)


def test_a_file_behind_a_link_is_found_after_rotation_in_its_own_folder(broker, tmp_path):
    """As kubelet does: the link is given the new file, the old one is renamed beside it."""
    shipping = Shipping(broker, tmp_path, "kubelet")
    pods = tmp_path / "pods"
    pods.mkdir()
    add(pods / "0.log", *LINES[:2])
    (tmp_path / "a.log").symlink_to(pods / "0.log")
    shipping.once("a.log")
    add(pods / "0.log", LINES[2])
    (pods / "0.log").rename(pods / "0.log.20260101-000000")
    add(pods / "0.log", LINES[3])
    shipping.once("a.log")
    assert sorted(shipping.messages()) == LINES[:4]


def test_a_file_that_cannot_be_read_for_a_while_costs_no_other(broker, tmp_path):
    shipping, clock = Shipping(broker, tmp_path, "io-error"), Clock()
    add(tmp_path / "a.log", LINES[0])
    add(tmp_path / "b.log", LINES[1])
    shipper = shipping.shipper(clocks=clock.clocks)
    shipper.roster.look(clock.now_ms, first=True)
    broken = next(iter(shipper.roster.open.values()))
    os.dup2(folder := os.open(tmp_path, os.O_RDONLY), broken.descriptor)  # reads of it fail
    os.close(folder)
    passes(shipper, clock, count=4)
    written(shipper, clock, 2)
    shipper._close()
    assert sorted(shipping.messages()) == LINES[:2]
    assert any("a.log is not followed: Is a directory" in note for note in shipping.notes)


def test_zeros_before_a_line_are_no_part_of_it(broker, tmp_path):
    """A program without O_APPEND goes on at its old place in a file that was emptied."""
    shipping, log = Shipping(broker, tmp_path, "zeros"), tmp_path / "a.log"
    with log.open("wb") as file:
        file.truncate(300_000)
        file.seek(300_000)
        file.write(b"INFO after the hole\n")
    counters = shipping.once(max_line=1024)
    [*pieces, last] = shipping.messages()
    assert (pieces, last) == ([], "INFO after the hole") and counters.blank > 200


def test_no_character_is_torn_where_a_long_line_is_cut(broker, tmp_path):
    shipping = Shipping(broker, tmp_path, "characters")
    text = "x" + "\u20ac\U0001f600" * 1_000
    add(tmp_path / "a.log", text)
    assert shipping.once(max_line=1024).bad == 0
    assert "".join(shipping.messages()) == text


def test_a_mark_of_byte_order_is_no_part_of_the_first_line(broker, tmp_path):
    shipping = Shipping(broker, tmp_path, "mark")
    (tmp_path / "a.log").write_bytes(b'\xef\xbb\xbf{"level":"error","msg":"one"}\r\n')
    shipping.once()
    [record] = shipping.records()
    assert (record["level"], record["message"]) == ("ERROR", "one")


def test_a_time_ahead_of_the_clock_is_a_problem_and_not_the_time(broker, tmp_path):
    shipping = Shipping(broker, tmp_path, "ahead")
    add(
        tmp_path / "a.log", "2098-01-01 00:00:00 INFO from the future", "2026-01-01 00:00:00 INFO a"
    )
    assert shipping.once().bad == 1
    first, second = shipping.records()
    assert first["time"] < "2098" and first["fields"] == {"said_time": "2098-01-01T00:00:00.000Z"}
    assert "ahead of the clock" in first["problem"]
    assert second["time"] == "2026-01-01T00:00:00.000Z"


def test_a_service_with_a_long_name_fits_into_a_folders_name(broker, tmp_path):
    shipping = Shipping(broker, tmp_path, "service")
    add(tmp_path / "a.log", json.dumps({"level": "info", "msg": "m", "service": "s" * 500}))
    shipping.once()
    [record] = shipping.records()
    assert record["service"] == "s" * 60 and record["fields"]["service"] == "s" * 500


def test_a_record_is_shortened_until_the_topic_takes_it(broker, tmp_path):
    shipping = Shipping(broker, tmp_path, "tiny", **{"max.message.bytes": "1500"})
    chaos = "".join(chr(0x4E00 + (n * n * 7 + n // 3) % 9000) for n in range(9_000))
    add(tmp_path / "a.log", chaos, "INFO short")
    counters = shipping.once(compression="none")
    assert counters.written == 2 and counters.shortened > 1
    assert all(len(one["message"]) >= 10 for one in shipping.records())


def test_many_files_share_the_writing_of_their_positions(broker, tmp_path):
    """Each pause of a file that ends a message must be kept before it is sent: of all at once."""
    shipping, clock = Shipping(broker, tmp_path, "many"), Clock()
    for number in range(40):
        add(tmp_path / f"{number}.log", f"{LINES[0]} {number}")
    shipper = shipping.shipper(clocks=clock.clocks)
    saves, save = [], shipper.state.save
    shipper.state.save = lambda positions: saves.append(1) or save(positions)
    shipper.roster.look(clock.now_ms, first=True)
    passes(shipper, clock, count=3)
    written(shipper, clock, 40)
    assert len(saves) <= 4
    for number in range(40):
        os.truncate(tmp_path / f"{number}.log", 0)
        add(tmp_path / f"{number}.log", f"{LINES[1]} {number}")
    saves.clear()
    passes(shipper, clock, count=3)
    written(shipper, clock, 80)
    assert len(saves) <= 5
    shipper._close()
    assert len({one["id"] for one in shipping.records()}) == 80


def test_a_producer_that_fails_in_the_middle_of_many_files_skips_nothing(nobody, broker, tmp_path):
    shipping, clock = Shipping(broker, tmp_path, "many-anew"), Clock()
    for number in range(5):
        add(tmp_path / f"{number}.log", f"{LINES[0]} {number}")
    shipper = shipping.shipper(at=nobody, clocks=clock.clocks)
    shipper.roster.look(clock.now_ms, first=True)
    passes(shipper, clock, count=3)
    for number in range(5):
        add(tmp_path / f"{number}.log", f"{LINES[1]} {number}")
    take, taken = shipper._take_run, []

    def fails_once(run):
        taken.append(run)
        if len(taken) == 2:
            shipper.connection = shipping.connection
            shipper._begin_anew()
        else:
            take(run)

    shipper._take_run = fails_once
    passes(shipper, clock, count=3)
    written(shipper, clock, 10)
    shipper._flush()
    shipper._close()
    found = [one["message"] for one in {one["id"]: one for one in shipping.records()}.values()]
    assert sorted(found) == sorted(f"{LINES[n]} {number}" for n in (0, 1) for number in range(5))
    state = StateFolder(tmp_path / "state")
    assert all(one.offset == one.size for one in state.load())
    state.close()
