"""Numbers and names that are drawn from a node's source of chance."""

from __future__ import annotations

from collections.abc import Callable


def unique_digits(randomness: Callable[[int], bytes]) -> str:
    """32 of them, hexadecimal."""
    return randomness(16).hex()


def fraction(randomness: Callable[[int], bytes]) -> float:
    """Returns a random number from 0 to 1."""
    return int.from_bytes(randomness(4), "big") / (1 << 32)
