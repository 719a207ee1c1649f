"""`headrace backlog`: how far groups are behind and why, and the ways to catch up.

`status` looks; `widen`, `add-partitions`, `park`, `bring-back` and `expire` do something about it,
each with a plan first. Nothing is changed without --execute.
"""

from __future__ import annotations

import time
from contextlib import closing
from shlex import quote
from typing import Annotated

import typer

from headrace.app.triggers.filters import FilterRefused
from headrace.cli import output
from headrace.cli.backlogged.views import (
    WidenProgress,
    follow_parking,
    status_object,
    tell_apart,
    tell_growth,
    tell_status,
)
from headrace.cli.failure import Failure
from headrace.cli.options.cluster_options import At, Json, cluster_options
from headrace.cli.options.completion import group_names, topic_names
from headrace.cli.options.key_values import key_values
from headrace.cli.options.numbers import finite
from headrace.cli.records import reset_targets
from headrace.cli.records.dead_letters import whoever
from headrace.cli.replayed.views import report_copy
from headrace.client.admin.groups import Groups
from headrace.client.admin.topics import Topics
from headrace.client.connection import ClientSettings
from headrace.client.lookup.record_pages import Browser
from headrace.operations.group_lags import look_at
from headrace.services.backlog.group_watch import Watching
from headrace.services.backlog.growth import growth
from headrace.services.backlog.parking import Parking, needed_packages
from headrace.services.backlog.widening import FEW_LEFT, Widening, WidenPlan, WidenStatus
from headrace.services.replay.pace import Pace
from headrace.services.replay.selection import Selection

app = typer.Typer(
    help="Show the lag of groups and its causes, and catch up.",
    no_args_is_help=True,
    add_completion=False,
    **output.LOOK,
)

Topic = Annotated[
    str,
    typer.Argument(
        metavar="TOPIC", help="The topic.", show_default=False, autocompletion=topic_names
    ),
]
Group = Annotated[
    str,
    typer.Option(
        "--group", metavar="GROUP", help="The group that is behind.", autocompletion=group_names
    ),
]
Store = Annotated[
    str,
    typer.Option(
        metavar="URL|FOLDER",
        envvar="HEADRACE_DATABASE_URL",
        help="postgresql://..., mariadb://... or sqlite:///file.db, or a folder for Parquet files.",
    ),
]
Execute = Annotated[
    bool,
    typer.Option("--execute/--dry-run", help="Execute it; --dry-run, the default, only shows it."),
]
Reason = Annotated[str, typer.Option(help="The reason, for the journal.")]
By = Annotated[str | None, typer.Option(help="Your name for the journal (default: your user).")]

# Groups that are described when none is named.
MOST_GROUPS = 50
KEYS_LOOKED_AT = 5_000


@app.command()
@cluster_options
def status(
    at: At,
    groups: Annotated[
        list[str] | None,
        typer.Argument(metavar="[GROUP...]", show_default=False, autocompletion=group_names),
    ] = None,
    watch_for: Annotated[
        str, typer.Option(metavar="TIME", help="How long to watch, to see rates: 5s, 1m.")
    ] = "3s",
    as_json: Json = False,
) -> None:
    """Show lag in records and in seconds, rates, the time to catch up, and the causes."""
    seconds = reset_targets.duration_ms(watch_for, option="--watch-for") / 1000
    with at.connection() as cluster:
        names = list(dict.fromkeys(groups or ()))
        left_out = 0
        if not names:
            everything = [each.group for each in Groups(cluster).all()]
            names, left_out = everything[:MOST_GROUPS], max(0, len(everything) - MOST_GROUPS)
        if not names:
            output.note("There are no groups.")
        found = Watching(cluster).status(names, seconds) if names else []
    if as_json:
        output.answer_json([status_object(lag, findings) for lag, findings in found])
        return
    for lag, findings in sorted(found, key=lambda pair: -pair[0].lag):
        tell_status(lag, findings, whole=groups is not None)
    if left_out:
        output.note(f"{left_out:,} more groups were not looked at: name them.")


# ---- more partitions


@app.command("add-partitions")
@cluster_options
def add_partitions(
    at: At,
    topic: Topic,
    to: Annotated[
        int, typer.Option("--to", min=1, metavar="N", help="The new number of partitions.")
    ],
    execute: Execute = False,
    as_json: Json = False,
) -> None:
    """Give a topic more partitions, after showing which keys move and which groups are behind."""
    with at.connection() as cluster:
        with closing(Browser(cluster, topic)) as browser:
            count = len(browser.partitions)
            if to <= count:
                raise Failure(f"Topic {topic} has {count} partitions: it can only get more.")
            page = browser.backwards(
                browser.ends(browser.partitions),
                want=KEYS_LOOKED_AT,
                accepts=lambda seen: seen.is_data and seen.record.key is not None,
            )
        keys = [seen.record.key for seen in page.found if seen.record.key is not None]
        plan = growth(keys, partitions=count, wanted=to)
        behind = _groups_behind(cluster, topic)
        if execute:
            Topics(cluster).grow(topic, partitions=to)
    if as_json:
        output.answer_json(
            {
                "topic": topic,
                "partitions": count,
                "to": to,
                "executed": execute,
                "keys": plan.keys,
                "moving": plan.moving,
                "behind": behind,
            }
        )
        return
    tell_growth(plan, behind)
    if execute:
        output.say(f"Topic {topic} has {to} partitions.")
    else:
        output.note("A dry run: nothing was changed. Add --execute to do it.")


