"""`headrace topics`: list, describe, create, alter and delete topics of any Kafka cluster."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Annotated

import typer

from headrace.cli import output
from headrace.cli.failure import Failure
from headrace.cli.options.cluster_options import At, Json, cluster_options
from headrace.cli.options.completion import topic_names
from headrace.cli.options.key_values import key_values
from headrace.cli.options.setting_names import explained_settings, require_known
from headrace.client.admin import topics as client
from headrace.client.admin.placement.log_folders import Sizes, sizes_by_partition
from headrace.client.admin.placement.replicas import PartitionReplicas, Replicas
from headrace.client.delay.delayed_topics import DelayedTopics
from headrace.client.errors import ClientError
from headrace.client.records import TopicPartition
from headrace.operations.topics import TopicGroups, grouped
from headrace.wire.contract.companions import with_companions

app = typer.Typer(
    help="List, describe, create, alter and delete topics.",
    no_args_is_help=True,
    add_completion=False,
    **output.LOOK,
)

New = Annotated[str, typer.Argument(metavar="NAME", help="The topic.", show_default=False)]
Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME", help="The topic.", show_default=False, autocompletion=topic_names
    ),
]
Names = Annotated[
    list[str],
    typer.Argument(
        metavar="NAME...", help="The topics.", show_default=False, autocompletion=topic_names
    ),
]
Config = Annotated[
    list[str],
    typer.Option("--config", metavar="KEY=VALUE", help="A topic setting. Repeat for more."),
]


ByPlace = Mapping[TopicPartition, PartitionReplicas]


@app.command("list")
@cluster_options
def list_topics(
    at: At,
    everything: Annotated[
        bool, typer.Option("--all", "-a", help="Every topic on a separate line.")
    ] = False,
    internal: Annotated[
        bool, typer.Option("--internal", help="Show the cluster's own topics too.")
    ] = False,
    as_json: Json = False,
) -> None:
    """List the topics of the cluster.

    Topics of delayed messages, retries and dead letters are shown beside the topic that they belong
    to; with --all, and with --json, each is shown by itself.
    """
    with at.connection() as cluster:
        topics = client.Topics(cluster).all()
    found = [t for t in topics if internal or everything or not t.internal]
    if as_json:
        output.answer_json(found)
    elif not found:
        output.note("There are no topics. Make one with `headrace topics create NAME`.")
    elif everything:
        rows = [(t.name, t.partitions, t.replication) for t in found]
        output.table(("topic", "partitions", "replication"), rows)
    else:
        _list_grouped(grouped(found, internal=internal))


def _list_grouped(found: TopicGroups) -> None:
    rows: list[tuple[output.Cell, ...]] = [
        (t.name, t.partitions, t.replication, " ".join(found.companions[t.name]) or None)
        for t in found.own
    ]
    if any(found.companions.values()):
        output.table(("topic", "partitions", "replication", "companions"), rows)
    else:
        output.table(("topic", "partitions", "replication"), [row[:3] for row in rows])
    if found.services:
        services = output.count(found.services, "topic")
        output.note(f"Headrace's services keep {services} of their own: --all shows them.")


@app.command()
@cluster_options
def describe(
    at: At,
    names: Names,
    as_json: Json = False,
) -> None:
    """Show partitions, leaders, offsets, sizes and settings of topics."""
    with at.connection() as cluster:
        topics = client.Topics(cluster)
        found = topics.describe(names)
        places = {topic.name: [p.partition for p in topic.partitions] for topic in found}
        sizes = sizes_by_partition(cluster, topics.broker_addresses(), places)
        replicas = {each.place: each for each in Replicas(cluster).of(names)}
    if as_json:
        output.answer_json([_as_object(topic, sizes, replicas) for topic in found])
        return
    for topic in found:
        _show(topic, sizes, replicas)


def _as_object(
    topic: client.TopicDescription, sizes: Sizes, replicas: ByPlace
) -> dict[str, object]:
    return {
        "name": topic.name,
        "id": topic.id,
        "internal": topic.internal,
        "replication": topic.replication,
        "partitions": [
            {
                "partition": p.partition,
                "leader": p.leader,
                "replicas": p.replicas,
                "isr": p.isr,
                "elr": _replicas_of(replicas, topic, p).eligible,
                "offline": _replicas_of(replicas, topic, p).offline,
                "start_offset": p.start_offset,
                "end_offset": p.end_offset,
                "size_bytes": sizes.get((topic.name, p.partition)),
            }
            for p in topic.partitions
        ],
        "settings": topic.settings,
    }


def _replicas_of(
    replicas: ByPlace, topic: client.TopicDescription, partition: client.PartitionDescription
) -> PartitionReplicas:
    place = TopicPartition(topic.name, partition.partition)
    return replicas.get(place) or PartitionReplicas(place, None, [], [])


def _show(topic: client.TopicDescription, sizes: Sizes, replicas: ByPlace) -> None:
    partitions = output.count(len(topic.partitions), "partition")
    output.say(f"{topic.name}: {partitions}, replication {topic.replication}, id {topic.id}")
    own = topic.own_settings()
    if own:
        output.say("set for this topic: " + ", ".join(f"{k}={v}" for k, v in own.items()))
    for name, meaning in (
        ("headrace.damaged.offsets", "damaged on the disk (partition:first-last)"),
        ("headrace.cut.offsets", "cut by the last start (partition:first+bytes)"),
    ):
        if name in topic.settings:
            output.say(f"{meaning}: {topic.settings[name].value}")
    offline = [
        f"{p.partition}:{','.join(map(str, found))}"
        for p in topic.partitions
        if (found := _replicas_of(replicas, topic, p).offline)
    ]
    if offline:
        output.say(f"offline replicas (partition:brokers): {' '.join(offline)}")
    rows: list[tuple[output.Cell, ...]] = []
    for p in topic.partitions:
        on_disk = sizes.get((topic.name, p.partition))
        rows.append(
            (
                p.partition,
                p.leader,
                ",".join(map(str, p.replicas)),
                ",".join(map(str, p.isr)),
                ",".join(map(str, _replicas_of(replicas, topic, p).eligible)),
                p.start_offset,
                p.end_offset,
                None if on_disk is None else output.size(on_disk),
            )
        )
    before, after = ("partition", "leader", "replicas", "in sync"), ("first offset", "end offset")
    if any(row[4] for row in rows):
        output.table((*before, "eligible", *after, "size"), rows)
    else:  # nobody but the in-sync replicas could lead
        output.table((*before, *after, "size"), [(*row[:4], *row[5:]) for row in rows])


@app.command()
@cluster_options
def create(
    at: At,
    name: New,
    partitions: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="How many (default: the cluster decides)."),
    ] = None,
    replication: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Copies (default: the cluster decides)."),
    ] = None,
    config: Config = [],
    delayed: Annotated[
        bool, typer.Option("--delayed", help="Let it take delayed messages (headrace delay).")
    ] = False,
    if_missing: Annotated[
        bool, typer.Option("--if-missing", help="Accept a topic that exists already.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Create a topic."""
    settings = key_values(config, option="--config")
    with at.connection() as cluster:
        topics = client.Topics(cluster)
        is_new = not (if_missing and name in topics.cluster.topics)
        if is_new:
            with explained_settings(settings):
                is_new = _created(
                    topics,
                    name,
                    or_there=if_missing,
                    partitions=partitions or client.BROKER_DECIDES,
                    replication=replication or client.BROKER_DECIDES,
                    settings=settings,
                )
        if delayed:
            DelayedTopics(cluster).enable(name, is_new=is_new)
    said = f"Created topic {name}." if is_new else f"Topic {name} exists already."
    fact: dict[str, object] = {"topic": name, "created": is_new}
    if delayed:
        said += f" It takes delayed messages: headrace produce {name} --delay 10s"
        fact["delayed"] = True
    _tell(as_json, fact, said)


