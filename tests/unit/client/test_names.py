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
