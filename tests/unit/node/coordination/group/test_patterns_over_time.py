"""Topics come, go and come again while members read by patterns: all that match, and nothing else.

What a pattern matched before is not tried again, so every order of comings and goings is a case.
"""

import random
import re

import pytest

from headrace.wire.protocol.messages import create_partitions, delete_topics
from headrace.wire.protocol.messages.create_partitions import CreatePartitionsTopic
from tests.unit.node.broker.groups.group_readers import Reader, describe, until_stable
from tests.unit.node.broker.groups.group_rig import GroupRig

NAMES = [f"{kind}-{number}" for kind in ("ord", "pay", "log") for number in range(4)]
BY_NAME = ("ord-0", "log-1", "log-2")
PATTERNS = ("ord-.*", "(ord|pay)-[12]", ".*-3", "nothing")


class Cluster:
    def __init__(self, folder):
        self.folder = folder
        self.sizes = {}
        self.start()

    def start(self):
        self.rig = GroupRig(self.folder, group_consumer_assignment_interval_ms=0)
        self.rig.find("g")

    def change(self, dice):
        name = dice.choice(NAMES)
        if name not in self.sizes:
            self.rig.create(name, 1)
            self.sizes[name] = 1
        elif dice.random() < 0.3:
            self.sizes[name] += 1
            wanted = CreatePartitionsTopic(name, self.sizes[name], None)
            request = create_partitions.CreatePartitionsRequest([wanted], 1_000)
            assert self.rig.ask(create_partitions, request).results[0].error_code == 0
        else:
            del self.sizes[name]
            gone = delete_topics.DeleteTopicState(name)
            request = delete_topics.DeleteTopicsRequest([gone], [], 1_000)
            assert self.rig.ask(delete_topics, request).responses[0].error_code == 0

    def matched(self, *patterns):
        return {
            (name, index)
            for name, size in self.sizes.items()
            if any(re.fullmatch(pattern, name) for pattern in patterns)
            for index in range(size)
        }


def wish(reader):
    return reader.more.get("regex", "|".join(BY_NAME))


@pytest.mark.parametrize("seed", range(5))
def test_members_have_what_their_patterns_match(seed, tmp_path):
    dice = random.Random(seed)
    cluster = Cluster(tmp_path / "data")
    readers = []

    def joins(step):
        if step == 20:  # and one by names
            return Reader(cluster.rig, "g", "named", *BY_NAME)
        return Reader(cluster.rig, "g", f"m{step}", regex=dice.choice(PATTERNS))

    for step in range(24):
        if step in (0, 8, 16, 20):
            readers.append(joins(step))
        for _ in range(dice.randrange(4)):
            cluster.change(dice)
        if dice.random() < 0.2:
            dice.choice(readers[:3]).more["regex"] = dice.choice(PATTERNS)
        until_stable(*readers)
        have = [(name, index) for one in readers for name in one.has for index in one.has[name]]
        assert sorted(have) == sorted(cluster.matched(*map(wish, readers)))
        for one in readers:
            assert set(one.has) <= {name for name, _ in cluster.matched(wish(one))}
        before = describe(cluster.rig).group_epoch
        until_stable(*readers)
        assert describe(cluster.rig).group_epoch == before, "nothing has changed"
    cluster.rig.stop()
    cluster.start()
    for one in readers:
        one.rig = cluster.rig
    until_stable(*readers)
    assert describe(cluster.rig).group_epoch == before, "nor when it is loaded"
