"""Requests and responses of public documentation, as a script that any Kafka cluster must pass.

v2: Confluent's "REST Proxy API Reference", section "API v2" (docs.confluent.io/platform/current/
kafka-rest/api.html; the reStructuredText of it is in public repositories). v3: the examples of
`api/v3/openapi.yaml` in github.com/confluentinc/kafka-rest, commit 985d0e05. Records of a
partition: Redpanda's HTTP Proxy (docs.redpanda.com/api/doc/http-proxy). Names of topics and groups,
bodies and status codes are theirs; offsets and partitions are those of a new cluster.
"""

from __future__ import annotations

import json
from typing import Any

from headrace.client.admin.topics import Topics
from headrace.client.connection import connection
from tests.sockets.services.http.served import Answer, Served

V2 = "application/vnd.kafka.v2+json"
JSON2 = "application/vnd.kafka.json.v2+json"
BINARY2 = "application/vnd.kafka.binary.v2+json"
BINARY_RECORDS = {
    "records": [
        {"key": "a2V5", "value": "Y29uZmx1ZW50"},
        {"value": "a2Fma2E=", "partition": 1},
        {"value": "bG9ncw=="},
    ]
}
JSON_RECORDS = {
    "records": [
        {"key": "somekey", "value": {"foo": "bar"}},
        {"value": ["foo", "bar"], "partition": 1},
        {"value": 53.5},
    ]
}
TWO_PLACES = {"partitions": [{"topic": "test", "partition": 0}, {"topic": "test", "partition": 1}]}
OFFSETS = {
    "offsets": [
        {"topic": "test", "partition": 0, "offset": 20},
        {"topic": "test", "partition": 1, "offset": 30},
    ]
}
INSTANCE = "/consumers/testgroup/instances/my_consumer"


def make_topics(bootstrap: str) -> None:
    topics = Topics(connection(bootstrap=bootstrap))
    for name, partitions in (("test", 2), ("test1", 1), ("test2", 1), ("topic-1", 2)):
        topics.create(name, partitions=partitions)


def no_content(answer: Answer) -> None:
    assert (answer.status, answer.body) == (204, b""), answer


def topics_v2(served: Served) -> None:
    names = served.ask("GET", "/topics", headers={"Accept": V2})
    assert names.headers["Content-Type"] == V2
    assert {"test", "test1", "test2"} <= set(names.json())
    topic = served.ask("GET", "/topics/test").json()
    assert topic["name"] == "test" and topic["configs"]["cleanup.policy"] == "delete"
    first = topic["partitions"][0]
    leader = first["leader"]
    assert first["replicas"] == [{"broker": leader, "leader": True, "in_sync": True}]
    assert served.ask("GET", "/topics/test/partitions").json() == topic["partitions"]
    assert served.ask("GET", "/topics/test/partitions/1").json()["partition"] == 1
    assert served.ask("GET", "/brokers").json() == {"brokers": [leader]}
    missing = served.ask("GET", "/topics/nobody-made-it")
    assert missing.status == 404
    assert missing.json() == {"error_code": 40401, "message": "Topic not found."}
    no_partition = served.ask("GET", "/topics/test/partitions/7")
    assert no_partition.json() == {"error_code": 40402, "message": "Partition not found."}


def produce_v2(served: Served) -> None:
    for kind, body in ((BINARY2, BINARY_RECORDS), (JSON2, JSON_RECORDS)):
        answer = served.ask("POST", "/topics/test", body, kind=kind, headers={"Accept": V2})
        assert answer.status == 200 and answer.headers["Content-Type"] == V2
        said = answer.json()
        assert said["key_schema_id"] is None and said["value_schema_id"] is None
        assert [each["error_code"] for each in said["offsets"]] == [None] * 3
        assert said["offsets"][1]["partition"] == 1
    one = {"records": [{"key": "a2V5", "value": "Y29uZmx1ZW50"}, {"value": "a2Fma2E="}]}
    answer = served.ask("POST", "/topics/test/partitions/1", one, kind=BINARY2)
    assert [each["partition"] for each in answer.json()["offsets"]] == [1, 1]
    avro = served.ask("POST", "/topics/test", {}, kind="application/vnd.kafka.avro.v2+json")
    assert avro.status == 422
    offsets = served.ask("GET", "/topics/test/partitions/1/offsets").json()
    assert offsets["beginning_offset"] == 0 and offsets["end_offset"] >= 4


