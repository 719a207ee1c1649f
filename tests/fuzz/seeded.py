"""Fuzzing without guidance, the same in each run: for tests, and where atheris is not at hand.

    python -m tests.fuzz.seeded --minutes 3 --variant guarded --seed 7

Goes through requests invented by their definitions, hostile ones, damaged captures and changed
logins. Ends with the first failure, and says which seed and number it was.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from random import Random
from time import monotonic

from headrace.node.serving.route import Route
from tests.fuzz.hostile import hostile_input
from tests.fuzz.inventing import invented_input
from tests.fuzz.logins import login_seeds, plain_login
from tests.fuzz.seeds import captured
from tests.fuzz.target import Target, unframed
from tests.fuzz.variants import BEFORE_LOGIN, BY_NAME, VARIANTS, Variant, flags_of

LARGEST_INPUT = 60_000


def damaged(seed: bytes, chance: Random) -> bytes:
    """Bits flipped, bytes that mean large numbers, pieces cut out or doubled."""
    data = bytearray(seed)
    for _ in range(chance.randrange(1, 4)):
        at = chance.randrange(1, len(data))
        match chance.randrange(5):
            case 0:
                data[at] ^= 1 << chance.randrange(8)
            case 1:
                data[at : at + 4] = b"\x7f\xff\xff\xff"
            case 2:
                data[at] = 0xFF
            case 3:
                if len(data) > 10:
                    del data[at : at + chance.randrange(1, 8)]
            case _:
                data[at:at] = data[at : at + chance.randrange(1, 32)]
    return bytes(data)


def inputs(routes: list[Route], variant: Variant, seed: int) -> Iterator[bytes]:
    """Without end, for one variant."""
    chance = Random(seed)
    flags = flags_of(variant)
    dialogues = list(login_seeds())
    frames = [unframed([frame], routes, flags) for frame in captured()]
    frames = [frame for frame in frames if len(frame) > 1]
    login = unframed(plain_login(), routes, flags)
    while True:
        number = chance.randrange(1 << 40)
        if variant.is_login:
            edits = chance.randbytes(5 * chance.randrange(4))
            yield bytes([flags]) + chance.choice(dialogues) + edits
            continue
        data = bytes([flags])
        match chance.randrange(4):
            case 0:
                data = invented_input(routes, number, LARGEST_INPUT, flags)
            case 1 | 2:
                data = hostile_input(routes, number, LARGEST_INPUT, flags)
            case _:
                data = damaged(chance.choice(frames), chance)
        if variant is BEFORE_LOGIN and chance.random() < 0.5:
            data = login + data[1:]  # and after one
        yield data


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--minutes", type=float, default=1)
    arguments.add_argument("--variant", choices=BY_NAME, help="only under these circumstances")
    arguments.add_argument("--seed", type=int, default=1)
    given = arguments.parse_args()
    target = Target()
    variants = VARIANTS if given.variant is None else (BY_NAME[given.variant],)
    sources = [inputs(target.routes(), variant, given.seed) for variant in variants]
    ends = monotonic() + 60 * given.minutes
    number = 0
    while monotonic() < ends:
        for variant, source in zip(variants, sources, strict=True):
            data = next(source)
            try:
                target.run(data)
            except Exception:
                sys.stderr.write(f"{variant.name}, seed {given.seed}, number {number}: {data!r}\n")
                raise
        number += 1
    sys.stderr.write(target.summary() + "\n")


if __name__ == "__main__":
    main()
