"""What `headrace start` shows when the node is ready."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from headrace.cli.node.start import panel, welcome


def test_the_panel_is_a_box_on_a_wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = welcome("localhost:9092", "/data")
    assert "address  localhost:9092" in lines
    assert sum("greetings" in line for line in lines) == 3
    monkeypatch.setenv("COLUMNS", "100")
    framed = panel(lines, framed=True).splitlines()
    assert len({len(line) for line in framed}) == 1
    assert framed[0][0] == "╭"
    monkeypatch.setenv("COLUMNS", "20")
    assert panel(lines, framed=True) == panel(lines, framed=False) == "\n".join(lines)


def test_commands_to_try_name_the_address_unless_it_is_the_usual_one() -> None:
    assert not any(" -b " in line for line in welcome("localhost:9092", "/d")[:8])
    assert any("consume greetings --follow -b h:1" in line for line in welcome("h:1", "/d"))


@pytest.mark.parametrize(
    ("called", "shown"),
    [
        ("{here}/.venv/bin/headrace", ".venv/bin/headrace"),
        ("/opt/head race/bin/headrace", "'/opt/head race/bin/headrace'"),
        ("/opt/site-packages/headrace/__main__.py", f"{sys.executable} -m headrace"),
    ],
)
def test_commands_to_try_are_called_as_this_one_was_if_it_is_not_on_the_path(
    called: str, shown: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "argv", [called.format(here=tmp_path), "start"])
    assert any(f"| {shown} produce greetings" in line for line in welcome("h:1", "/d"))
