"""What somebody meant who mistyped a name."""

from __future__ import annotations

import pytest

from headrace.near_names import close_to, did_you_mean, nearly

OPTIONS = ("--partitions", "--replication", "--config", "--from", "--format", "--follow", "--json")


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("--partition", ["--partitions"]),
        ("--PARTITIONS", ["--partitions"]),
        ("--from-beginning", ["--from"]),
        ("--frm", ["--from", "--format"]),
        ("--confg", ["--config"]),
        ("--keys", []),
        ("--", []),
    ],
)
def test_the_nearest_come_first(word: str, meant: list[str]) -> None:
    assert close_to(word, OPTIONS)[: len(meant) or 1] == meant


def test_words_from_elsewhere_are_known() -> None:
    assert did_you_mean("rm", ["list", "delete"], {"rm": ("delete",)}) == " Did you mean delete?"
    assert did_you_mean("f", ["from", "format"]) == ""
    assert did_you_mean("frmat", ["from", "format", "x"]) == " Did you mean format or from?"


def test_a_slip_is_nearer_than_another_release() -> None:
    known = ["controller.listener.names", "min.insync.replicas"]
    assert nearly("min.insync.replica", known) == "min.insync.replicas"
    assert nearly("control.plane.listener.name", known) is None
