"""Members of Java's consumer share two topics by each of its assignors, and by the server's.

Two members, then a third, then the first is gone. The shares are compared with what each assignor
is published to give, what is given up with what its protocol has to give up; each record is read
once, and no partition is owned twice at one moment.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.interop.brokers import Node
from tests.interop.ecosystem import EcosystemSession
from tests.interop.topics import create_topic

Share = frozenset[str]

EVEN = ("3,3", "2,2,2", "3,3")
BY_TOPIC = ("4,2", "2,2,2", "4,2")  # of each topic the first member has one more
SHARES = {
    "RangeAssignor": BY_TOPIC,
    "RoundRobinAssignor": EVEN,
    "StickyAssignor": EVEN,
    "CooperativeStickyAssignor": EVEN,
    "uniform": EVEN,
    "range": BY_TOPIC,
}
# Those whose shares follow from the members' names alone; the others look at what was before.
SAME_NUMBERS = {Share({f"a{n}", f"b{n}"}) for n in range(3)}
TWO_BY_TOPIC = {Share({"a0", "a1", "b0", "b1"}), Share({"a2", "b2"})}
IN_TURNS = {Share({"a0", "a2", "b1"}), Share({"a1", "b0", "b2"})}
EXACTLY = {
    "RangeAssignor": (TWO_BY_TOPIC, SAME_NUMBERS, TWO_BY_TOPIC),
    "RoundRobinAssignor": (IN_TURNS, SAME_NUMBERS, IN_TURNS),
    "range": (TWO_BY_TOPIC, SAME_NUMBERS, TWO_BY_TOPIC),
}
STOPS_ALL = ("RangeAssignor", "RoundRobinAssignor", "StickyAssignor")
KEEPS_MOST = ("StickyAssignor", "CooperativeStickyAssignor", "uniform")

LINE = re.compile(r"stage (\d) (\w+) owns \[(.*)\] kept \[(.*)\] gave up \[(.*)\]")


@pytest.fixture(scope="module")
def sharing() -> Iterator[EcosystemSession]:
    with EcosystemSession() as session:
        yield session


class Stage:
    """What the members had and did until the group was at rest."""

    def __init__(self) -> None:
        self.owned: dict[str, Share] = {}
        self.kept: dict[str, Share] = {}
        self.gave_up: dict[str, Share] = {}


def stages_of(printed: str) -> list[Stage]:
    stages = [Stage(), Stage(), Stage()]
    for number, member, *places in LINE.findall(printed):
        owned, kept, gave_up = (Share(filter(None, text.split(","))) for text in places)
        stage = stages[int(number) - 1]
        stage.owned[member], stage.kept[member] = owned, kept
        stage.gave_up[member] = gave_up
    return stages


@pytest.mark.parametrize("assignor", SHARES)
def test_members_come_and_go(broker: Node, sharing: EcosystemSession, assignor: str) -> None:
    topics = [
        create_topic(broker.bootstrap, f"sharing-{each}-{assignor}", partitions=3) for each in "ab"
    ]
    how = ["consumer", assignor]
    if assignor.endswith("Assignor"):
        how = ["classic", f"org.apache.kafka.clients.consumer.{assignor}"]
    where = [broker.bootstrap, *topics, f"sharing-{assignor}"]
    printed = sharing.run("Sharing", *where, *how, *SHARES[assignor])

    assert "sent 360 read 360 twice 0" in printed.splitlines(), printed
    two, three, two_again = stages_of(printed)
    for stage in (two, three, two_again):
        shares = list(stage.owned.values())
        assert sum(map(len, shares)) == len(Share.union(*shares)) == 6, printed
    for stage, shares in zip((two, three, two_again), EXACTLY.get(assignor, ()), strict=False):
        assert set(stage.owned.values()) == shares, printed

    old = ("first", "second")
    if assignor in STOPS_ALL:
        assert all(three.gave_up[member] == two.owned[member] for member in old), printed
    else:  # only what somebody else gets
        assert all(three.gave_up[m] == two.owned[m] - three.owned[m] for m in old), printed
    if assignor in KEEPS_MOST:
        assert all(len(three.kept[member]) == 2 for member in old), printed
        left = ("second", "third")
        assert all(len(two_again.kept[member]) == 2 for member in left), printed
        if assignor not in STOPS_ALL:
            assert not any(two_again.gave_up[member] for member in left), printed