def _groups_behind(cluster: ClientSettings, topic: str) -> dict[str, int]:
    """The first groups, with their lag in this topic."""
    groups = Groups(cluster)
    looked = look_at(cluster, groups, groups.all(), most=MOST_GROUPS, topic=topic)
    unknown = sum(each.lag is None for each in looked.groups)
    if unknown:
        output.note(f"The lag of {output.count(unknown, 'group')} is not known.")
    found = {each.group: each.lag.lag for each in looked.groups if each.lag is not None}
    return {group: lag for group, lag in found.items() if lag}


# ---- a wider topic


@app.command()
@cluster_options
def widen(
    at: At,
    topic: Topic,
    group: Group,
    times: Annotated[
        int, typer.Option(min=2, max=1000, help="As many partitions as the topic has, times this.")
    ] = 10,
    few_left: Annotated[
        int, typer.Option(min=0, help="Stop forwarding when this many records are left.")
    ] = FEW_LEFT,
    abort: Annotated[
        bool, typer.Option("--abort", help="Return to the source topic now; nothing is lost.")
    ] = False,
    by: By = None,
    execute: Execute = False,
    as_json: Json = False,
) -> None:
    """Drain a group's backlog through a wider topic, then hand the group back.

    It runs until that is done. If it is stopped or killed, run the same command again.
    """
    with at.connection() as cluster:
        widening = Widening(cluster, few_left=few_left)
        plan = widening.plan(topic, group, times)
        if not execute:
            _show_widening(plan, as_json=as_json)
            return
        if plan.entry is None:
            tell_apart(plan)
        if abort:
            targets = widening.abort(plan, by=by or whoever())
            if as_json:
                output.answer_json({"topic": topic, "group": group, "aborted": True, "to": targets})
            else:
                output.say(f"Group {group} continues in {topic}, without {plan.wide_topic}.")
            return
        progress = WidenProgress(plan)
        status: WidenStatus | None = None
        try:
            for status in widening.run(plan, by=by or whoever()):
                progress.show(status)
        except KeyboardInterrupt:
            progress.end()
            output.note(
                "Stopped. Run the same command to continue, or --abort --execute to go back."
            )
            raise
    progress.end()
    assert status is not None
    if as_json:
        output.answer_json(
            {
                "topic": topic,
                "group": group,
                "forwarded": status.forwarded,
                "deleted": status.deleted,
            }
        )
        return
    if status.deleted:
        output.note(
            f"{output.count(status.deleted, 'offset')} of {topic} were deleted (retention) before "
            "they were forwarded."
        )
    output.say(
        f"{output.count(status.forwarded, 'record')} went through {plan.wide_topic}; group "
        f"{group} continues in {topic}."
    )


def _show_widening(plan: WidenPlan, *, as_json: bool) -> None:
    if as_json:
        output.answer_json(plan)
        return
    rows: list[tuple[output.Cell, ...]] = [
        (p, first, end, end - first) for p, (first, end) in plan.spans.items()
    ]
    output.table(("partition", "from", "to", "offsets"), rows)
    begun = "goes on" if plan.entry is not None else "would go"
    output.note(
        f"The backlog of {plan.group} {begun} through {plan.wide_topic} with "
        f"{plan.wide_partitions} partitions instead of {plan.partitions}."
    )
    if plan.is_lost:
        output.note(f"{plan.wide_topic} was deleted: only --abort --execute is left.")
    tell_apart(plan)
    output.note("A dry run: nothing was changed. Add --execute to do it.")


# ---- a database in between


