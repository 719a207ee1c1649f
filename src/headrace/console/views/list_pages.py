"""Pages of a list: which one is shown, and the links to its neighbours. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Paging:
    page: int  # from 0
    size: int
    total: int

    @property
    def first(self) -> int:
        """Number of the first row that is shown, counted from 1."""
        return min(self.page * self.size + 1, self.total)

    @property
    def last(self) -> int:
        return min((self.page + 1) * self.size, self.total)

    @property
    def previous(self) -> int | None:
        return self.page - 1 if self.page > 0 else None

    @property
    def next(self) -> int | None:
        return self.page + 1 if self.last < self.total else None
