"""One shard: where it begins, when it refuses to, and how it finds a row that cannot be sent."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headrace.services.outbox import shard as core
from headrace.services.outbox.rows import Asked, NotARecord, OutboxRecord, Row, record_of
from headrace.services.outbox.shard import Position, Shard


def row(number: int, key: str = "k") -> Row:
    return Row(number, "transfers", key.encode(), b"%d" % number, None, None, 0)


def shard(**given: object) -> Shard:
    return Shard(2, check=lambda row: record_of(row, "box"), **given)  # type: ignore[arg-type]


def taken_over(machine: Shard, at: Row) -> core.Effect:
    position = Position(at.id, at.checksum)
    return machine.step(core.TakenOver(position, at.id, at, {}))


def test_a_new_shard_says_so_in_both_places_before_it_sends() -> None:
    machine = shard()
    assert machine.begin() == core.TakeOver()
    assert machine.step(core.TakenOver(None, None, None, {})) == core.Begin(Position(0))
    assert machine.step(core.Begun()) == core.Wait()
    assert machine.step(core.Stable(7, 1)) == core.Read(0, 7, 5000)


def test_a_crash_between_the_two_places_begins_again() -> None:
    machine = shard()
    assert machine.step(core.TakenOver(Position(0), None, None, {})) == core.Begin(Position(0))


@pytest.mark.parametrize(
    ("position", "hint", "last_row", "words"),
    [
        (None, 40, None, "the cluster has no position of it"),
        (None, 0, None, "the cluster has no position of it"),
        (Position(30), 40, row(30), "the cluster's position is 30"),
        (Position(40, row(40).checksum), 40, None, "does not have that row"),
        (Position(40, row(40, "another").checksum), 40, row(40), "does not have that row"),
        (Position(40, row(40).checksum), None, row(40), "does not have that row"),
    ],
)
def test_a_position_that_cannot_be_this_databases_stops_the_shard(
    position: Position | None, hint: int | None, last_row: Row | None, words: str
) -> None:
    effect = shard().step(core.TakenOver(position, hint, last_row, {}))
    assert isinstance(effect, core.Halt)
    assert words in effect.sentence
    assert "Shard 2" in effect.sentence


def test_the_position_is_the_last_row_that_was_read_never_the_horizon() -> None:
    machine = shard()
    taken_over(machine, row(40))
    assert machine.step(core.Stable(90, 1)) == core.Read(40, 90, 5000)
    send = machine.step(core.RowsRead([row(50), row(60)], 90))
    assert send == core.Send([row(50), row(60)], Position(60, row(60).checksum))
    assert machine.step(core.Committed()) == core.Wait()  # up to 90 there is nothing more


def test_what_was_left_for_its_size_is_read_next() -> None:
    machine = shard()
    taken_over(machine, row(40))
    machine.step(core.Stable(90, 1))
    machine.step(core.RowsRead([row(50)], 50))
    assert machine.step(core.Committed()) == core.Read(50, 90, 5000)


def test_after_a_crash_of_the_database_ids_that_were_looked_at_are_looked_at_again() -> None:
    machine = shard()
    taken_over(machine, row(40))
    machine.step(core.Stable(90, 1))
    assert machine.step(core.RowsRead([], 90)) == core.Wait()
    assert machine.step(core.Stable(60, 1)) == core.Wait()
    assert machine.step(core.Stable(60, 2)) == core.Read(40, 60, 5000)


def test_a_refused_batch_is_halved_until_the_guilty_row_is_alone() -> None:
    machine = shard(most=8)
    taken_over(machine, row(40))
    rows, refusals, sent = [row(41 + n) for n in range(8)], 0, []
    effect = machine.step(core.Stable(48, 1))
    while not isinstance(effect, core.Wait):
        match effect:
            case core.Read(after, _, most):
                some = [each for each in rows if each.id > after][:most]
                effect = machine.step(core.RowsRead(some, some[-1].id))
            case core.Send(batch, _) if any(each.id == 46 for each in batch):
                refusals += 1
                effect = machine.step(core.SendRefused("too large"))
            case core.Send(batch, _):
                sent += [each.id for each in batch]
                effect = machine.step(core.Committed())
            case core.Park(parked):
                assert parked == [(row(46), "too large", False)]
                effect = machine.step(core.Parked())
            case _:
                raise AssertionError(effect)
    assert sent == [41, 42, 43, 44, 45, 47, 48]
    assert refusals <= 6


def test_rows_for_a_topic_that_is_missing_are_found_guilty_at_once() -> None:
    machine = shard()
    taken_over(machine, row(40))
    machine.step(core.Stable(44, 1))
    rows = [replace(row(41 + n), topic=topic) for n, topic in enumerate(["t", "x", "y", "x"])]
    machine.step(core.RowsRead(rows, 44))
    missing = {"x": "no topic x", "y": "no topic y"}
    assert machine.step(core.SendRefused("no topic x", missing)) == core.Read(40, 44, 5000)
    parked = machine.step(core.RowsRead(rows, 44))
    assert parked == core.Park([(each, missing[each.topic], False) for each in rows[1:]])
    assert machine.step(core.Parked()) == core.Send(rows[:1], Position(44, rows[3].checksum))


def test_a_parked_row_for_a_topic_that_is_still_missing_is_parked_again() -> None:
    machine = shard()
    taken_over(machine, row(40))
    ready = [row(38), replace(row(39), topic="x")]
    machine.step(core.Reviewed(ready, {}))
    assert machine.step(core.SendRefused("no topic x", {"x": "no"})) == core.Repark(39, "no")


def test_retried_rows_of_a_lost_answer_are_forgotten_and_not_sent_twice() -> None:
    machine = shard()
    at = Position(40, row(40).checksum, retried=(12,))
    assert machine.step(core.TakenOver(at, 40, row(40), {})) == core.Forget((12,))
    assert machine.step(core.Forgotten()) == core.Review(5000)
    assert machine.step(core.Reviewed([], {})) == core.Wait()


def test_a_parked_row_that_the_position_has_not_passed_is_not_sent_from_the_table() -> None:
    machine = shard()
    taken_over(machine, row(40))
    assert machine.step(core.Reviewed([row(41)], {})) == core.Wait()
    effect = machine.step(core.Reviewed([row(12), row(41)], {}))
    assert effect == core.Send([row(12)], Position(40, row(40).checksum, (12,)))


def test_a_lost_producer_makes_the_shard_ask_again_where_it_is() -> None:
    machine = shard()
    taken_over(machine, row(40))
    machine.step(core.Stable(50, 1))
    machine.step(core.RowsRead([row(41)], 50))
    assert machine.step(core.ProducerLost()) == core.TakeOver()
    assert machine.position is None


def test_a_row_found_guilty_later_holds_up_its_key_from_there_on() -> None:
    """The last of three is no record; the first is refused by the cluster after that was found."""

    def check(row: Row) -> OutboxRecord:
        if row.id == 43:
            raise NotARecord("no name for a topic")
        return record_of(row, "box")

    machine = Shard(2, check=check, blocks=True)
    taken_over(machine, row(40))
    machine.step(core.Stable(43, 1))
    assert isinstance(machine.step(core.RowsRead([row(41), row(42), row(43)], 43)), core.Park)
    machine.step(core.Parked())
    machine.step(core.SendRefused("too large"))
    machine.step(core.RowsRead([row(41)], 41))
    machine.step(core.SendRefused("too large"))
    assert machine.step(core.RowsRead([row(41)], 41)) == core.Park([(row(41), "too large", False)])
    machine.step(core.Parked())
    machine.step(core.Committed())
    effect = machine.step(core.RowsRead([row(42), row(43)], 43))
    assert isinstance(effect, core.Park)
    assert [(each.id, waits) for each, _, waits in effect.rows] == [(42, True), (43, True)]


def test_a_row_that_asks_for_a_confirmation_is_kept_before_it_is_sent() -> None:
    machine = shard()
    taken_over(machine, row(40))
    machine.step(core.Stable(43, 1))
    asking, plain, broken = row(41), row(42), row(43)
    asking.headers = '{"headrace-confirm-within": "1s"}'
    broken.headers = '{"headrace-confirm-within": "soon"}'
    effect = machine.step(core.RowsRead([asking, plain, broken], 43))
    assert isinstance(effect, core.Park) and [one.id for one, _, _ in effect.rows] == [43]
    assert machine.step(core.Parked()) == core.Track([(asking, Asked("box/41", 1000))])
    sent = machine.step(core.Tracked())
    assert isinstance(sent, core.Send) and sent.rows == [asking, plain]
