"""Stories for a dispatcher: in which ways to subscribe, and what may happen next."""

from __future__ import annotations

import random
from typing import Any

from headrace.app.decoding import Undecodable
from headrace.app.retry import TryLater
from tests.unit.app.a_group_of_one import World

WAYS: dict[str, dict[str, Any]] = {
    "keys": {"order_by": "key"},
    "keys, no dead letters": {"order_by": "key", "dead_letters": False},
    "partitions": {"order_by": "partition"},
    "no order": {"order_by": None},
    "no order, delays": {"order_by": None, "delayed": True},
    "batches of partitions": {"order_by": "partition", "batch": 3},
    "batches that wait": {"order_by": None, "batch": 3, "batch_wait_ms": 1_000, "delayed": True},
    "exactly once": {"order_by": "partition", "exactly_once": True},
    "exactly once, no order": {"order_by": None, "exactly_once": True, "delayed": True},
}
# How often each step comes, beside the others.
STEPS = {
    "nothing": 1,  # the first: a story that fails is made simpler by it
    "send": 6, "poll": 8, "poll retries": 8, "take": 14, "step": 24, "step all": 6,
    "write": 6, "write in vain": 2, "transaction": 8, "transaction in vain": 2, "commit": 4,
    "wake": 6, "wait a little": 3, "wait long": 2, "close": 1, "lose": 2, "crash": 2,
}  # fmt: skip
KEYS = [b"a", b"a", b"b", None]
WAITS_MS = [1, 499, 500, 1_000]
ERRORS: list[BaseException | None] = [
    None, None, None, OSError("not yet"), OSError("not yet"), KeyError("never"),
    Undecodable("what is this"), TryLater(after="1s"), TryLater(after="1h"), TryLater(after="1m"),
]  # fmt: skip

Step = tuple[str, int, int]  # what happens, to which of those that there are, how an attempt ends
NAMES = [name for name, often in STEPS.items() for _ in range(often)]
MOST_OF_ANY = 12


def tell(story: list[Step], world: World) -> None:
    """To its end, where nothing fails any more; raises AssertionError where the model objects."""
    for name, which, how in story:
        one_step(world, name, which, ERRORS[how])
        world.check()
    for number, owned in list(world.owned.items()):
        if owned.closing:
            world.lose(number)
    world.finish()


def some_story(chance: random.Random) -> list[Step]:
    return [
        (chance.choice(NAMES), chance.randrange(MOST_OF_ANY), chance.randrange(len(ERRORS)))
        for _ in range(chance.randrange(20, 150))
    ]


def one_step(world: World, name: str, which: int, error: BaseException | None) -> None:
    number = which % len(world.partitions)
    match name:
        case "send":
            partition = world.partitions[number]
            for at in range(1 + which % 4):
                world.send(partition, KEYS[(which + at) % len(KEYS)])
            partition.source.end += which % 2  # a hole, as compaction leaves it
        case "poll":
            world.poll(number)
        case "poll retries":
            world.deliver()
            world.poll_retries(number)
        case "take":
            world.take()
        case "step" if world.slots:
            world.step(world.slots[which % len(world.slots)], error)
        case "step all":
            for slot in list(world.slots):
                world.step(slot, error)
        case "write" | "write in vain" if world.writes:
            write = world.writes[which % len(world.writes)]
            world.end_write(write, safe=name == "write")
        case "transaction" | "transaction in vain":
            world.transaction(commits=name == "transaction")
        case "commit":
            world.commit()
        case "wake":
            wake_ms = world.dispatcher.next_wake_ms() or world.now_ms
            world.pass_ms(max(0, wake_ms - world.now_ms))
        case "wait a little":
            world.pass_ms(WAITS_MS[which % len(WAITS_MS)])
        case "wait long":
            world.pass_ms(60_000)
        case "close":  # the group is about to take it away; `lose` follows some time
            world.dispatcher.close(world.owned[number])
        case "lose":
            world.lose(number)
        case "crash":
            world.crash()
