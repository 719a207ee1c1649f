"""A node with an authorizer: everybody may do everything but alice, who may do what is allowed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headrace.node.serving.principal import Principal
from headrace.node.serving.session import Session
from headrace.wire.protocol.acls import Operation, PatternType, Permission, ResourceType
from headrace.wire.protocol.messages import create_acls, delete_acls
from tests.unit.node.broker.rig import Rig

STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
TOPIC = ResourceType.TOPIC


class Guarded(Rig):
    def __init__(self, folder: Path, **settings: Any) -> None:
        super().__init__(
            folder,
            authorizer_class_name=STANDARD,
            super_users="User:ANONYMOUS",
            offsets_topic_num_partitions=1,
            transaction_state_log_num_partitions=1,
            **settings,
        )
        self.seen_denied: list[Any] = []
        assert self.node.authorizer is not None
        self.node.authorizer.on_denied = lambda *about: self.seen_denied.append(about)

    def alice(self) -> Session:
        session: Session = self.connect()
        session.principal = Principal("User", "alice")
        return session

    def allow(
        self,
        operation: Operation,
        name: str,
        kind: ResourceType = TOPIC,
        pattern: PatternType = PatternType.LITERAL,
    ) -> None:
        entry = create_acls.AclCreation(
            kind, name, pattern, "User:alice", "*", operation, Permission.ALLOW
        )
        [result] = self.ask(create_acls, create_acls.CreateAclsRequest([entry])).results
        assert result.error_code == 0

    def take_away(self, operation: Operation) -> None:
        wanted = delete_acls.DeleteAclsFilter(
            ResourceType.ANY, None, PatternType.ANY, None, None, operation, Permission.ANY
        )
        [result] = self.ask(delete_acls, delete_acls.DeleteAclsRequest([wanted])).filter_results
        assert result.matching_acls
