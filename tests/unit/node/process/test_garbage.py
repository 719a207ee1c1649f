"""A node tidies its objects when its partitions are many more or fewer and nobody waits."""

from headrace.node.process.garbage import MANY_PARTITIONS, QUIET_MS, QuietCollection


def test_many_new_or_deleted_partitions_are_seen_to_once_in_a_quiet_moment():
    partitions, frozen, collected = [10], [], []
    quiet = QuietCollection(
        lambda: partitions[0],
        lambda: frozen.append(partitions[0]),
        lambda: collected.append(partitions[0]),
    )
    quiet.look(idle_ms=QUIET_MS)
    partitions[0] += MANY_PARTITIONS - 1
    quiet.look(idle_ms=QUIET_MS)
    assert frozen == [], "too few have come"
    partitions[0] += 1
    quiet.look(idle_ms=QUIET_MS - 1)
    assert frozen == [], "somebody has just asked for something"
    quiet.look(idle_ms=QUIET_MS)
    quiet.look(idle_ms=QUIET_MS)
    assert (frozen, collected) == ([10 + MANY_PARTITIONS], []), "once, and no look at everything"
    partitions[0] = 5
    quiet.look(idle_ms=QUIET_MS)
    assert (frozen[1:], collected) == ([], [5]), "what was deleted is given back"
