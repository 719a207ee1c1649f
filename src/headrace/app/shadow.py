"""A shadow of an app: the same handlers over old records, with separate results.

The shadow is a group of its own, so its offsets, retries, dead letters and once-keys are its own;
its published records go to `<topic>.shadow-<name>`. It confirms nothing and delays nothing. Only
handlers that are declared `replay_safe=True` run: a shadow cannot know their other effects.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from headrace.client.admin.topics import Topics
from headrace.client.connection import ClientSettings


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
