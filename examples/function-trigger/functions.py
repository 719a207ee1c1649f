"""Functions that records call; named in triggers.toml and nowhere else."""

from __future__ import annotations

import json
import os

from headrace import Producer
from headrace.app.triggers.cloud_events import Event

MOST = 1000

producer = Producer(os.environ.get("HEADRACE_BOOTSTRAP", "localhost:9092"))


def shrink(events: list[Event]) -> list[str]:
    """Scale pictures down; returns the ids of those that could not be."""
    failed = []
    for event in events:
        picture = json.loads(event.data or b"{}")
        longest = max(picture["width"], picture["height"])
        if picture.get("broken"):
            failed.append(event.id)
            continue
        small = {
            "name": picture["name"],
            "width": picture["width"] * MOST // longest,
            "height": picture["height"] * MOST // longest,
        }
        producer.send("pictures.small", json.dumps(small), key=event.subject)
    producer.flush(10)
    return failed
