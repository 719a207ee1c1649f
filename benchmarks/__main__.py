"""`python -m benchmarks [NAME ...]`: measure systems in turn and print rows with ratios."""

from __future__ import annotations

import argparse
import os
from datetime import date
from pathlib import Path

from rich.console import Console

from . import (
    acls,
    app_handlers,
    big_start,
    cluster_cores,
    cluster_of_three,
    cluster_partitions,
    compaction,
    connections_idle,
    delay_messages,
    end_to_end,
    fetch_throughput,
    group_balance,
    idle_groups,
    loop_stalls,
    offset_commits,
    one_record_requests,
    pipelines,
    pipelines_latency,
    pipelines_plain,
    pipelines_shipped,
    pipelines_state,
    produce_throughput,
    scram_logins,
    share_groups,
    start,
    tls_throughput,
    topics_many,
    transactions,
)
from .benchmark import Benchmark, Run
from .brokers import fresh_target
from .processes import describe_machine, raise_open_file_limit
from .results import TITLES, Report, rich_table

BENCHMARKS: dict[str, Benchmark] = {
    "produce_throughput": produce_throughput.BENCHMARK,
    "fetch_throughput": fetch_throughput.BENCHMARK,
    "one_record_requests": one_record_requests.BENCHMARK,
    "end_to_end": end_to_end.BENCHMARK,
    "start": start.BENCHMARK,
    "topics_many": topics_many.BENCHMARK,
    "connections_idle": connections_idle.BENCHMARK,
    "offset_commits": offset_commits.BENCHMARK,
    "transactions": transactions.BENCHMARK,
    "group_balance": group_balance.BENCHMARK,
    "idle_groups": idle_groups.BENCHMARK,
    "share_groups": share_groups.BENCHMARK,
    "loop_stalls": loop_stalls.BENCHMARK,
    "compaction": compaction.BENCHMARK,
    "big_start": big_start.BENCHMARK,
    "cluster_of_three": cluster_of_three.BENCHMARK,
    "cluster_partitions": cluster_partitions.BENCHMARK,
    "cluster_cores": cluster_cores.BENCHMARK,
    "delay_messages": delay_messages.BENCHMARK,
    "app_handlers": app_handlers.BENCHMARK,
    "pipelines": pipelines.BENCHMARK,
    "pipelines_latency": pipelines_latency.BENCHMARK,
    "pipelines_plain": pipelines_plain.BENCHMARK,
    "pipelines_shipped": pipelines_shipped.BENCHMARK,
    "pipelines_state": pipelines_state.BENCHMARK,
    "acls": acls.BENCHMARK,
    "tls_throughput": tls_throughput.BENCHMARK,
    "scram_logins": scram_logins.BENCHMARK,
}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BENCHMARKS))
    parser.add_argument("--rounds", type=int, help="rounds of each benchmark (default: its own)")
    parser.add_argument("--quick", action="store_true", help="small loads: does it work at all?")
    parser.add_argument(
        "--large",
        action="store_true",
        help="compaction of 1 GB, not 250 MB; 10,000 replicated partitions, not 1,000",
    )
    parser.add_argument("--only", choices=sorted(TITLES), help="one system alone")
    parser.add_argument("--pin", action="store_true", help="the client alone on core 0")
    parser.add_argument("--folder", type=Path, help="where data folders are made and removed")
    parser.add_argument("--json", type=Path, metavar="FILE", help="every sample")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="tables, between its marks")
    parser.add_argument(
        "--details", action="store_true", help="print what each sample was limited by"
    )
    given = parser.parse_args()
    for name in given.names:
        if name not in BENCHMARKS:
            parser.error(f"no benchmark {name}; there are {', '.join(BENCHMARKS)}")
    if given.pin and (os.cpu_count() or 1) < 2:
        parser.error("--pin needs two cores")
    return given


def measure(
    benchmark: Benchmark, given: argparse.Namespace, report: Report, console: Console
) -> None:
    """All rounds of one benchmark; fills its rows."""
    broker_cores = set(range(1, os.cpu_count() or 1)) if given.pin else set()
    for number in range(given.rounds or benchmark.rounds):
        # The order changes each round, so that a drift of the machine favours neither.
        order = benchmark.systems if number % 2 == 0 else benchmark.systems[::-1]
        for name in (name for name in order if given.only in (None, name)):
            with (
                console.status(f"{benchmark.title}: round {number + 1}, {name}"),
                fresh_target(name, given.folder, broker_cores) as target,
            ):
                samples = benchmark.measure(
                    Run(target, given.quick, report.details, report.warnings, given.large)
                )
            for row in benchmark.rows:
                row.samples.setdefault(name, []).extend(samples[row.key])


def main() -> None:
    given = arguments()
    console = Console()
    raise_open_file_limit()
    if given.pin:
        os.sched_setaffinity(0, {0})
    settings = {
        "loads": "quick" if given.quick else "full",
        "cores": "client alone on core 0" if given.pin else "shared freely",
    }
    report = Report(describe_machine(), date.today().isoformat(), settings)
    for name in given.names or BENCHMARKS:
        benchmark = BENCHMARKS[name]
        seen = len(report.details)
        measure(benchmark, given, report, console)
        report.sections[benchmark.title] = list(benchmark.rows)
        console.print(rich_table(benchmark.title, list(benchmark.rows)))
        for detail in report.details[seen:] if given.details else ():
            console.print(f"  {detail}", highlight=False)
    for warning in report.warnings:
        console.print(f"[yellow]not quiet:[/] {warning}", highlight=False)
    if given.json:
        report.write_json(given.json)
    if given.markdown:
        report.write_markdown(given.markdown)


if __name__ == "__main__":
    main()
