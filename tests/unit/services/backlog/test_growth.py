"""Which keys move when a topic gets more partitions."""

from __future__ import annotations

from headrace.services.backlog.growth import MOST_SHOWN, growth


def test_keys_are_placed_as_the_java_client_places_them() -> None:
    # Seen with the Java client: murmur2 of these keys over 3 and 6 partitions.
    found = growth([b"foo", b"bar", b"baz", b"foo"], partitions=3, wanted=6)
    assert found.keys == 3
    for key, now, then in found.examples:
        assert now != then and then % 3 == now, key


def test_twice_the_partitions_move_about_half_of_the_keys() -> None:
    found = growth((b"key-%d" % n for n in range(1_000)), partitions=4, wanted=8)
    assert 400 < found.moving < 600
    assert len(found.examples) == MOST_SHOWN


def test_without_keys_nothing_moves() -> None:
    assert growth([], partitions=1, wanted=9).moving == 0
