"""`headrace app run --shadow`: old records through the handlers of today, and what differs."""

from __future__ import annotations

import sys

from headrace.app import App
from headrace.app.shadow_casting import ShadowRefused, cast_shadow
from headrace.cli import output
from headrace.cli.failure import Failure
from headrace.cli.records import reset_targets
from headrace.client.errors import ClientError
from headrace.services.replay.comparison import MOST_SHOWN, Comparison, TooMany
from headrace.services.replay.shadow_run import ShadowOutcome, ShadowRun, ShadowSpan


def run_shadow(
    app: App, name: str, since: str | None, from_offset: int | None, *, as_json: bool
) -> None:
    """Ends with an error if the results differ, so that a script can ask."""
    since_ms = reset_targets.when_ms(since)
    try:
        left_out = cast_shadow(app, name)
        run = ShadowRun(app)
        span = run.plan(since_ms, from_offset)
        _begin(run, span, left_out)
        for left in run.run(span):
            if sys.stderr.isatty():
                output.passing(f"{span.records - left:,} of {span.records:,} offsets handled")
        if sys.stderr.isatty():
            output.passing("")
        outcome = run.outcome(span, since_ms)
    except (ClientError, ShadowRefused, TooMany) as failure:
        raise Failure(str(failure)) from failure
    if as_json:
        output.answer_json(outcome)
    else:
        _tell(run, outcome)
    if not all(each.is_equal for each in outcome.comparisons):
        raise Failure("The shadow's results differ from the app's.")


def _begin(run: ShadowRun, span: ShadowSpan, left_out: list[str]) -> None:
    for handler in left_out:
        output.note(f"{handler} is not declared replay_safe=True and does not run.")
    begun = "continues with" if span.goes_on else "handles"
    output.note(f"Shadow {run.shadow.group} {begun} at most {span.records:,} records.")


def _tell(run: ShadowRun, outcome: ShadowOutcome) -> None:
    output.say(
        f"{output.count(outcome.handled, 'record')} handled, "
        f"{output.count(outcome.failed, 'attempt')} failed, {outcome.dead:,} dead."
    )
    if not outcome.comparisons:
        output.note("Nothing was published, so there is nothing to compare.")
    for each in outcome.comparisons:
        _tell_comparison(each)
    topics = " ".join(run.shadow.topics.values())
    output.note(
        f"Remove the shadow with: headrace groups delete {run.shadow.group}"
        + (f"; headrace topics delete {topics}" if topics else "")
    )


def _tell_comparison(found: Comparison) -> None:
    output.say(
        f"{found.topic}: {found.same:,} the same, {len(found.different):,} different, "
        f"{len(found.only_before):,} only by the app, {len(found.only_now):,} only by the shadow."
    )
    if found.without_id:
        output.note(f"{found.without_id:,} of the shadow's results have no id: not compared.")
    for word, names in (
        ("different", found.different),
        ("only by the app", found.only_before),
        ("only by the shadow", found.only_now),
    ):
        for name in names[:MOST_SHOWN]:
            output.say(f"  {word}: {name}")
        if len(names) > MOST_SHOWN:
            output.say(f"  {len(names) - MOST_SHOWN:,} more {word}")
