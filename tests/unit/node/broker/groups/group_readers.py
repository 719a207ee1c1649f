"""Consumers of the newer protocol (KIP-848) on a rig, and what must hold among them."""

from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages import consumer_group_describe, consumer_group_heartbeat
from headrace.wire.protocol.messages.consumer_group_heartbeat import TopicPartitions

E = ErrorCode


class Reader:
    """A consumer of the newer protocol: does what it is told, step by step."""

    def __init__(self, rig, group, name, *topics, **more):
        self.rig = rig
        self.group = group
        self.id = name
        self.topics = list(topics) or None
        self.epoch = 0
        self.owned = {}
        self.more = more
        self.last = None
        self.missed = False  # an answer: it says everything again, to be told everything again

    def ask(self, **changes):
        """What the server says to it; it takes no notice."""
        fields = {"owned": self.owned, "epoch": self.epoch, **self.more, **changes}
        whole = fields["epoch"] == 0 or self.missed
        owned = fields.pop("owned")
        request = consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
            self.group,
            self.id,
            fields.pop("epoch"),
            fields.pop("instance", None),
            fields.pop("rack", None),
            fields.pop("rebalance_timeout_ms", 20_000 if whole else -1),
            fields.pop("topics", self.topics if whole else None),
            fields.pop("regex", None),
            fields.pop("assignor", None),
            None if owned is None else [TopicPartitions(t, sorted(p)) for t, p in owned.items()],
        )
        assert not fields
        return self.rig.ask(consumer_group_heartbeat, request)

    def miss(self, **changes):
        """The server hears it, and its answer is lost."""
        self.ask(**changes)
        self.missed = True

    def beat(self, **changes):
        answer = self.last = self.ask(**changes)
        self.missed = False
        if answer.error_code == E.NONE:
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                parts = answer.assignment.topic_partitions
                self.owned = {part.topic_id: set(part.partitions) for part in parts}
        return answer

    @property
    def has(self):
        names = self.rig.node.broker.image.topics_by_id
        return {names[topic].name: sorted(parts) for topic, parts in self.owned.items()}

    def leave(self, epoch=-1):
        return self.beat(epoch=epoch, owned=None)


def describe(rig, group="g"):
    request = consumer_group_describe.ConsumerGroupDescribeRequest([group])
    return rig.ask(consumer_group_describe, request).groups[0]


def until_stable(*readers):
    """Heartbeats until nobody has anything new; nobody ever owns what another has."""
    for _ in range(20):
        before = [(reader.epoch, dict(reader.owned)) for reader in readers]
        for reader in readers:
            assert reader.beat().error_code == E.NONE, reader.last
            require_no_overlap(*readers)
        if before == [(reader.epoch, dict(reader.owned)) for reader in readers]:
            return
    raise AssertionError("they never come to rest")


def require_no_overlap(*readers):
    owned = [(t, p) for reader in readers for t, parts in reader.owned.items() for p in parts]
    assert len(owned) == len(set(owned)), owned
