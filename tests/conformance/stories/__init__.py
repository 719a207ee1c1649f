"""The table of contents: every story that is told to both brokers."""

from __future__ import annotations

from tests.conformance.stage import Story
from tests.conformance.stories import (
    api_versions,
    bad_frames,
    cluster,
    configs,
    expired,
    fetch,
    fetch_sessions,
    group_consumers,
    group_epochs,
    group_garbled,
    group_members,
    group_migration,
    group_offsets,
    group_refusals,
    group_waiting,
    list_offsets,
    log_dirs,
    logins,
    metadata,
    no_coordinator,
    partitions,
    produce,
    produce_refused,
    producers,
    quotas,
    reassignments,
    records,
    restarts,
    sequences,
    share_fetches,
    share_groups,
    topics,
    transactions,
    transactions_refused,
    transactions_worn_out,
)

MODULES = (
    no_coordinator,  # before any other makes the topics of the coordinators
    api_versions,
    bad_frames,
    metadata,
    topics,
    partitions,
    produce,
    produce_refused,
    records,
    sequences,
    producers,
    fetch,
    fetch_sessions,
    share_fetches,
    list_offsets,
    configs,
    quotas,
    cluster,
    log_dirs,
    reassignments,
    logins,
    group_offsets,
    group_members,
    group_consumers,
    group_migration,
    group_refusals,
    group_waiting,
    group_garbled,
    group_epochs,
    share_groups,
    transactions,
    transactions_refused,
    # These stop the brokers and start them again, once, with another past.
    restarts,
    expired,
    transactions_worn_out,
)

STORIES: dict[str, Story] = {
    f"{module.__name__.rsplit('.', 1)[1]}: {story.__name__.replace('_', ' ')}": story
    for module in MODULES
    for story in module.STORIES
}