def _created(
    topics: client.Topics,
    name: str,
    *,
    or_there: bool,
    partitions: int,
    replication: int,
    settings: Mapping[str, str],
) -> bool:
    """False if somebody else was quicker, and that is well."""
    try:
        topics.create(name, partitions=partitions, replication=replication, settings=settings)
    except ClientError as refusal:
        if or_there and refusal.code == "TOPIC_ALREADY_EXISTS":
            return False
        raise
    return True


@app.command()
@cluster_options
def alter(
    at: At,
    name: Name,
    partitions: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Grow to this many partitions.")
    ] = None,
    config: Config = [],
    unset: Annotated[
        list[str],
        typer.Option("--unset", metavar="KEY", help="Back to the default. Repeat for more."),
    ] = [],
    as_json: Json = False,
) -> None:
    """Change a topic's settings, or give it more partitions."""
    if partitions is None and not config and not unset:
        raise typer.BadParameter("Name a change: --partitions, --config or --unset.")
    settings = key_values(config, option="--config")
    with at.connection() as cluster:
        topics = client.Topics(cluster)
        if settings or unset:
            known = topics.settings_of(name)
            require_known(settings, known)
            require_known(unset, known)
            topics.change_settings(name, to=settings, remove=unset)
        if partitions is not None:
            topics.grow(name, partitions=partitions)
    changed = {"topic": name, "partitions": partitions, "set": settings, "unset": unset}
    _tell(as_json, changed, f"Changed topic {name}.")


@app.command()
@cluster_options
def delete(
    at: At,
    names: Names,
    companions: Annotated[
        bool,
        typer.Option(
            "--with-companions",
            help="Delete what `topics list` shows beside them too: delayed messages, retries, "
            "dead letters.",
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask first.")] = False,
    as_json: Json = False,
) -> None:
    """Delete topics with all their records. On a terminal it asks first."""
    with at.connection() as cluster:
        topics = client.Topics(cluster)
        if companions:
            beside = with_companions(topic.name for topic in topics.all())
            every = [name + end for name in names for end in ("", *beside.get(name, ()))]
            names = list(dict.fromkeys(every))
        asks = not yes and sys.stdin.isatty() and sys.stdout.isatty()
        if asks and not output.confirmed(f"Delete {', '.join(names)} with all records?"):
            raise Failure("Nothing was deleted.")
        left = [each for name in names for each in topics.delete(name) if each not in names]
    _tell(as_json, {"deleted": names, "companions_left": left}, f"Deleted {', '.join(names)}.")
    if left:
        output.note(
            f"Delayed messages are left in {', '.join(left)}: they go to a new topic of that name. "
            f"Delete them with `headrace topics delete {' '.join(left)}`."
        )


@app.command()
@cluster_options
def empty(
    at: At,
    name: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.", show_default=False)],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask first.")] = False,
    as_json: Json = False,
) -> None:
    """Delete all records of a topic; it stays, with its settings and its groups."""
    with at.connection() as cluster:
        topics = client.Topics(cluster)
        asks = not yes and sys.stdin.isatty() and sys.stdout.isatty()
        if asks and not output.confirmed(f"Delete all records of {name}?"):
            raise Failure("Nothing was deleted.")
        count = topics.empty(name)
    _tell(
        as_json,
        {"topic": name, "offsets": count},
        f"{name} is empty: {count:,} offsets were deleted.",
    )


def _tell(as_json: bool, fact: Mapping[str, object], sentence: str) -> None:
    if as_json:
        output.answer_json(fact)
    else:
        output.say(sentence)
