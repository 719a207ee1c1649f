"""A topic that was deleted and created again: its offsets mean other records than a checkpoint's.

Spark continues at the offsets it knows. If the new topic has more records than the old one had, the
first of them would silently never be read. So the ids of the topics are kept beside the checkpoint,
and compared when a run begins, and before and after each batch. A topic that is created again while
a batch reads it is found when the batch is written: the run ends, and what the batch wrote may hold
records of both.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from headrace.client.admin.topics import Topics
from headrace.client.connection import ClientSettings
from headrace.client.errors import ClientError, NoSuchTopic
from headrace.pipelines.declaration import Topic
from headrace.pipelines.failure import PipelineError
from headrace.pipelines.stream.folder import Folder

ANSWERS_WITHIN_S = 120.0
ASK_EVERY_S = 0.5


@dataclass(slots=True)
class TopicIds:
    """The topics that a pipeline reads, and which ones they were at first."""

    folder: Folder
    connection: ClientSettings
    source: Topic | None  # None: it reads a table
    known: dict[str, str] = field(default_factory=dict)
    topics: Topics | None = (
        None  # kept from batch to batch: a client costs a connection and threads
    )

    def begin(self) -> None:
        """Refuses to go on with a checkpoint of topics that are not there any more."""
        self.known = self.folder.topic_ids() if self.folder.has_begun() else {}
        self.check()

    def check(self) -> None:
        if self.source is None:
            return
        now = self._now(self.source)
        anew = [name for name, one in sorted(now.items()) if self.known.get(name, one) != one]
        if anew:
            raise PipelineError(
                f"{', '.join(anew)} was deleted and created again since {self.folder.name} began: "
                "offsets in its checkpoint mean other records. Start over with `headrace pipeline "
                f"reset {self.folder.name}`, and --keep-rows to add to the rows that are there."
            )
        if new := {name: one for name, one in now.items() if name not in self.known}:
            self.known |= new
            self.folder.keep_topic_ids(self.known)

    def _now(self, source: Topic) -> dict[str, str]:
        """Returns the present ids. Waits for a broker that restarts or hands its partitions
        over."""
        deadline = time.monotonic() + ANSWERS_WITHIN_S
        while True:
            try:
                return self._asked(source)
            except ClientError as failure:
                self.topics = None
                if time.monotonic() > deadline:
                    raise PipelineError(str(failure)) from failure
                time.sleep(ASK_EVERY_S)

    def _asked(self, source: Topic) -> dict[str, str]:
        try:
            topics = self.topics = self.topics or Topics(self.connection)
            names = [source.name]
            if source.pattern:
                names = [one.name for one in topics.all() if source.matches(one.name)]
            return topics.ids(names)
        except NoSuchTopic:  # Spark itself reports this, with its own words for missing data
            return {}
