"""The names that programs import: there, lazy, and the same for type checkers."""

from __future__ import annotations

import re
from pathlib import Path

import headrace
import headrace.client

OLDER_NAMES = {"Connection": "ClientSettings"}


def test_every_public_name_is_there_and_known_to_type_checkers() -> None:
    for module, names in (
        (headrace.client, headrace.client.PUBLIC),
        (headrace, headrace.CLIENT_NAMES + headrace.APP_NAMES + headrace.OUTBOX_NAMES),
    ):
        assert all(getattr(module, name).__name__ == OLDER_NAMES.get(name, name) for name in names)
        text = Path(module.__file__ or "").read_text("utf-8")
        assert set(re.findall(r"import (\w+) as \1$", text, re.M)) == set(names)
        assert set(names) <= set(dir(module))


def test_the_guides_name_every_public_name_and_import_no_other() -> None:
    pages = [*Path("docs/guide").glob("*.md"), Path("README.md")]
    text = "".join(page.read_text("utf-8") for page in pages)
    assert set(headrace.client.__all__) == set(headrace.client.PUBLIC)
    named = set(re.findall(r"\w+", text))
    assert set(headrace.client.__all__) - named == set()
    imported = re.findall(r"from headrace\.client import ([\w, ]+)", text)
    assert {name for line in imported for name in line.split(", ")} <= set(headrace.client.__all__)
