"""The overview: one line of health, and numbers that leave nothing out."""

from __future__ import annotations

from headrace.client.admin.cluster import BrokerNode, ClusterDescription
from headrace.console.access.overview import OverviewFacts, TopicCounts
from headrace.console.access.parts import Part
from headrace.console.views.overview import MOST_DEAD, OverviewPage, overview_page
from headrace.operations.group_lags import Looked


def page(*, under_replicated: int = 0, dead: dict[str, int] | None = None) -> OverviewPage:
    cluster = ClusterDescription("id", 1, [BrokerNode(1, "localhost", 9092)])
    topics = TopicCounts(2, 6, under_replicated, 0, dead or {}, 0)
    return overview_page(
        OverviewFacts(Part(cluster), Part(topics), Part(([], Looked([], 0))), Part(None))
    )


def test_a_healthy_cluster_has_one_line() -> None:
    assert page().health == (
        "1 broker up, 0 under-replicated partitions, 0 partitions without a leader, "
        "0 groups behind, 0 dead letters"
    )
    assert page().is_healthy
    assert not page(under_replicated=3).is_healthy


def test_dead_letters_of_all_topics_are_counted_though_few_topics_are_listed() -> None:
    found = page(dead={f"orders.{number}.dead": 1 for number in range(MOST_DEAD + 4)})
    assert (found.letters, len(found.dead)) == (MOST_DEAD + 4, MOST_DEAD)