def consumers_v2(served: Served) -> None:
    assert served.ask("POST", "/topics/test", BINARY_RECORDS, kind=BINARY2).status == 200
    new = {
        "name": "my_consumer",
        "format": "binary",
        "auto.offset.reset": "earliest",
        "auto.commit.enable": "false",
    }
    made = served.ask("POST", "/consumers/testgroup/", new, kind=V2).json()
    assert made == {"instance_id": "my_consumer", "base_uri": served.base + INSTANCE}
    again = served.ask("POST", "/consumers/testgroup/", new, kind=V2)
    assert (again.status, again.json()["error_code"]) == (409, 40902)
    no_content(
        served.ask("POST", f"{INSTANCE}/subscription", {"topics": ["test1", "test2"]}, kind=V2)
    )
    found = served.ask("GET", f"{INSTANCE}/subscription").json()
    assert found == {"topics": ["test1", "test2"]}
    both = served.ask("POST", f"{INSTANCE}/assignments", TWO_PLACES, kind=V2)
    assert (both.status, both.json()["error_code"]) == (409, 40903)
    no_content(served.ask("DELETE", f"{INSTANCE}/subscription"))
    no_content(served.ask("POST", f"{INSTANCE}/subscription", {"topic_pattern": "test.*"}, kind=V2))
    no_content(served.ask("DELETE", f"{INSTANCE}/subscription"))
    no_content(served.ask("POST", f"{INSTANCE}/assignments", TWO_PLACES, kind=V2))
    assert served.ask("GET", f"{INSTANCE}/assignments").json() == TWO_PLACES
    no_content(served.ask("POST", f"{INSTANCE}/positions", OFFSETS, kind=V2))
    no_content(served.ask("POST", f"{INSTANCE}/positions/end", TWO_PLACES, kind=V2))
    no_content(served.ask("POST", f"{INSTANCE}/positions/beginning", TWO_PLACES, kind=V2))
    records = read_all(served, "binary")
    assert ("a2V5", "Y29uZmx1ZW50") in [(each["key"], each["value"]) for each in records]
    assert "a2Fma2E=" in [each["value"] for each in records if each["partition"] == 1]
    assert set(records[0]) == {"topic", "key", "value", "partition", "offset"}
    other = served.ask("GET", f"{INSTANCE}/records", headers={"Accept": JSON2})
    assert (other.status, other.json()["error_code"]) == (406, 40601)
    no_content(served.ask("POST", f"{INSTANCE}/offsets", OFFSETS, kind=V2))
    committed = served.ask("GET", f"{INSTANCE}/offsets", TWO_PLACES, kind=V2).json()
    assert committed == {
        "offsets": [
            {"topic": "test", "partition": 0, "offset": 21, "metadata": ""},
            {"topic": "test", "partition": 1, "offset": 31, "metadata": ""},
        ]
    }
    no_content(served.ask("DELETE", INSTANCE))
    gone = served.ask("DELETE", INSTANCE)
    assert (gone.status, gone.json()["error_code"]) == (404, 40403)
    assert "belongs to the server that made it" in gone.json()["message"]


