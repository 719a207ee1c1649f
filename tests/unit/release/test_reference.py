"""The API reference names every public name, and no name that does not exist."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path

import pytest

REFERENCE = Path(__file__).resolve().parents[3] / "docs" / "reference"
PARTS = ("app", "client", "logs", "outbox", "pipelines", "testing")


def named_on(page: str) -> list[str]:
    return re.findall(r"^::: (\S+)$", (REFERENCE / f"{page}.md").read_text("utf-8"), re.M)


@pytest.mark.parametrize("part", PARTS)
def test_a_page_documents_every_public_name_of_its_module_once(part: str) -> None:
    module = f"headrace.{part}"
    public = {f"{module}.{name}" for name in importlib.import_module(module).__all__}
    named = named_on(part)
    assert public - set(named) == set()
    assert len(named) == len(set(named))


@pytest.mark.parametrize("part", PARTS)
def test_what_a_page_documents_exists_and_has_a_docstring(part: str) -> None:
    for name in named_on(part):
        module, _, attribute = name.rpartition(".")
        found = getattr(importlib.import_module(module), attribute)
        assert inspect.getdoc(found), f"{name} has no docstring"


def test_the_first_page_leads_to_every_name_of_headrace() -> None:
    text = (REFERENCE / "index.md").read_text("utf-8")
    named = set(re.findall(r"^\| `headrace\.(\w+)` \|", text, re.M))
    assert named == set(importlib.import_module("headrace").__all__)
    pages = {part: named_on(part) for part in PARTS}
    for part, anchor in re.findall(r"\]\((\w+)\.md#(\S+)\)", text):
        assert anchor in pages[part]
