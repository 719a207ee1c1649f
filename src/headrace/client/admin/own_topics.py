"""Topics that Headrace keeps for itself: created correctly, repaired where possible, else refused.

A cluster with automatic topic creation, or a person, may have created such a topic first, with
another number of partitions or with records that are deleted after a week. Every service calls
`ensure_own` before it uses a topic of its own.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import NamedTuple

from headrace.client.admin.topics import Topics
from headrace.client.errors import ClientError, NoSuchTopic

log = logging.getLogger(__name__)

FORBIDDEN = ("TOPIC_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED")
POLICY = "cleanup.policy"
LOOK_AGAIN_S = 0.05


class OwnTopic(NamedTuple):
    """The settings that a service's own topic must have."""

    name: str
    partitions: int
    settings: Mapping[str, str]
    # The partition of a record is computed from this number; with another number records are not
    # found.
    is_exact: bool = False


class WrongTopic(ClientError):
    """A topic of ours cannot be used and cannot be repaired; the text says what to do."""


def ensure_own(topics: Topics, own: OwnTopic) -> None:
    """Make sure that the topic exists with the right settings. Raises WrongTopic if it has too many
    partitions.

    If the user may not see settings, or not change them, they stay as they are.
    """
    topics.ensure(own.name, partitions=own.partitions, settings=own.settings)
    deadline = time.monotonic() + topics.connection.timeout_s
    if own.is_exact:
        _require_partitions(topics, own)
    if not topics.may_see_settings(own.name):
        return
    try:
        policy = _policy_of(topics, own.name, deadline)
        if sorted(policy.split(",")) == sorted(own.settings[POLICY].split(",")):
            return
        log.warning(
            "%s has %s=%s, so records would be lost or kept too long: it gets the right settings",
            own.name, POLICY, policy,
        )  # fmt: skip
        topics.change_settings(own.name, to=own.settings)
    except ClientError as failure:
        if failure.code not in FORBIDDEN:
            raise
        log.warning("the settings of %s are wrong and stay so: %s", own.name, failure)


def _require_partitions(topics: Topics, own: OwnTopic) -> None:
    """Add partitions. No records were written with the smaller number, so none are lost."""
    found = {each.name: each.partitions for each in topics.all()}
    count = found.get(own.name, own.partitions)
    if count > own.partitions:
        raise WrongTopic(
            f"The topic {own.name} has {count} partitions and must have {own.partitions}: another "
            f"program created it. Delete it (`headrace topics delete {own.name}`); the next "
            "request that needs it creates it again."
        )
    if count < own.partitions:
        log.warning("%s has %d partitions: it gets %d", own.name, count, own.partitions)
        try:
            topics.grow(own.name, partitions=own.partitions)
        except ClientError as failure:
            if failure.code != "INVALID_PARTITIONS":  # another program did it at the same moment
                raise


def _policy_of(topics: Topics, name: str, deadline: float) -> str:
    """The topic's cleanup policy. Asks until `deadline`: a broker may not know yet what another
    program has just created."""
    while True:
        try:
            return topics.settings_of(name)[POLICY].value
        except NoSuchTopic:
            if time.monotonic() > deadline:
                raise
            time.sleep(LOOK_AGAIN_S)
