"""Which epochs a member of the quorum believes when another one names them.

An epoch is an int32 that grows by one with each election and never goes back. One request with a
huge epoch would therefore use up all epochs of a quorum: no election could follow, and the cluster
would never write again. So a member refuses an epoch that is too far ahead of its own. A member
without a log has nothing to compare with, and believes any epoch that leaves room for the next one.
"""

from __future__ import annotations

# The largest epoch that has a successor in an int32. A member never goes beyond it, and a folder
# that has reached it cannot be started: `headrace segment repair` gives it another epoch.
LAST_EPOCH = 0x7FFF_FFFE
# Twelve days of one election per second, the fastest that `controller.quorum.election.timeout.ms`
# allows by default: a member that was away for longer begins with an empty folder.
MOST_AHEAD = 1 << 20
# A voter that has lost `quorum-state` skips so many epochs after the last epoch of its log: it may
# have voted in any of those between, at least 18 hours of elections none of which left a record.
# The number is well below MOST_AHEAD, so that the other members believe the voter.
FORGOTTEN_EPOCHS = 1 << 16


def is_believable(epoch: int, mine: int, *, has_log: bool) -> bool:
    if epoch > LAST_EPOCH:
        return False
    return not has_log or epoch - mine <= MOST_AHEAD
