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
from headrace.operations.checkup.cluster import check_cluster
from headrace.operations.checkup.finding import Finding, FindingState
from headrace.operations.checkup.machine import check_machine
from headrace.operations.checkup.whole_cluster import check_named_topic, check_running_cluster

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
                findings += check_running_cluster(cluster)
        else:
            findings = check_named_topic(cluster, topic)
    if as_json:
        output.answer_json(findings)
    else:
        _tell(findings)
    if any(finding.state == FindingState.WRONG for finding in findings):
        raise typer.Exit(1)


def _tell(findings: list[Finding]) -> None:
    for finding in findings:
        mark, colour = f"{MARKS[finding.state]:<5}", COLOURS[finding.state]
        output.say(f"  {finding.about:<11}  {finding.found}", mark=mark, colour=colour)
        if finding.advice:
            output.say(f"{'':5}  {'':11}  -> {finding.advice}")
