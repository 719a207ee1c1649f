"""An app described as AsyncAPI 3: its topics, inputs, outputs, and the schema of values.

The document is made from the handlers' type hints, so it cannot be older than the code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import headrace
from headrace.app.decoding import described, without_none

if TYPE_CHECKING:
    from headrace.app.app import App
    from headrace.app.subscription import Subscription


def document(app: App, *, title: str | None = None) -> dict[str, Any]:
    channels: dict[str, Any] = {}
    operations: dict[str, Any] = {}
    for subscription in app.subscriptions:
        for topic in subscription.topics:
            channels.setdefault(_id(topic), _channel(topic))["messages"][_id(subscription.name)] = (
                _message(subscription)
            )
            operations[f"receive-{_id(topic)}"] = _receive(topic, subscription)
        if subscription.publish is not None:
            topic = subscription.publish
            channels.setdefault(_id(topic), _channel(topic))
            operations[f"send-{_id(topic)}"] = {
                "action": "send",
                "channel": {"$ref": f"#/channels/{_id(topic)}"},
                "summary": f"What {subscription.name} gives back.",
            }
    return {
        "asyncapi": "3.0.0",
        "info": {"title": title or app.group, "version": headrace.__version__},
        "defaultContentType": "application/json",
        "servers": {
            "cluster": {"host": app.connection.bootstrap.partition(",")[0], "protocol": "kafka"}
        },
        "channels": channels,
        "operations": operations,
    }


def _channel(topic: str) -> dict[str, Any]:
    return {"address": topic, "messages": {}, "bindings": {"kafka": {"topic": topic}}}


def _receive(topic: str, subscription: Subscription) -> dict[str, Any]:
    handler = subscription.plan.handler
    operation: dict[str, Any] = {
        "action": "receive",
        "channel": {"$ref": f"#/channels/{_id(topic)}"},
        "summary": (handler.__doc__ or subscription.name).strip().partition("\n")[0],
        "x-headrace": {
            "attempts": subscription.retry.attempts,
            "order_by": subscription.order_by,
            "concurrency": subscription.concurrency,
            "dead_letters": subscription.dead_letters,
            "exactly_once": subscription.exactly_once,
            "once": type(subscription.once).__name__ if subscription.once is not None else None,
        },
    }
    return operation


def _message(subscription: Subscription) -> dict[str, Any]:
    hint = subscription.plan.value_hint
    return {"name": subscription.name, "payload": _schema(hint)}


def _schema(hint: Any) -> dict[str, Any]:
    if hint is None:
        return {}
    plain, _ = without_none(hint)
    if plain is bytes:
        return {"type": "string", "format": "binary"}
    if plain is str:
        return {"type": "string"}
    try:
        from pydantic import TypeAdapter

        schema = TypeAdapter(hint).json_schema()
    except Exception as problem:  # noqa: BLE001 - a type without a schema still has a name
        return {"description": f"{described(hint)} ({problem})"}
    return _inlined(schema)


def _inlined(schema: dict[str, Any]) -> dict[str, Any]:
    """Resolve references in place, so that each message is complete. A model that holds itself is
    cut."""
    definitions = schema.pop("$defs", {})

    def resolve(part: Any, inside: tuple[str, ...]) -> Any:
        if isinstance(part, list):
            return [resolve(each, inside) for each in part]
        if not isinstance(part, dict):
            return part
        if "$ref" in part:
            name = part["$ref"].rpartition("/")[2]
            if name in inside or name not in definitions:
                return {"type": "object", "title": name}
            return resolve(definitions[name], (*inside, name))
        return {key: resolve(value, inside) for key, value in part.items()}

    resolved: dict[str, Any] = resolve(schema, ())
    return resolved


def _id(name: str) -> str:
    """Names of AsyncAPI's components: letters, digits, dots, dashes and underscores."""
    return "".join(
        each if each.isascii() and (each.isalnum() or each in "._-") else "-" for each in name
    )
