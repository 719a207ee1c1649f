"""Ids that senders chose: what looks alike is not skipped as handled before."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import create_engine

from headrace import App
from headrace.app import Sql

pytestmark = pytest.mark.integration

ID = "headrace-message-id"
# Texts and bytes that are different ids, though they look alike somewhere on the way.
ALIKE: tuple[str | bytes, ...] = (
    *("7", "7 ", " 7", "07", "7\n", "7\0", "\u00e9", "e\u0301", "\ufffd", "x" * 600, "x" * 601),
    *(b"\x80", b"\x81", b"\xff\xfe", b"\xff\xff", "\\x80", "headrace: topic ids since", "NULL"),
)


def test_ids_that_look_alike_and_those_of_other_topics_are_handled(
    cluster: Any, tmp_path: Any
) -> None:
    engine = create_engine(f"sqlite:///{tmp_path / 'shop.db'}")
    app = App(cluster.bootstrap, group="g")
    seen: list[str] = []

    @app.on("orders", once=Sql(engine))
    def order(value: str) -> None:
        seen.append(f"order {value}")

    @app.on("refunds", once=Sql(engine))
    def refund(value: str) -> None:
        seen.append(f"refund {value}")

    for topic in ("orders", "refunds"):
        cluster.topic(topic)
    wanted = []
    with app.running():
        for topic, kind in (("orders", "order"), ("refunds", "refund")):
            for number, id in enumerate(ALIKE):
                app.send(topic, f"{number}", headers={ID: id})
                wanted.append(f"{kind} {number}")
            for number, id in enumerate(("", None, "", None)):  # they name nothing
                app.send(topic, f"without {number}", headers={ID: id})
                wanted.append(f"{kind} without {number}")
        cluster.until(lambda: len(seen) == len(wanted), "some were skipped as handled before")
        assert sorted(seen) == sorted(wanted)
        for id in ALIKE:
            app.send("orders", "again", headers={ID: id})
        duplicates = app.subscriptions[0].stats
        cluster.until(lambda: duplicates.duplicates == len(ALIKE), "the same again was handled")
    engine.dispose()
