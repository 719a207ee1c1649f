"""Whether a stream may go on where its last run ended: with this function, into this sink.

A run that would silently make its table wrong is refused here, before it writes anything, with a
message that lists the remedies.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from headrace.client.admin.topics import Topics
from headrace.client.connection import ClientSettings
from headrace.client.errors import ClientError, NoSuchTopic
from headrace.pipelines.declaration import Pipeline, Topic
from headrace.pipelines.failure import PipelineError
from headrace.pipelines.sinks.console_lines import Say
from headrace.pipelines.spark.plan_reader import read_plan
from headrace.pipelines.stream import backfill
from headrace.pipelines.stream.folder import Folder
from headrace.pipelines.stream.plan_identity import PlanIdentity, change
from headrace.pipelines.stream.queries import Streaming


@dataclass(slots=True, kw_only=True)
class Continuation:
    """`accept_change` lets a stream go on with a change that its state allows."""

    pipeline: Pipeline
    folder: Folder
    connection: ClientSettings
    note: Say
    accept_change: bool

    # ---- the function

    def check_function(
        self, streaming: Streaming, topics: Iterable[str], *, from_earliest: bool
    ) -> None:
        """Refuses a function that cannot go on with the state and the rows of the one before.
        `from_earliest`: the stream reads all records, whatever `starting=` is."""
        rows, made = streaming.function_result()
        streaming.sink.refuse_partial(
            streaming.stateful_operator(made),
            lambda: self._records_gone(topics, from_earliest=from_earliest),
        )
        now = read_plan(streaming.pipeline, rows, made)
        before = PlanIdentity.read(self.folder.kept_with_identity("plan"))
        if before is not None and self.folder.has_written():
            self._must_carry_on(before, now)
        streaming.plan = now
        if streaming.real_time:
            streaming.keep_plan()

    def check_values(self, values: str) -> None:
        """The same for columns that grow with the values: in another format the bytes of a record
        may be read as other values."""
        name, kept = self.pipeline.name, self.folder.kept_with_identity("values")
        if kept is not None and kept != values and self.folder.has_written():
            raise PipelineError(
                f"{name} has read values as {kept} until now, not as {values}: go on with {kept}, "
                f"or start over with `headrace pipeline reset {name} --table`."
            )
        self.folder.keep_with_identity(values=values)

    def _must_carry_on(self, before: PlanIdentity, now: PlanIdentity) -> None:
        name = self.pipeline.name
        if (changed := change(before, now)) is None:
            return
        ways = (
            f"give the pipeline another name and table; or start over with `headrace pipeline "
            f"reset {name} --table`; --history .. --into TABLE computes what was by the new one"
        )
        if changed.of_state:
            raise PipelineError(
                f"{name} cannot go on with the state of another function: {changed.shown}. Put "
                f"back what was there; or {ways}."
            )
        if not self.accept_change:
            raise PipelineError(
                f"{name} has changed since its last run: {changed.shown}. What it has written "
                f"stays as it is. Run it with --accept-change to go on so; or put back what was "
                f"there; or {ways}."
            )
        self.note(f"goes on with a change: {changed.shown}")

    def _records_gone(self, topics: Iterable[str], *, from_earliest: bool) -> str | None:
        """Why a stream from its beginning does not read all records that there were; None if it
        does, as far as offsets show."""
        source = self.pipeline.topic
        if source is None:
            return None
        if source.starting != "earliest" and not from_earliest:
            return f"it starts at {source.starting}, not at the earliest record"
        firsts = backfill.first_offsets(self.connection, topics)
        gone = sum(offset for each in firsts.values() for offset in each.values())
        return f"{gone:,} records are gone from {source.name}" if gone else None

    # ---- a topic as the sink

    def check_topic(self) -> None:
        """A sink that is a topic and was deleted would be created again, without what it had."""
        kept = self.folder.kept_with_identity("table")
        if not isinstance(self.pipeline.sink, Topic) or not self.folder.has_written() or not kept:
            return
        now = self._id_of_sink()
        if now == kept:
            return
        name, sink = self.pipeline.name, self.pipeline.sink.name
        what = f"{sink} was deleted" + ("" if now is None else " and created again")
        if not self.accept_change:
            raise PipelineError(
                f"{what} since {name} wrote to it. Run {name} with --accept-change to write only "
                f"what comes from now on; or start over with `headrace pipeline reset {name}`, "
                f"which writes all that {self.pipeline.source.name} still holds."
            )
        self.note(f"goes on with a change: {what}")

    def keep_topic(self) -> None:
        """Call when the topics are there."""
        if isinstance(self.pipeline.sink, Topic):
            self.folder.keep_with_identity(table=self._id_of_sink())

    def _id_of_sink(self) -> str | None:
        name = self.pipeline.sink.name
        try:
            return Topics(self.connection).ids([name]).get(name)
        except NoSuchTopic:
            return None
        except ClientError as failure:
            raise PipelineError(str(failure)) from failure