def read_all(served: Served, embedded: str) -> list[dict[str, Any]]:
    """Every record of the topic `test`."""
    accept = {"Accept": f"application/vnd.kafka.{embedded}.v2+json"}
    offsets = [served.ask("GET", f"/topics/test/partitions/{p}/offsets").json() for p in (0, 1)]
    wanted = sum(each["end_offset"] for each in offsets)
    found: list[dict[str, Any]] = []
    for _ in range(20):
        path = f"{INSTANCE}/records?timeout=3000&max_bytes=300000"
        found += served.ask("GET", path, headers=accept).json()
        if len(found) == wanted:
            return found
    raise AssertionError(f"{len(found)} of {wanted} records came")


def topics_v3(served: Served) -> str:
    [cluster] = served.ask("GET", "/v3/clusters").json()["data"]
    path = f"/v3/clusters/{cluster['cluster_id']}"
    assert served.ask("GET", path).json() == cluster
    listed = served.ask("GET", f"{path}/topics").json()
    assert listed["kind"] == "KafkaTopicList"
    topic = served.ask("GET", f"{path}/topics/topic-1").json()
    assert topic["kind"] == "KafkaTopic" and topic["topic_name"] == "topic-1"
    assert (topic["is_internal"], topic["partitions_count"]) == (False, 2)
    assert topic["metadata"]["resource_name"].endswith("/topic=topic-1")
    new = {
        "topic_name": "topic-X",
        "partitions_count": 64,
        "replication_factor": 1,
        "configs": [
            {"name": "cleanup.policy", "value": "compact"},
            {"name": "compression.type", "value": "gzip"},
        ],
    }
    made = served.ask("POST", f"{path}/topics", new, kind="application/json")
    assert made.status == 201 and made.json()["partitions_count"] == 64
    parts = served.ask("GET", f"{path}/topics/topic-X/partitions").json()
    assert len(parts["data"]) == 64
    one = served.ask("GET", f"{path}/topics/topic-X/partitions/63").json()
    assert one.get("partition_id") == 63, one
    no_content(served.ask("DELETE", f"{path}/topics/topic-X"))
    elsewhere = served.ask("GET", "/v3/clusters/cluster-1/topics")
    assert elsewhere.status == 404
    return path


def records_v3(served: Served, path: str) -> None:
    record = {
        "partition_id": 1,
        "headers": [{"name": "Header-1", "value": "SGVhZGVyLTE="}],
        "key": {"type": "BINARY", "data": "Zm9vYmFy"},
        "value": {"type": "JSON", "data": {"foo": "bar"}},
        "timestamp": "2021-02-05T19:14:42Z",
    }
    here = f"{path}/topics/topic-1/records"
    report = served.ask("POST", here, record, kind="application/json").json()
    assert report["error_code"] == 200 and report["topic_name"] == "topic-1"
    assert report["partition_id"] == 1 and report["timestamp"].startswith("2021-02-05T19:14:42")
    assert report["key"] == {"type": "BINARY", "size": 6}
    assert report["value"] == {"type": "JSON", "size": 13}
    bad = {"value": {"type": "BINARY", "data": 1}}
    assert served.ask("POST", here, bad, kind="application/json").status in (400, 422)
    # Streamed: concatenated JSON in, a report for each out.
    three = b"".join(
        json.dumps({"value": {"type": "STRING", "data": f"text {n}"}}).encode() for n in range(3)
    )
    answer = served.ask("POST", here, iter([three[:20], three[20:]]), kind="application/json")
    reports = [json.loads(line) for line in answer.body.splitlines()]
    assert [each["error_code"] for each in reports] == [200] * 3


def partition_records(served: Served) -> None:
    accept = {"Accept": BINARY2}
    path = "/topics/topic-1/partitions/1/records?offset=0&max_bytes=100000"
    first = served.ask("GET", path, headers=accept).json()[0]
    assert (first["key"], first["offset"]) == ("Zm9vYmFy", 0)


def everything(served: Served) -> None:
    topics_v2(served)
    produce_v2(served)
    consumers_v2(served)
    records_v3(served, topics_v3(served))
    partition_records(served)
