"""Short ways to say what consumers ask of their coordinator, on a whole node without sockets."""

from headrace.wire.protocol.messages import (
    find_coordinator,
    heartbeat,
    join_group,
    leave_group,
    offset_commit,
    offset_fetch,
    sync_group,
)
from tests.unit.node.broker.rig import WAITS, Rig


class GroupRig(Rig):
    def __init__(self, folder, **settings):
        super().__init__(folder, **({"offsets_topic_num_partitions": 3} | settings))

    def find(self, *groups, version=6, key_type=0):
        request = find_coordinator.FindCoordinatorRequest(groups[0], key_type, list(groups))
        return self.ask(find_coordinator, request, version=version)

    def join(self, group, member_id="", *, session=None, version=9, instance=None, **options):
        protocols = options.pop("protocols", {"range": subscription("orders")})
        request = join_group.JoinGroupRequest(
            group,
            options.pop("session_timeout_ms", 10_000),
            options.pop("rebalance_timeout_ms", 30_000),
            member_id,
            instance,
            options.pop("protocol_type", "consumer"),
            [join_group.JoinGroupRequestProtocol(*pair) for pair in protocols.items()],
        )
        assert not options
        return self.ask(join_group, request, version=version, session=session)

    def sync(self, group, member_id, generation, parts=None, *, session=None, version=5, **more):
        assignments = [
            sync_group.SyncGroupRequestAssignment(*pair) for pair in (parts or {}).items()
        ]
        request = sync_group.SyncGroupRequest(
            group, generation, member_id, None, "consumer", "range", assignments
        )
        for name, value in more.items():
            setattr(request, name, value)
        return self.ask(sync_group, request, version=version, session=session)

    def heartbeat(self, group, member_id, generation, *, instance=None, version=4):
        request = heartbeat.HeartbeatRequest(group, generation, member_id, instance)
        return self.ask(heartbeat, request, version=version).error_code

    def leave(self, group, *member_ids, version=5, instance=None, session=None):
        members = [leave_group.MemberIdentity(member_id, instance) for member_id in member_ids]
        request = leave_group.LeaveGroupRequest(group, member_ids[0], members)
        return self.ask(leave_group, request, version=version, session=session)

    def commit(self, group, topic, offset, *, partition=0, member=("", -1), **more):
        version = more.pop("version", 9)
        part = offset_commit.OffsetCommitRequestPartition(
            partition, offset, more.pop("epoch", -1), more.pop("metadata", "")
        )
        request = offset_commit.OffsetCommitRequest(
            group,
            member[1],
            member[0],
            more.pop("instance", None),
            more.pop("retention_ms", -1),
            [
                offset_commit.OffsetCommitRequestTopic(
                    topic, more.pop("topic_id", bytes(16)), [part]
                )
            ],
        )
        assert not more
        answer = self.ask(offset_commit, request, version=version)
        return answer if answer == WAITS else answer.topics[0].partitions[0].error_code

    def committed(self, group, topic, partition=0):
        """The offset, or -1."""
        wanted = offset_fetch.OffsetFetchRequestTopics(topic, bytes(16), [partition])
        request = offset_fetch.OffsetFetchRequest(
            groups=[offset_fetch.OffsetFetchRequestGroup(group, None, -1, [wanted])]
        )
        [found] = self.ask(offset_fetch, request, version=9).groups
        assert found.error_code == 0
        return found.topics[0].partitions[0].committed_offset

    # Whole conversations

    def member(self, group, **options):
        """Asks for an id and joins with it; the id and the session on which its answer comes."""
        member_id = self.join(group, **options).member_id
        session = self.connect()
        answer = self.join(group, member_id, session=session, **options)
        return member_id, session, answer

    def stable_group(self, group, assignment=b"part"):
        """A group of one member that has its part."""
        self.find(group)
        member_id, _, joined = self.member(group)
        assert joined.error_code == 0
        synced = self.sync(group, member_id, joined.generation_id, {member_id: assignment})
        assert synced.assignment == assignment
        return member_id, joined.generation_id


def subscription(*topics):
    names = b"".join(len(name).to_bytes(2, "big") + name.encode() for name in topics)
    return b"\0\0" + len(topics).to_bytes(4, "big") + names + b"\xff\xff\xff\xff"
