"""Amounts in words for people: 1 topic, 2 topics, 1.5 KiB."""

from __future__ import annotations


def count(number: int, noun: str) -> str:
    """'1 topic', '2 topics'."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def size(number_of_bytes: int) -> str:
    """A size for people: 999 B, 1.5 KiB, 20 GiB."""
    amount = float(number_of_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.3g} {unit}" if unit != "B" else f"{number_of_bytes} B"
        amount /= 1024
    return f"{amount:,.1f} TiB"
