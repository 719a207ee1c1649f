"""`headrace cluster status --watch` goes on while the cluster is away."""

from __future__ import annotations

import time

import pytest

from headrace.cli.cluster import cluster as command
from headrace.cli.failure import Failure
from headrace.cli.options.cluster_options import At
from headrace.client.admin.cluster_status import ClusterStatus
from headrace.client.connection import ClientSettings
from headrace.client.errors import ClientError
from headrace.client.records import TopicPartition


def watch(monkeypatch: pytest.MonkeyPatch, *answers: ClusterStatus | Exception | None) -> None:
    """Until Ctrl-C, which is None."""
    coming = iter(answers)

    def read_status(connection: ClientSettings) -> ClusterStatus:
        answer = next(coming)
        if answer is None:
            raise KeyboardInterrupt
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(command, "read_status", read_status)
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    command.status.__wrapped__(At(), watch=1.0, as_json=False)  # type: ignore[attr-defined]


def test_a_watched_cluster_may_be_away_for_a_while(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    status = ClusterStatus("c", [], 1, 1, 1, [1, 2, 3], [], 1)
    status.single_replica = [TopicPartition("t", 0)]
    with pytest.raises(KeyboardInterrupt):
        watch(monkeypatch, status, ClientError("The broker did not answer."), status, None)
    said = capsys.readouterr()
    assert said.err.startswith("The broker did not answer.")
    assert said.out.count("1 partition has one replica: t-0") == 2


def test_a_cluster_that_never_answered_is_not_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Failure, match="No broker answers"):
        watch(monkeypatch, ClientError("No broker answers."))
