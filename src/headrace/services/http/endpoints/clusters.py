"""v3's clusters, topics and partitions: read, create, delete."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from headrace.client.admin.topics import PartitionDescription, TopicDescription, TopicSummary
from headrace.services.http.dialects import v3
from headrace.services.http.dialects.v2 import is_name
from headrace.services.http.exchange import Exchange, answer, nothing
from headrace.services.http.refusal import Refusal, bad_payload, partition_not_found
from headrace.services.http.writes.own_topic import refuse_own_topic
from headrace.services.http.writes.writes import read_json, require_known, require_object

MOST_PARTITIONS, MOST_REPLICAS = 100_000, 10_000  # librdkafka asks for no more
NEW_TOPIC = frozenset(
    {"topic_name", "partitions_count", "replication_factor", "configs", "validate_only"}
)


async def clusters(exchange: Exchange) -> web.StreamResponse:
    found = await _cluster(exchange, await exchange.user.cluster_id())
    return answer(v3.collection("KafkaClusterList", exchange.door.base, "/v3/clusters", [found]))


async def cluster(exchange: Exchange) -> web.StreamResponse:
    return answer(await _cluster(exchange, await require_cluster(exchange)))


async def _cluster(exchange: Exchange, cluster_id: str) -> dict[str, Any]:
    base, path = exchange.door.base, f"/v3/clusters/{cluster_id}"
    return v3.resource(
        "KafkaCluster",
        base,
        path,
        f"crn:///kafka={cluster_id}",
        cluster_id=cluster_id,
        topics={"related": f"{base}{path}/topics"},
    )


async def topics(exchange: Exchange) -> web.StreamResponse:
    cluster_id = await require_cluster(exchange)
    found = await exchange.user.ask_topics(lambda topics: topics.all())
    path = f"/v3/clusters/{cluster_id}/topics"
    data = [_topic(exchange, cluster_id, each) for each in found]
    return answer(v3.collection("KafkaTopicList", exchange.door.base, path, data))


async def topic(exchange: Exchange) -> web.StreamResponse:
    cluster_id = await require_cluster(exchange)
    return answer(_topic(exchange, cluster_id, await _described(exchange)))


async def create_topic(exchange: Exchange) -> web.StreamResponse:
    cluster_id = await require_cluster(exchange)
    given = require_object(read_json(await exchange.body()), "The body")
    require_known(given, NEW_TOPIC, "The body")
    name = given.get("topic_name")
    partitions = given.get("partitions_count", -1)
    replication = given.get("replication_factor", -1)
    if not is_name(name):
        raise bad_payload("topic_name is a text.")
    refuse_own_topic(name)
    for what, count, most in (
        ("partitions_count", partitions, MOST_PARTITIONS),
        ("replication_factor", replication, MOST_REPLICAS),
    ):
        if type(count) is not int or not -1 <= count <= most:
            raise bad_payload(f"{what} is a number up to {most}; -1 takes the cluster's own.")
    if given.get("validate_only"):
        raise bad_payload("validate_only is not supported.")
    settings = _settings(given.get("configs") or [])
    await exchange.user.ask_topics(
        lambda topics: topics.create(
            name, partitions=partitions, replication=replication, settings=settings
        )
    )
    exchange.params["topic"] = name
    return answer(_topic(exchange, cluster_id, await _described(exchange)), status=201)


def _settings(given: Any) -> dict[str, str]:
    if not isinstance(given, list):
        raise bad_payload('configs are [{"name": ..., "value": ...}].')
    settings = {}
    for each in given:
        pair = require_object(each, "A config")
        name, value = pair.get("name"), pair.get("value")
        if not is_name(name) or not (is_name(value) or isinstance(value, int)):
            raise bad_payload("A config has a name and a value.")
        settings[name] = str(value).lower() if isinstance(value, bool) else str(value)
    return settings


async def delete_topic(exchange: Exchange) -> web.StreamResponse:
    await require_cluster(exchange)
    name = exchange.params["topic"]
    await exchange.user.ask_topics(lambda topics: topics.delete(name))
    return nothing()


async def partitions(exchange: Exchange) -> web.StreamResponse:
    cluster_id = await require_cluster(exchange)
    found = await _described(exchange)
    path = f"/v3/clusters/{cluster_id}/topics/{found.name}/partitions"
    data = [_partition(exchange, path, cluster_id, found.name, each) for each in found.partitions]
    return answer(v3.collection("KafkaPartitionList", exchange.door.base, path, data))


async def partition(exchange: Exchange) -> web.StreamResponse:
    cluster_id = await require_cluster(exchange)
    wanted = exchange.partition()
    found = await _described(exchange)
    path = f"/v3/clusters/{cluster_id}/topics/{found.name}/partitions"
    for each in found.partitions:
        if each.partition == wanted:
            return answer(_partition(exchange, path, cluster_id, found.name, each))
    raise partition_not_found()


async def require_cluster(exchange: Exchange) -> str:
    """Returns the id in the path, if it is this cluster's."""
    asked, ours = exchange.params["cluster_id"], await exchange.user.cluster_id()
    if asked != ours:
        raise Refusal(404, f"This server serves the cluster {ours} only.")
    return ours


async def _described(exchange: Exchange) -> TopicDescription:
    name = exchange.params["topic"]
    [found] = await exchange.user.ask_topics(lambda topics: topics.layouts([name]))
    return found


def _topic(
    exchange: Exchange, cluster_id: str, found: TopicSummary | TopicDescription
) -> dict[str, Any]:
    base, path = exchange.door.base, f"/v3/clusters/{cluster_id}/topics/{found.name}"
    count = found.partitions if isinstance(found, TopicSummary) else len(found.partitions)
    return v3.resource(
        "KafkaTopic",
        base,
        path,
        f"crn:///kafka={cluster_id}/topic={found.name}",
        cluster_id=cluster_id,
        topic_name=found.name,
        is_internal=found.internal,
        replication_factor=found.replication,
        partitions_count=count,
        partitions={"related": f"{base}{path}/partitions"},
    )


def _partition(
    exchange: Exchange, path: str, cluster_id: str, topic: str, found: PartitionDescription
) -> dict[str, Any]:
    base, here = exchange.door.base, f"{path}/{found.partition}"
    return v3.resource(
        "KafkaPartition",
        base,
        here,
        f"crn:///kafka={cluster_id}/topic={topic}/partition={found.partition}",
        cluster_id=cluster_id,
        topic_name=topic,
        partition_id=found.partition,
        leader_id=found.leader,
        replica_ids=found.replicas,
        in_sync_replica_ids=found.isr,
    )


ENDPOINTS = {
    "clusters3": clusters,
    "cluster3": cluster,
    "topics3": topics,
    "create_topic3": create_topic,
    "topic3": topic,
    "delete_topic3": delete_topic,
    "partitions3": partitions,
    "partition3": partition,
}
