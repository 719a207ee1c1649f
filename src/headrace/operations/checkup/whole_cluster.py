"""All checks of a cluster that answers, and of one of its topics.

A check that the user has no right for is a finding too, and does not hide the others.
"""

from __future__ import annotations

from headrace.client.admin.acls import AclFilter, Acls
from headrace.client.admin.cluster import Cluster
from headrace.client.admin.cluster_status import read_status
from headrace.client.admin.features import Features
from headrace.client.admin.topics import Topics
from headrace.client.connection import ClientSettings
from headrace.client.errors import ClientError
from headrace.operations.checkup.features import check_features
from headrace.operations.checkup.finding import Finding, watch
from headrace.operations.checkup.replication import check_replication
from headrace.operations.checkup.rights import check_delayed_writes
from headrace.operations.checkup.topic import check_topic


def check_running_cluster(connection: ClientSettings) -> list[Finding]:
    return [
        *check_features(Features(connection).all()),
        *_look_at_replication(connection),
        *_look_at_rights(connection),
    ]


def _look_at_replication(connection: ClientSettings) -> list[Finding]:
    """No findings if there is one broker and its data folders are fine."""
    try:
        status = read_status(connection)
        brokers = [node.id for node in status.nodes if "broker" in node.roles and not node.fenced]
        settings = Cluster(connection).settings(brokers[0])
    except ClientError as refusal:
        return [watch("replicas", f"not looked at: {refusal}", "Ask as a user who may see them.")]
    return check_replication(status, {name: found.value for name, found in settings.items()})


def _look_at_rights(connection: ClientSettings) -> list[Finding]:
    """No findings if all users may do everything."""
    try:
        entries = Acls(connection).find(AclFilter(resource_type="topic"))
    except ClientError as refusal:
        if refusal.code in ("SECURITY_DISABLED", None):
            return []
        return [watch("rights", f"not looked at: {refusal}", "Ask as a user who may see them.")]
    return check_delayed_writes((topic.name for topic in Topics(connection).all()), entries)


def check_named_topic(connection: ClientSettings, name: str) -> list[Finding]:
    topics = Topics(connection)
    [described] = topics.describe([name])
    return check_topic(
        described,
        brokers=len(topics.cluster.brokers),
        durability=topics.broker_setting("headrace.durability"),
    )
