"""`headrace brokers`: which brokers a cluster has, their settings, its features; changing those."""

from __future__ import annotations

from typing import Annotated

import typer

from headrace.cli import output
from headrace.cli.failure import Failure
from headrace.cli.options.cluster_options import At, Json, cluster_options
from headrace.cli.options.key_values import key_values
from headrace.cli.options.setting_names import require_known
from headrace.client.admin.cluster import BrokerSetting, Cluster, ClusterDescription
from headrace.client.admin.features import Feature, Features
from headrace.client.errors import ClientError

app = typer.Typer(
    help="List brokers, show and change their settings.",
    no_args_is_help=True,
    add_completion=False,
    **output.LOOK,
)

# Kafka tells these only of brokers for which they are set.
THROTTLES = (
    "leader.replication.throttled.rate",
    "follower.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
)
# Kafka's words for who set a value, in words for a table.
SOURCES = {
    "STATIC_BROKER_CONFIG": "start",
    "DYNAMIC_BROKER_CONFIG": "this broker",
    "DYNAMIC_DEFAULT_BROKER_CONFIG": "all brokers",
    "DEFAULT_CONFIG": "default",
}


@app.command("list")
@cluster_options
def list_brokers(
    at: At,
    as_json: Json = False,
) -> None:
    """List the brokers of the cluster, with the space on their disks."""
    with at.connection() as cluster:
        about = Cluster(cluster)
        found = about.describe()
        controller = _active_controller(about, found)
        used, free = _space(about)
    if as_json:
        brokers = [
            {
                "id": broker.id,
                "host": broker.host,
                "port": broker.port,
                "rack": broker.rack,
                "controller": broker.id == controller,
                "used_bytes": used.get(broker.id),
                "free_bytes": free.get(broker.id),
            }
            for broker in found.brokers
        ]
        output.answer_json({"cluster": found.id, "brokers": brokers})
        return
    output.say(f"cluster {found.id}")
    rows: list[tuple[output.Cell, ...]] = [
        (
            broker.id,
            f"{broker.host}:{broker.port}",
            broker.rack,
            "yes" if broker.id == controller else None,
            _size(used.get(broker.id)),
            _size(free.get(broker.id)),
        )
        for broker in found.brokers
    ]
    output.table(("broker", "address", "rack", "controller", "used", "free"), rows)


def _active_controller(about: Cluster, found: ClusterDescription) -> int | None:
    """The quorum's leader under KRaft: DescribeCluster names any broker, as in Apache Kafka."""
    try:
        return about.quorum().leader
    except ClientError:
        return found.controller


def _space(about: Cluster) -> tuple[dict[int, int], dict[int, int]]:
    """Bytes of partitions and bytes that are free, by broker; empty if this user may not ask."""
    used: dict[int, int] = {}
    free: dict[int, int] = {}
    try:
        folders = about.log_folders()
    except ClientError:
        return used, free
    for folder in folders:
        used[folder.broker] = used.get(folder.broker, 0) + sum(folder.sizes.values())
        if folder.usable_bytes is not None:
            free[folder.broker] = free.get(folder.broker, 0) + folder.usable_bytes
    return used, free


def _size(amount: int | None) -> str | None:
    return None if amount is None else output.size(amount)


@app.command()
@cluster_options
def describe(
    at: At,
    broker: Annotated[
        int | None,
        typer.Argument(metavar="[BROKER]", help="Its id (default: the first).", show_default=False),
    ] = None,
    all_settings: Annotated[
        bool, typer.Option("--all", help="Also the settings with their defaults.")
    ] = False,
    match: Annotated[
        str | None,
        typer.Option("--match", metavar="TEXT", help="Only settings whose names contain this."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show a broker's settings: those that were set, and with --all or --match the others."""
    with at.connection() as cluster:
        about = Cluster(cluster)
        chosen = _chosen(about, broker)
        found = about.settings(chosen)
    shown = {
        name: setting
        for name, setting in found.items()
        if (all_settings or match or as_json or setting.source != "DEFAULT_CONFIG")
        and (match is None or match in name)
    }
    if as_json:
        output.answer_json({"broker": chosen, "settings": shown})
        return
    output.say(f"broker {chosen}: {output.count(len(found), 'setting')}, {len(shown):,} shown")
    rows = [
        (name, _value(s), SOURCES.get(s.source, s.source), _how(s)) for name, s in shown.items()
    ]
    output.table(("setting", "value", "set by", "changes"), rows)
    if not all_settings and match is None:
        output.note("These were set. --all shows every setting, --match TEXT some.")


def _chosen(about: Cluster, broker: int | None) -> int:
    known = [each.id for each in about.describe().brokers]
    if broker is None:
        return known[0]
    if broker not in known:
        there = ", ".join(map(str, known))
        raise Failure(f"There is no broker {broker}; there are {there}.")
    return broker


def _value(setting: BrokerSetting) -> str | None:
    return "(secret)" if setting.secret else setting.value


def _how(setting: BrokerSetting) -> str:
    return "by a restart" if setting.read_only else "at once"


@app.command()
@cluster_options
def alter(
    at: At,
    broker: Annotated[
        int | None,
        typer.Argument(metavar="[BROKER]", help="Its id (default: all).", show_default=False),
    ] = None,
    config: Annotated[
        list[str],
        typer.Option("--config", metavar="KEY=VALUE", help="A setting. Repeat for more."),
    ] = [],
    unset: Annotated[
        list[str],
        typer.Option("--unset", metavar="KEY", help="Reset to the default. Repeat for more."),
    ] = [],
    as_json: Json = False,
) -> None:
    """Change settings of one broker or of all while they run; they are kept over a restart."""
    if not config and not unset:
        raise typer.BadParameter("Name a change: --config or --unset.")
    settings = key_values(config, option="--config")
    with at.connection() as cluster:
        about = Cluster(cluster)
        chosen = None if broker is None else _chosen(about, broker)
        known = about.settings(_chosen(about, broker))
        # A cluster stores any name that a client sends for its brokers, and never says a word.
        require_known(settings, {*known, *THROTTLES})
        about.change_settings(chosen, to=settings, remove=unset)
    if as_json:
        output.answer_json({"broker": chosen, "set": settings, "unset": unset})
        return
    whose = "all brokers" if chosen is None else f"broker {chosen}"
    output.say(f"Changed {whose}.")


@app.command()
@cluster_options
def features(
    at: At,
    change: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME=LEVEL]...", help="Give these features a level.", show_default=False
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show the feature levels of the cluster, or change some: share.version=0 lowers it."""
    wanted = {
        name: _level(name, text)
        for name, text in key_values(change or [], option="NAME=LEVEL").items()
    }
    with at.connection() as cluster:
        known = Features(cluster)
        if wanted:
            known.change(wanted)
        found = known.all()
    if as_json:
        output.answer_json(found)
        return
    rows = [(one.name, one.level, f"{one.lowest}-{one.highest}", _promise(one)) for one in found]
    output.table(("feature", "level", "understood", "served"), rows)


def _level(name: str, text: str) -> int:
    if not text.isdecimal():
        raise typer.BadParameter(f"The level of {name} is a number from 0 on, not {text!r}.")
    return int(text)


def _promise(feature: Feature) -> str:
    if feature.served:
        return "yes"
    return "no, though it says so" if feature.level else "no"
