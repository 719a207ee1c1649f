"""The OpenAPI document of the HTTP API, drawn from the table of routes. Pure."""

from __future__ import annotations

from typing import Any

from headrace.services.http.dialects import cloud_events, ndjson, v2
from headrace.services.http.routes import ROUTES, Route

ERROR = {"$ref": "#/components/schemas/Error"}
ANY: dict[str, Any] = {}
RECORD: dict[str, Any] = {
    "type": "object",
    "properties": {
        "key": {},
        "value": {},
        "partition": {"type": "integer"},
        "headers": {"description": "A list of names and values, or an object."},
        "timestamp": {"description": "Milliseconds since 1970, or a moment with its zone."},
        "delay": {"type": "string", "examples": ["30m"]},
        "deliver_at": {"description": "Milliseconds since 1970, or a moment with its zone."},
        "id": {"type": "string", "description": "Replaces, and is cancelled by."},
        "cron": {"type": "string", "examples": ["0 9 * * 1-5"]},
        "cron_zone": {"type": "string", "examples": ["Europe/Berlin"]},
    },
}
RECORDS = {"type": "object", "properties": {"records": {"type": "array", "items": RECORD}}}
IDS = {
    "type": "object",
    "required": ["ids"],
    "properties": {"ids": {"type": "array", "items": {"type": "string"}, "maxItems": 1000}},
}
ACQUIRE = {
    "type": "object",
    "required": ["topics"],
    "properties": {
        "topics": {"type": "array", "items": {"type": "string"}},
        "max_records": {"type": "integer", "minimum": 1, "maximum": 1000, "default": 1},
        "timeout_ms": {"type": "integer", "default": 1000},
        "start_from": {"enum": ["earliest", "latest"], "default": "earliest"},
    },
}
BODIES: dict[str, dict[str, Any]] = {
    "produce": {
        v2.KIND_JSON: RECORDS,
        v2.KIND_BINARY: RECORDS,
        ndjson.KINDS[0]: RECORD,
        cloud_events.STRUCTURED: ANY,
        cloud_events.BATCH: {"type": "array"},
        "text/plain": {"type": "string"},
        "application/octet-stream": {"type": "string", "format": "binary"},
    },
    "records3": {"application/json": ANY},
    "create_topic3": {"application/json": ANY},
    "create_instance": {v2.KIND: ANY},
    "subscribe": {v2.KIND: ANY},
    "assign": {v2.KIND: ANY},
    "seek": {v2.KIND: ANY},
    "seek_beginning": {v2.KIND: ANY},
    "seek_end": {v2.KIND: ANY},
    "commit": {v2.KIND: ANY},
    "acquire": {"application/json": ACQUIRE},
    **{each: {"application/json": IDS} for each in ("accept", "release", "reject", "renew")},
}
KEYED = ("produce", "records3")


def document(version: str) -> dict[str, Any]:
    paths: dict[str, dict[str, Any]] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Headrace's HTTP API",
            "version": version,
            "description": "Send to and receive from a Kafka cluster over HTTP.",
        },
        "paths": paths,
        "components": {
            "schemas": {
                "Error": {
                    "type": "object",
                    "required": ["error_code", "message"],
                    "properties": {
                        "error_code": {"type": "integer"},
                        "message": {"type": "string"},
                    },
                }
            },
            "securitySchemes": {
                "basic": {"type": "http", "scheme": "basic"},
                "bearer": {"type": "http", "scheme": "bearer"},
            },
        },
        "security": [{}, {"basic": []}, {"bearer": []}],
    }


def _operation(route: Route) -> dict[str, Any]:
    named = [part[1:-1] for part in route.path.split("/") if part.startswith("{")]
    parameters: list[dict[str, Any]] = [_parameter(name, "path", True) for name in named]
    parameters += [_parameter(name, "query", False) for name in route.query]
    if route.endpoint in KEYED:
        parameters.append(_parameter("Idempotency-Key", "header", False))
    operation: dict[str, Any] = {
        "operationId": f"{route.endpoint}_{route.method.lower()}_{len(named)}",
        "summary": route.summary,
        "tags": [route.tag],
        "responses": {
            "2XX": {"description": "Done."},
            "default": {
                "description": "Refused, with a sentence.",
                "content": {v2.KIND: {"schema": ERROR}},
            },
        },
    }
    if parameters:
        operation["parameters"] = parameters
    if route.endpoint in BODIES and route.method == "POST":
        kinds = {kind: {"schema": schema} for kind, schema in BODIES[route.endpoint].items()}
        operation["requestBody"] = {"required": True, "content": kinds}
    if route.is_open:
        operation["security"] = [{}]
    return operation


def _parameter(name: str, where: str, required: bool) -> dict[str, Any]:
    return {"name": name, "in": where, "required": required, "schema": {"type": "string"}}
