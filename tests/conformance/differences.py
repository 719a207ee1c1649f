"""Where Headrace is allowed to answer otherwise than Apache Kafka, and why.

Each entry names lines of the script and fields of their answers. Anything else that differs fails
the comparison, and an entry that no longer occurs fails it too. `docs/not-supported.md` has this
list between two marks; `python -m tests.conformance.differences` prints it anew.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DOCUMENT = Path(__file__).parent.parent.parent / "docs" / "not-supported.md"
BEGIN = "<!-- what conformance allows: written by tests/conformance/differences.py -->"
END = "<!-- end of what conformance allows -->"
ANYTHING = re.compile(r"")


@dataclass(slots=True, frozen=True)
class Difference:
    """One kind of allowed difference."""

    title: str
    apache: str  # what Apache Kafka does, in words
    headrace: str  # what we do, in words
    reason: str
    lines: re.Pattern[str]  # of "story: line"
    field: re.Pattern[str] = ANYTHING
    their_value: re.Pattern[str] = ANYTHING
    our_value: re.Pattern[str] = ANYTHING

    def covers(self, line: str, field: str, apache: Any, ours: Any) -> bool:
        return bool(
            self.lines.search(line)
            and self.field.search(field)
            and self.their_value.search(repr(apache))
            and self.our_value.search(repr(ours))
        )


def r(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


NONE_THERE = r(r"^None$")
DIFFERENCES: tuple[Difference, ...] = (
    Difference(
        "APIs that are not served",
        "ApiVersions lists all of its APIs",
        "lists only those that work; the others close the connection as unknown ones do",
        "a client that does not find an API uses an older one or reports that; a listed API that "
        "fails misleads it",
        r(r"^api_versions: every version: "),
        r(r"^api_keys\.\d+$"),
        our_value=r(r"^'absent'$"),
    ),
    Difference(
        "Topics created by asking for them",
        "Metadata answers UNKNOWN_TOPIC_OR_PARTITION, the topic is there a moment later",
        "answers with the new topic at once",
        "clients save their retry backoff: the first record to a new topic is acknowledged after "
        "2 to 28 ms and not after 101 to 192 (decision 36)",
        r(r"^metadata: asking creates: v\d+ first$"),
    ),
    Difference(
        "Metadata 12 and 13 for a topic with neither name nor id",
        "UNKNOWN_SERVER_ERROR for the whole request",
        "UNKNOWN_TOPIC_ID for that topic, the others are answered",
        "Apache Kafka runs into a null pointer there",
        r(r"^metadata: null names: v1[23]$"),
    ),
    Difference(
        "Sentences with refusals",
        "many refusals carry a code without a sentence",
        "every refusal says in a sentence what was wrong",
        "people read them; programs look at the code, which is the same",
        r(r""),
        r(r"(^|\.)error_message$"),
        NONE_THERE,
        r(r"^'some text'$"),
    ),
    Difference(
        "Batches with a compression that does not exist",
        "UNKNOWN_SERVER_ERROR",
        "UNSUPPORTED_COMPRESSION_TYPE",
        "Apache Kafka runs into an exception there; the code says what is wrong",
        r(r"^produce_refused: batches that cannot be: v\d+ compression [57]$"),
        r(r"\.(error_code|log_start_offset)$"),
    ),
    Difference(
        "Records inside a batch",
        "reads every record of a batch that is produced and refuses unreadable ones",
        "checks the batch's header and checksum, and looks inside only where the topic needs it "
        "(keys of compacted topics, time bounds, another compression)",
        "a batch stays opaque from socket to file to socket; the checksum already covers what "
        "the producer wrote",
        r(r"^produce_refused: records that cannot be read: "),
        r(r"\.(error_code|base_offset)$"),
        r(r"^(-1|87)$"),
        r(r"^0$"),
    ),
    Difference(
        "Produce with null instead of a batch",
        "never answers",
        "INVALID_RECORD",
        "Apache Kafka loses the request in an exception",
        r(r"^produce_refused: no batch at all: "),
        their_value=r(r"^'NoAnswer'$"),
    ),
    Difference(
        "Negative sizes in Fetch",
        "UNKNOWN_SERVER_ERROR for the first partition",
        "treated as 0: the first batch is returned whole",
        "Apache Kafka runs into an exception there",
        r(r"^fetch: sizes: v\d+ negative (in all|each)$"),
    ),
    Difference(
        "Defaults for clusters of three",
        "replication factors of internal topics 3, min.insync.replicas 2, first rebalance delayed "
        "by 3 s, assignments of the consumer protocol a second apart",
        "1, 1 and no delays",
        "`headrace start` is a cluster of one and must work without settings",
        r(r"^configs: settings of the broker: "),
        r(
            r"configs\.(offsets\.topic\.replication\.factor|transaction\.state\.log\."
            r"(replication\.factor|min\.isr)|share\.coordinator\.state\.topic\."
            r"(replication\.factor|min\.isr)|group\.initial\.rebalance\.delay\.ms|"
            r"group\.consumer\.assignment\.interval\.ms)\."
        ),
    ),
    Difference(
        "Socket buffers",
        "100 KiB by default",
        "-1 by default: the system's, and larger ones for clients on this machine",
        "measured: large batches arrive whole and cost less",
        r(r"^configs: settings of the broker: "),
        r(r"configs\.socket\.(send|receive)\.buffer\.bytes\."),
        r(r"^'102400'$"),
    ),
    Difference(
        "Limits on connections",
        "`max.connections` and `max.connections.per.ip` are unlimited by default",
        "20,000 and 10,000",
        "limits are on by default",
        r(r"^configs: settings of the broker: "),
        r(r"configs\.max\.connections(\.per\.ip)?\."),
        r(r"^'2147483647'$"),
    ),
    Difference(
        "Roles, listeners and folders",
        "needs `node.id`, `process.roles`, a controller listener and "
        "`controller.quorum.bootstrap.servers`; data in /tmp/kafka-logs, listens on all addresses",
        "node 1, both roles without a listener between them; data in headrace-data, listens on "
        "localhost",
        "the broker of a cluster of one reaches its controller inside the process; a node listens "
        "beyond loopback only if its settings ask for it",
        r(r"^configs: settings of the broker: "),
        r(
            r"configs\.(node\.id|process\.roles|listeners|controller\.listener\.names|log\.dir|"
            r"controller\.quorum\.bootstrap\.servers)\."
        ),
    ),
    Difference(
        "Subscriptions that cannot be read",
        "UNKNOWN_SERVER_ERROR to a classic member that joins a consumer group with garbled bytes",
        "INCONSISTENT_GROUP_PROTOCOL",
        "Apache Kafka runs into an exception there; the code says what is wrong",
        r(
            r"^(group_consumers: between the protocols: garbled|"
            r"group_garbled: in a group of the other kind: )"
        ),
        r(r"^(error_code|\[0\])$"),
        r(r"^-1$"),
        r(r"^23$"),
    ),
    Difference(
        "Assignments that cannot be read",
        "UNKNOWN_SERVER_ERROR to a member of the consumer protocol that joins a classic group, if "
        "the assignment from the group's leader has impossible lengths; GROUP_ID_NOT_FOUND for "
        "other garbled assignments",
        "GROUP_ID_NOT_FOUND",
        "Apache Kafka runs into an exception there; the code says that the group cannot change "
        "its protocol",
        r(r"^group_garbled: assignments: .*: the new one$"),
        r(r"^\[0\]$"),
        r(r"^-1$"),
        r(r"^69$"),
    ),
    Difference(
        "Assignments of partitions that are not there",
        "UNKNOWN_SERVER_ERROR to a member of the consumer protocol that joins a classic group "
        "whose leader has assigned such partitions",
        "the group changes its protocol, and these partitions are revoked",
        "Apache Kafka runs into an exception there, and the group can never change its protocol",
        r(r"^group_garbled: assignments: (partitions that are not there|a negative partition): "),
    ),
    Difference(
        "A promised member id that comes with an instance id",
        "UNKNOWN_SERVER_ERROR",
        "UNKNOWN_MEMBER_ID",
        "Apache Kafka runs into an exception there; the code makes a client ask for another id",
        r(r"^group_refusals: promised members: with an instance$"),
        r(r"^(error_code|member_id)$"),
    ),
    Difference(
        "OffsetFetch with a member epoch and no member id",
        "UNKNOWN_SERVER_ERROR",
        "UNKNOWN_MEMBER_ID",
        "Apache Kafka runs into a null pointer there; the code says what is wrong",
        r(r"^group_waiting: members of the consumer protocol: fetch v\d+ no name$"),
        r(r"\.error_code$"),
        r(r"^-1$"),
        r(r"^25$"),
    ),
    Difference(
        "More than 1 MB of offsets in one commit",
        "UNKNOWN_SERVER_ERROR",
        "accepted",
        "they are written in several batches; a single record above `max.message.bytes` is refused "
        "with the same code",
        r(
            r"^(group_refusals: sizes that no record holds|"
            r"transactions_refused: offsets that are refused): v\d+ 1\.2 MB of "
        ),
        their_value=r(r"^-1$"),
        our_value=r(r"^0$"),
    ),
    Difference(
        "Records of two producers in one transactional Produce",
        "INVALID_PRODUCER_ID_MAPPING for all of them",
        "INVALID_PRODUCER_ID_MAPPING for the records of another producer than that of the "
        "transactional id; the others are accepted",
        "each partition is answered separately, and the accepted records belong to the transaction",
        r(r"^transactions_refused: records of two: v\d+ two producers$"),
    ),
    Difference(
        "Transaction markers with a negative producer id or epoch",
        "UNKNOWN_SERVER_ERROR",
        "INVALID_REQUEST, INVALID_PRODUCER_EPOCH",
        "Apache Kafka runs into an exception there; the codes say what is wrong",
        r(r"^transactions_refused: markers that are refused: v\d negative (id|epoch)$"),
        their_value=r(r"^-1$"),
    ),
    Difference(
        "The last epoch of a producer, 32,767",
        "with `transaction.version` 1 an id reaches it when a transaction in the epoch before is "
        "aborted without its producer: then a client that names the last epoch may begin a "
        "transaction, a client that aborts once more gets it, and a client that asks for the next "
        "epoch gets UNKNOWN_SERVER_ERROR",
        "no producer gets it: PRODUCER_FENCED; a client that aborts once more gets another "
        "producer id",
        "no marker could end a transaction in this epoch; from `transaction.version` 2 on both "
        "brokers give another id",
        r(
            r"^transactions_worn_out: (with transaction version 1: client \d "
            r"(the last epoch: |new record$|abort v5$|ended$|init (when it has ended|v\d)$)|"
            r"killed before the end: fence: init$)"
        ),
    ),
    Difference(
        "What is named twice in one request",
        "groups, coordinators, partitions and transactional ids that are asked about twice are "
        "answered twice",
        "answered once",
        "a small request must not have an unbounded answer",
        r(r""),
        r(r" again(\.|$)"),
        our_value=r(r"^'absent'$"),
    ),
    Difference(
        "Settings that ask for what is not supported",
        "`config.providers` and `ssl.engine.factory.class` are accepted",
        "INVALID_REQUEST, and a node whose file has them does not start",
        "a setting is never accepted and then ignored, unless its documentation says so",
        r(
            r"^configs: every setting of the broker: "
            r"(config\.providers|ssl\.engine\.factory\.class) for "
        ),
    ),
    Difference(
        "Where the controller listens",
        "DescribeQuorum names its listener, which a node must have",
        "names none, unless `listeners` has one for the controller",
        "the quorum's records have an address for a cluster of one, but no process listens there",
        r(r"^cluster: quorum: v2 metadata$"),
        r(r"^nodes\.1\.listeners$"),
    ),
    Difference(
        "The map of listeners, set to its default",
        "INVALID_REQUEST: the default does not name the controller's listener",
        "accepted: it is already in force",
        "here a node has a controller's listener only if its settings ask for one",
        r(r"^configs: every setting of the broker: listener\.security\.protocol\.map for 1$"),
    ),
    Difference(
        "Settings of our own",
        "has none that begin with `headrace.`",
        "`headrace.durability`, `headrace.delay.service`, `headrace.audit`, `headrace.first.users`",
        "they belong to features that Apache Kafka does not have",
        r(r"^configs: settings of the broker: "),
        r(r"configs\.headrace\."),
        r(r"^'absent'$"),
    ),
)


def covering(line: str, field: str, apache: Any, ours: Any) -> Difference | None:
    return next((d for d in DIFFERENCES if d.covers(line, field, apache, ours)), None)


def rendered() -> str:
    """The list as a table for people."""
    rows = [
        "| what | Apache Kafka 4.3 | Headrace | why |",
        "|---|---|---|---|",
        *(f"| {d.title} | {d.apache} | {d.headrace} | {d.reason} |" for d in DIFFERENCES),
    ]
    return "\n".join([BEGIN, *rows, END])


if __name__ == "__main__":
    sys.stdout.write(rendered() + "\n")
