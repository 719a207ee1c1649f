"""The topics of a cluster for people: their own, each with its companions. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from headrace.client.admin.topics import TopicSummary
from headrace.wire.contract.companions import OF_SERVICES, with_companions


@dataclass(slots=True)
class TopicGroups:
    own: list[TopicSummary]
    companions: dict[str, list[str]]  # the ends of their names, for each of `own`
    services: int  # topics that Headrace's services keep for themselves


def grouped(topics: Iterable[TopicSummary], *, internal: bool = False) -> TopicGroups:
    """People's own topics, in their order. Internal topics of the cluster are left out unless
    `internal` is set; topics of services always are."""
    asked = [each for each in topics if internal or not each.internal]
    others = [each for each in asked if not each.name.startswith(OF_SERVICES)]
    beside = with_companions(each.name for each in others)
    own = [each for each in others if each.name in beside]
    return TopicGroups(own, beside, len(asked) - len(others))
