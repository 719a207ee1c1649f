"""Where commands listen: one reading of HOST:PORT for all of them."""

from __future__ import annotations

import pytest
import typer
from typer.testing import CliRunner

from headrace.cli.main import app
from headrace.cli.options.listen_address import address_of, under_older_name


@pytest.mark.parametrize(
    ("said", "host", "port"),
    [
        ("localhost:8080", "localhost", 8080),
        ("[::1]:0", "::1", 0),
        ("0.0.0.0:65535", "0.0.0.0", 65535),
    ],
)
def test_an_address(said: str, host: str, port: int) -> None:
    assert address_of(said, "--listen", "localhost:8080") == (host, port)


@pytest.mark.parametrize(
    "said", ["8080", ":8080", "host", "host:", "host:x", "h:65536", "h:-1", "h:²"]
)
def test_what_is_no_address_is_wrong_use(said: str) -> None:
    with pytest.raises(typer.BadParameter, match="is not HOST:PORT, such as localhost:8080"):
        address_of(said, "--listen", "localhost:8080")


def test_an_option_is_taken_by_its_older_name_with_a_note(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert under_older_name("here:1", None, "--window", "--metrics") == "here:1"
    assert capsys.readouterr().err == ""
    assert under_older_name(None, "there:2", "--window", "--metrics") == "there:2"
    said = "--window is called --metrics now; the older name still works.\n"
    assert capsys.readouterr().err == said


@pytest.mark.parametrize("command", [("app", "run"), ("track", "serve"), ("delay", "serve")])
def test_older_names_of_options_are_not_shown(command: tuple[str, str]) -> None:
    said = CliRunner().invoke(app, [*command, "--help"], env={"COLUMNS": "200"}).output
    assert "--window" not in said and "--admin" not in said
    assert "--listen" in said or "--metrics" in said
