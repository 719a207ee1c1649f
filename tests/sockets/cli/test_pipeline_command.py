"""`headrace pipeline run` as far as it needs no Spark."""

from __future__ import annotations

from pathlib import Path

from tests.sockets.cli.conftest import CommandLine


def test_options_that_do_not_go_together_are_told_before_spark_is_started(
    headrace: CommandLine, tmp_path: Path
) -> None:
    def told(*words: str) -> str:
        return headrace.failure("pipeline", "run", "page-views", "--data", str(tmp_path), *words)

    assert "--history runs once anyway" in told("--history", "..", "--once")
    assert "--into goes with --history" in told("--into", "elsewhere")
    assert "--every is for a stream" in told("--every", "1s", "--once")
    assert "--every is for a stream" in told("--every", "1s", "--history", "..")
    assert "'soon' is not a duration" in told("--every", "soon")
    assert not list(tmp_path.iterdir())
