"""`headrace doctor`: looks at the machine, at the cluster if one answers, and at a topic's safety.

Says what it found and what to do, and ends with 1 if something is wrong.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headrace.cli import output
from headrace.cli.options.cluster_options import (
    At,
    Bootstrap,
    ClientConfig,
    Json,
    MoreSettings,
    Timeout,
)
from headrace.cli.options.local_folder import local_folder
from headrace.client.admin.acls import AclFilter, Acls
from headrace.client.admin.cluster import Cluster
from headrace.client.admin.cluster_status import read_status
from headrace.client.admin.features import Features
from headrace.client.admin.topics import Topics
from headrace.client.connection import ClientSettings
from headrace.client.errors import ClientError
from headrace.operations.checkup.cluster import check_cluster
from headrace.operations.checkup.features import check_features
from headrace.operations.checkup.finding import Finding, FindingState, watch
from headrace.operations.checkup.machine import check_machine
from headrace.operations.checkup.replication import check_replication
from headrace.operations.checkup.rights import check_delayed_writes
from headrace.operations.checkup.topic import check_topic

app = typer.Typer(add_completion=False, **output.LOOK)

DEFAULT_DATA = Path("headrace-data")
MARKS = {FindingState.GOOD: "ok", FindingState.WATCH: "watch", FindingState.WRONG: "WRONG"}
COLOURS = {FindingState.GOOD: "green", FindingState.WATCH: "yellow", FindingState.WRONG: "red"}


@app.command()
def doctor(
    topic: Annotated[
        str | None,
        typer.Option(
            help="Check whether this topic can lose acknowledged records.", show_default=False
        ),
    ] = None,
    data: Annotated[
        Path, typer.Option(metavar="DIR", parser=local_folder, help="The node's data folder.")
    ] = DEFAULT_DATA,
    as_json: Json = False,
    bootstrap: Bootstrap = None,
    x: MoreSettings = [],
    client_config: ClientConfig = None,
    timeout: Timeout = 5.0,
) -> None:
    """Check this machine, a cluster, or a topic's safety, and say what to do."""
    with At(bootstrap, x, client_config, timeout).connection() as cluster:
        if topic is None:
            named = bootstrap is not None or client_config is not None
            reached = check_cluster(cluster, expected=named)
            findings = [*check_machine(data), reached]
            if reached.about == "cluster" and reached.state == FindingState.GOOD:
                findings += check_features(Features(cluster).all())
                findings += _look_at_replication(cluster)
                findings += _look_at_rights(cluster)
        else:
            findings = _look_at(topic, cluster)
    if as_json:
        output.answer_json(findings)
    else:
        _tell(findings)
    if any(finding.state == FindingState.WRONG for finding in findings):
        raise typer.Exit(1)


def _look_at_replication(cluster: ClientSettings) -> list[Finding]:
    """Nothing, where there is one broker."""
    try:
        status = read_status(cluster)
        brokers = [node.id for node in status.nodes if "broker" in node.roles and not node.fenced]
        settings = Cluster(cluster).settings(brokers[0])
    except ClientError as refusal:
        return [watch("replicas", f"not looked at: {refusal}", "Ask as a user who may see them.")]
    return check_replication(status, {name: found.value for name, found in settings.items()})


def _look_at_rights(cluster: ClientSettings) -> list[Finding]:
    """Nothing, where everybody may do everything."""
    try:
        entries = Acls(cluster).find(AclFilter(resource_type="topic"))
    except ClientError as refusal:
        if refusal.code in ("SECURITY_DISABLED", None):
            return []
        return [watch("rights", f"not looked at: {refusal}", "Ask as a user who may see them.")]
    return check_delayed_writes((topic.name for topic in Topics(cluster).all()), entries)


def _look_at(topic: str, cluster: ClientSettings) -> list[Finding]:
    topics = Topics(cluster)
    [described] = topics.describe([topic])
    return check_topic(
        described,
        brokers=len(topics.cluster.brokers),
        durability=topics.broker_setting("headrace.durability"),
    )


def _tell(findings: list[Finding]) -> None:
    for finding in findings:
        mark, colour = f"{MARKS[finding.state]:<5}", COLOURS[finding.state]
        output.say(f"  {finding.about:<11}  {finding.found}", mark=mark, colour=colour)
        if finding.advice:
            output.say(f"{'':5}  {'':11}  -> {finding.advice}")
