"""Turns an app that does not run yet into its shadow, or says why it cannot be one."""

from __future__ import annotations

import re

from headrace.app.app import App
from headrace.app.shadow import Shadow

_NAME = re.compile(r"[A-Za-z0-9_-]{1,40}")


class ShadowRefused(ValueError):
    """A sentence with the reason why the app cannot run as a shadow."""


def cast_shadow(app: App, name: str) -> list[str]:
    """Turn an app that does not run yet into its shadow; returns the handlers that are left out.

    This changes the app itself, because handlers refer to it when they send.
    """
    if not _NAME.fullmatch(name):
        raise ShadowRefused(
            f"{name!r} is not a name for a shadow: use up to 40 letters, digits, - and _, such as "
            "monday."
        )
    left_out = [each.name for each in app.subscriptions if not each.replay_safe]
    safe = [each for each in app.subscriptions if each.replay_safe]
    if not safe:
        raise ShadowRefused(
            f"No handler is declared safe to replay, so {', '.join(left_out)} will not run: say "
            "@app.on(..., replay_safe=True) where running again does no harm."
        )
    shadow = Shadow(name, app.group, app.connection)
    for subscription in safe:
        subscription.shadow = shadow
        subscription.confirm = False
    app.subscriptions = safe
    app.group = shadow.group
    app.delay = "off"
    app.shadow = shadow
    return left_out
