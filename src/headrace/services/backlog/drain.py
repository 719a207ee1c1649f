"""Lets an app read wide topics instead of the topics whose backlog is being widened.

The handlers stay as they are: a record of the wide topic has the place, time and message id that
it has in the source. The app's group stays the same too, so its once-keys do.
"""

from __future__ import annotations

from headrace.app.app import App
from headrace.services.backlog.widening import under_way


def drain(app: App) -> dict[str, str]:
    """Call before the app starts. Returns which wide topics replace which of its topics."""
    wide = under_way(app.connection, app.group)
    drained: dict[str, str] = {}
    for subscription in app.subscriptions:
        for topic in subscription.topics:
            if topic in wide:
                drained[topic] = wide[topic]
                subscription.drained[wide[topic]] = topic
        subscription.topics = tuple(wide.get(topic, topic) for topic in subscription.topics)
    if not drained:
        raise ValueError(
            f"Nothing is being widened for group {app.group}: begin with `headrace backlog widen`."
        )
    return drained
