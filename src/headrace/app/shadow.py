"""A shadow of an app: the same handlers over old records, with separate results.

The shadow is a group of its own, so its offsets, retries, dead letters and once-keys are its own;
its published records go to `<topic>.shadow-<name>`. It confirms nothing and delays nothing. Only
handlers that are declared `replay_safe=True` run: a shadow cannot know their other effects.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.client.admin.topics import Topics
from headrace.client.connection import ClientSettings

if TYPE_CHECKING:
    from headrace.app.app import App

_NAME = re.compile(r"[A-Za-z0-9_-]{1,40}")


class ShadowRefused(ValueError):
    """A sentence with the reason why the app cannot run as a shadow."""


@dataclass(slots=True)
class Shadow:
    name: str
    of_group: str
    connection: ClientSettings
    topics: dict[str, str] = field(default_factory=dict)  # the app's topic -> the shadow's

    @property
    def group(self) -> str:
        return f"{self.of_group}.shadow-{self.name}"

    def topic(self, of: str) -> str:
        """The topic that gets the results instead; the first call for a topic creates it."""
        if of not in self.topics:
            name = f"{of}.shadow-{self.name}"
            topics = Topics(self.connection)
            there = topics.cluster.topics.get(of)
            partitions = 1 if there is None else len(there.partitions)
            topics.ensure(name, partitions=partitions, settings={})
            self.topics[of] = name
        return self.topics[of]


def cast_shadow(app: App, name: str) -> list[str]:
    """Turn an app that does not run yet into its shadow; returns the handlers that are left out.

    This changes the app itself, because handlers refer to it when they send.
    """
    if not _NAME.fullmatch(name):
        raise ShadowRefused(
            f"{name!r} is not a name for a shadow: use up to 40 letters, digits, - and _, such as "
            "monday."
        )
    left_out = [each.name for each in app.subscriptions if not each.replay_safe]
    safe = [each for each in app.subscriptions if each.replay_safe]
    if not safe:
        raise ShadowRefused(
            f"No handler is declared safe to replay, so {', '.join(left_out)} will not run: say "
            "@app.on(..., replay_safe=True) where running again does no harm."
        )
    shadow = Shadow(name, app.group, app.connection)
    for subscription in safe:
        subscription.shadow = shadow
        subscription.confirm = False
    app.subscriptions = safe
    app.group = shadow.group
    app.delay = "off"
    app.shadow = shadow
    return left_out
