"""An address is not made a folder of that name here."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from headrace.cli.main import app
from headrace.cli.options.local_folder import local_folder
from headrace.pipelines.failure import PipelineError
from headrace.pipelines.stream.folder import Folder, known

ADDRESSES = ["s3a://bucket/x", "gs://bucket", "hdfs://host:8020/x", "file:///x", "S3:/one-slash"]


@pytest.mark.parametrize("address", ADDRESSES)
def test_addresses_are_refused(address: str) -> None:
    with pytest.raises(typer.BadParameter, match="is an address"):
        local_folder(address)
    with pytest.raises(typer.BadParameter, match="is an address"):
        local_folder(Path(address))
    for opened in (lambda: Folder(Path(address), "p"), lambda: known(Path(address))):
        with pytest.raises(PipelineError, match="is an address.*give a path"):
            opened()


@pytest.mark.parametrize("path", ["/data/x", "x", "./x:y", "a b/c", "C:/x", "x/s3a:/y", "2026:/x"])
def test_paths_are_not(path: str) -> None:
    assert local_folder(path) == Path(path)


@pytest.mark.parametrize(
    "words",
    [
        ["pipeline", "run", "page-views"],
        ["pipeline", "list"],
        ["pipeline", "status", "p"],
        ["pipeline", "stop", "p"],
        ["pipeline", "reset", "p", "--yes"],
        ["pipeline", "report", "p", "--html", "x.html"],
        ["lake", "fill", "t"],
        ["lake", "compact", "t"],
        ["lake", "versions", "t"],
        ["lake", "show", "t"],
        ["logs", "search", "x", "--table", "t"],
        ["start"],
        ["format"],
        ["doctor"],
    ],
)
def test_each_command_that_takes_a_folder(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, [*words, "--data", "s3a://bucket/x"])
    assert done.exit_code == 2
    assert "s3a://bucket/x is an address" in " ".join(done.output.replace("│", " ").split())
    assert list(tmp_path.iterdir()) == []


def test_so_does_each_folder_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HEADRACE_PIPELINES", "s3a://bucket/x")
    assert CliRunner().invoke(app, ["pipeline", "list"]).exit_code == 2
    assert CliRunner().invoke(app, ["console", "--pipelines", "s3a://bucket/x"]).exit_code == 2