@app.command()
@cluster_options
def park(
    at: At,
    topic: Topic,
    group: Group,
    to: Store,
    reason: Reason = "",
    by: By = None,
    execute: Execute = False,
    as_json: Json = False,
) -> None:
    """Put a group's backlog into a database or a folder, and let the group continue after it.

    While the group reads, the backlog is copied; then its members must stop for a moment. Killed
    half-way, the same command does the rest.
    """
    with at.connection() as cluster:
        parking = Parking(cluster)
        plan = parking.plan(topic, group)
        parked = 0
        if execute:
            with needed_packages():
                parked = follow_parking(
                    parking.park(plan, to, by=by or whoever(), reason=reason), plan
                )
    for partition in plan.left_alone:
        output.note(f"{topic}-{partition} is left alone: {group} has committed nothing there yet.")
    if as_json:
        output.answer_json(
            {
                "topic": topic,
                "group": group,
                "executed": execute,
                "parked": parked,
                "left_alone": plan.left_alone,
                "partitions": [
                    {"partition": p, "from": first, "to": end, "offsets": end - first}
                    for p, (first, end) in plan.spans.items()
                ],
            }
        )
        return
    if execute:
        output.say(f"{output.count(parked, 'record')} parked; {group} continues after them.")
        back = f"headrace backlog bring-back {quote(topic)} --group {quote(group)}"
        output.note(
            f"{back} --from ... sends them to it again, from where they are parked now; headrace "
            f"replay undo {quote(group)} --execute puts its offsets back instead."
        )
        return
    rows: list[tuple[output.Cell, ...]] = [
        (p, first, end, end - first) for p, (first, end) in plan.spans.items()
    ]
    output.table(("partition", "from", "to", "offsets"), rows)
    output.note(f"At most {output.count(plan.most, 'record')} would be parked.")
    if plan.members:
        output.note(
            f"Group {group} is active. It can read while the backlog is copied; then its "
            f"{output.count(plan.members, 'member')} must stop for a moment."
        )
    output.note("A dry run: nothing was changed. Add --execute to do it.")


@app.command("bring-back")
@cluster_options
def bring_back(
    at: At,
    topic: Topic,
    group: Group,
    from_: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="URL|FOLDER",
            envvar="HEADRACE_DATABASE_URL",
            help="Where they are parked.",
        ),
    ],
    key: Annotated[str | None, typer.Option(help="Only records with this key.")] = None,
    header: Annotated[
        list[str], typer.Option("--header", metavar="NAME=VALUE", help="Only with this header.")
    ] = [],
    where: Annotated[
        str | None,
        typer.Option(metavar="EXPRESSION", help="Only records that match this expression."),
    ] = None,
    rate: Annotated[float | None, typer.Option(min=0.001, help="Records per second.")] = None,
    by: By = None,
    execute: Execute = False,
    as_json: Json = False,
) -> None:
    """Send parked records to the app's group only, each once."""
    wanted = Selection(
        key=None if key is None else key.encode(),
        headers=key_values(header, option="--header"),
        where=where,
    )
    with at.connection() as cluster:
        parking = Parking(cluster)
        try:
            with needed_packages():
                store, plan = parking.bring_back_plan(
                    topic, group, from_, wanted, by=by or whoever()
                )
        except FilterRefused as refused:
            raise typer.BadParameter(f"{refused}.", param_hint="--where") from None
        if execute:
            pace = Pace(finite(rate, "--rate"))
            report_copy(parking.bring_back(store, plan, group, pace), as_json=as_json)
            return
        spans = store.spans()
        given_up = sum(not run.moved for run in store.runs())
    if as_json:
        output.answer_json({"topic": topic, "group": group, "executed": False, "parked": spans})
        return
    rows: list[tuple[output.Cell, ...]] = [
        (each.partition, each.first, each.last, each.rows, each.waiting) for each in spans
    ]
    output.table(("partition", "first", "last", "parked", "not yet brought back"), rows)
    if given_up:
        output.note(
            f"{output.count(given_up, 'parking')} there ended before the group was moved, or was "
            "undone: the group reads those records in the topic."
        )
    output.note("A dry run: nothing was changed. Add --execute to do it.")


@app.command()
@cluster_options
def expire(
    at: At,
    topic: Topic,
    group: Group,
    older_than: Annotated[
        str, typer.Option("--older-than", metavar="TIME", help="Such as 1h or 2d.")
    ],
    by: By = None,
    execute: Execute = False,
    as_json: Json = False,
) -> None:
    """Turn old records into dead letters of the group, and continue after them."""
    from headrace.services.backlog.expiry import Expiry

    older_than_ms = reset_targets.duration_ms(older_than, option="--older-than")
    with at.connection() as cluster:
        expiry = Expiry(cluster)
        plan = expiry.plan(
            topic, group, older_than_ms=older_than_ms, now_ms=int(time.time() * 1000)
        )
        if execute:
            if plan.park.most == 0:
                raise Failure(f"Group {group} is not that far behind in {topic}.")
            report_copy(expiry.expire(plan, by=by or whoever()), as_json=as_json)
            return
    if as_json:
        output.answer_json({"topic": topic, "group": group, "executed": False, "park": plan.park})
        return
    rows: list[tuple[output.Cell, ...]] = [
        (p, first, end, end - first) for p, (first, end) in plan.park.spans.items()
    ]
    output.table(("partition", "from", "to", "offsets"), rows)
    output.note(f"At most {output.count(plan.park.most, 'record')} would become dead letters.")
    output.note("A dry run: nothing was changed. Add --execute to do it.")
