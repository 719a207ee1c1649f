"""Proposals of many leaders on their way to the controller."""

from headrace.node.replication.isr_changes import (
    MOST_PER_REQUEST,
    RETRY_MS,
    IsrChanges,
    IsrProposal,
)
from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages.alter_partition import (
    AlterPartitionResponse,
    ResponsePartitionData,
    ResponseTopicData,
)

TOPIC = bytes(range(16))


class Leader:
    """Notes what it is told; `again` as long as the controller is to be asked again."""

    def __init__(self):
        self.answers = []
        self.again = False

    def proposal_answered(self, proposal, answer):
        self.answers.append((proposal.index, answer.error_code))
        return self.again


def proposed(changes, leader, indexes):
    for index in indexes:
        changes.propose(leader, IsrProposal(TOPIC, index, 1, index, [(1, 7), (2, 8)]))


def sent(changes, now_ms=0):
    """The partitions of the next request."""
    request = changes.next_request(1, 7, now_ms)
    if request is None:
        return None
    return [each.partition_index for topic in request.topics for each in topic.partitions]


def agreed(indexes):
    parts = [ResponsePartitionData(partition_index=index) for index in indexes]
    return AlterPartitionResponse(topics=[ResponseTopicData(TOPIC, parts)])


def test_a_request_names_a_bounded_number_of_partitions():
    changes, leader = IsrChanges(), Leader()
    proposed(changes, leader, range(2 * MOST_PER_REQUEST + 1))
    requests = []
    while (named := sent(changes)) is not None:
        assert sent(changes) is None, "one at a time"
        requests.append(named)
        changes.answered(agreed(named), 0)
    assert [len(named) for named in requests] == [MOST_PER_REQUEST, MOST_PER_REQUEST, 1]
    assert [index for index, _ in leader.answers] == list(range(2 * MOST_PER_REQUEST + 1))


def test_what_is_asked_again_keeps_nobody_back():
    """A controller that refuses the first ones for ever still hears of the others."""
    changes, stubborn, leader = IsrChanges(), Leader(), Leader()
    stubborn.again = True
    proposed(changes, stubborn, range(MOST_PER_REQUEST))
    proposed(changes, leader, range(1_000, 1_010))
    first = sent(changes)
    changes.answered(agreed(first), 0)
    assert sent(changes, RETRY_MS)[:10] == list(range(1_000, 1_010))


def test_an_unanswered_request_is_sent_again_unless_something_newer_was_proposed():
    changes, leader = IsrChanges(), Leader()
    proposed(changes, leader, [0, 1])
    assert sent(changes) == [0, 1]
    newer = IsrProposal(TOPIC, 1, 2, 9, [(1, 7)])
    changes.propose(leader, newer)
    changes.answered(AlterPartitionResponse(error_code=ErrorCode.NOT_CONTROLLER), 0)
    assert sent(changes, RETRY_MS - 1) is None
    request = changes.next_request(1, 7, RETRY_MS)
    asked = {each.partition_index: each.leader_epoch for each in request.topics[0].partitions}
    assert asked == {0: 1, 1: 2}
