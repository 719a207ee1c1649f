"""The map in docs/map.md: each file of the tree with the first sentence it says of itself.

`make map` writes it, `tests/test_tidy.py` compares.
"""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
PACKAGE = PROJECT / "src" / "headrace"
DOCUMENT = PROJECT / "docs" / "map.md"
DOCSTRING = re.compile(r'(?:#[^\n]*\n|\s)*(r?""".*?""")', re.S)
BEGIN = "<!-- map: written by `make map` -->"
END = "<!-- end of the map -->"

# Every folder, in the order of the layers, lowest first, then what stands around the node.
FOLDERS = {
    "wire": "WHAT OTHER PROGRAMS HOLD US TO: Kafka's bytes, and our own agreements",
    "wire/protocol": "KAFKA'S WIRE: bytes to messages and back; imports environment alone",
    "wire/protocol/record_batch": "a record batch: header, walking, bounds, building",
    "wire/protocol/codegen": "the generator's parts",
    "wire/protocol/definitions": "message definitions in JSON, the generator's input",
    "wire/protocol/messages": "generated codecs, one module per message, all versions",
    "wire/protocol/messages/sliced": "the same codecs as generators, for long messages",
    "wire/contract": "WHAT ALL LANGUAGES AGREE ON: headers, durations, names of topics",
    "node": "ONE BROKER PROCESS, lowest layer first; imports wire and environment alone",
    "node/storage": "ONE PARTITION'S LOG on a Disk, in Kafka's files",
    "node/storage/segments": "a segment: its batches, its indexes, searches in them",
    "node/storage/durability": "how logs reach the disk: writes, flushes, open files",
    "node/storage/recovery": "a log found again: after a kill, damage, leftovers",
    "node/storage/compaction": "the last record of each key",
    "node/metadata": "WHAT THE CLUSTER KNOWS: records, the immutable image, settings",
    "node/metadata/config_definitions": "every setting by name",
    "node/consensus": "KRAFT: the metadata log, its snapshots, this node in its quorum",
    "node/consensus/quorum": "KRAFT of many voters, a pure machine",
    "node/consensus/quorum/wire": "its messages on Kafka's wire, one file per API",
    "node/replication": "REPLICAS, pure: leaders, followers, who is in sync, how far readers see",
    "node/coordination": "STATE KEPT IN A LOG: decide, append, replay, answer when committed",
    "node/coordination/group": "consumer groups",
    "node/coordination/group/assignors": "how the server shares partitions out (KIP-848)",
    "node/coordination/group/streams": "streams groups (KIP-1071): topology, tasks, decisions",
    "node/coordination/share": "share groups (KIP-932): one partition, and its state",
    "node/coordination/transaction": "transactions",
    "node/serving": "WHAT EVERY REQUEST PASSES: routes, replies in order, purgatory",
    "node/serving/authentication": "LOGINS, pure: mechanisms and what a session may send",
    "node/controller": "DECIDES CHANGES, as metadata records",
    "node/controller/members": "brokers and controllers: register, live, leave",
    "node/controller/partitions": "one partition: who leads, who follows, where",
    "node/controller/handlers": "one file per API",
    "node/broker": "ANSWERS CLIENTS about records",
    "node/broker/records": "records in and out: acknowledgements, fetch sessions",
    "node/broker/replicas": "the logs of this broker: led, followed, cleaned, lost",
    "node/broker/folders": "the data folders of this broker",
    "node/broker/coordinators": "groups and transactions that this broker coordinates",
    "node/broker/share": "share groups at the leader of a partition: sessions, locks",
    "node/broker/cluster": "this broker among others: membership, the controller",
    "node/broker/handlers": "one file per API; __init__.py is the table of contents",
    "node/broker/recognized": "requests not decoded again; __init__.py has the table",
    "node/assembly": "THE NODE, WIRED: broker, controller and quorum behind one door",
    "node/process": "THE ONLY IMPURE PART of a node: sockets, threads, clocks, the disk",
    "node/process/listeners": "who comes in: sockets, limits, TLS, logins",
    "node/process/peers": "connections that this node opens to others",
    "node/process/background": "processes beside the loop",
    "node/process/folders": "the disk, and the data folders on it",
    "node/process/settings": "what a node is started with",
    "node/process/metrics": "what Prometheus reads of a node",
    "node/process/local_cluster": "a cluster on one machine, and the parent that runs it",
    "node/simulator": "THE SAME CODE ON VIRTUAL TIME, network and disk, with faults from a seed",
    "node/simulator/cluster": "whole nodes with their clients, under faults from a seed",
    "testing": "the real broker in a test's process",
    "client": "THE DOOR TO ANY CLUSTER: typed calls on confluent-kafka and our own codecs",
    "client/login": "who a client says it is: tokens, passwords, certificates",
    "client/share": "reading a share group as a queue: sessions, membership, acknowledgements",
    "client/producer": "SENDING: producers, their transactions, what became of records",
    "client/consumer": "READING, alone or in a group",
    "client/lookup": "looking at records without a group",
    "client/once": "WRITING ONCE: a fenced writer, its marks, the outcomes of a transaction",
    "client/admin": "ADMINISTERING: topics, groups, rights, the cluster itself",
    "client/admin/placement": "where replicas lie, and how they move",
    "client/delay": "delayed messages, as a client sees them",
    "app": "APPLICATIONS ON MESSAGES: handlers, retries, dead letters, exactly once",
    "app/dispatch": "which records may run, and what becomes of them; pure",
    "app/attempts": "one attempt at a record: call, publish, time limits",
    "app/retries": "what happens to a record that failed: again, later, or put away",
    "app/once": "`once=`: which messages had their effect already",
    "app/worker": "a running app: threads, its group, its partitions",
    "app/observation": "what others see of a running app: log, metrics, pages",
    "app/triggers": "records call functions and HTTP endpoints",
    "services": "what runs beside a cluster, as its client",
    "services/delay": "DELAYED MESSAGES: a pure core, the loop and its window around it",
    "services/delay/timeline": "what waits and what is due, without clock or cluster",
    "services/delay/partitions": "partitions that are ours: got, asked about, left",
    "services/delay/obstacles": "what stands in the way of a delivery",
    "services/delay/admin": "what others may ask of a running instance",
    "services/outbox": "THE OUTBOX: rows of a database become records, exactly once; a pure core",
    "services/outbox/databases": "what differs between PostgreSQL, MariaDB and SQLite",
    "services/redrive": "DEAD LETTERS of a cluster: listed, sent again, put away",
    "services/backlog": "CATCHING UP: why a group is behind; a wider topic, a database in between",
    "services/replay": "READING AGAIN: by the same group, in another topic, as a shadow",
    "services/shipping": "SHIPPING: lines of log files and numbers of a host, into topics",
    "services/tracking": "WEB TRACKING: events of browsers, over HTTP, into one topic per kind",
    "services/http": "THE HTTP DOOR: send and receive without a Kafka client, on any Kafka cluster",
    "services/http/writes": "records in; a key makes a request count once",
    "services/http/queues": "share consumers behind HTTP requests",
    "services/http/streams": "records out, as they come",
    "services/http/consumers": "v2's consumer instances",
    "services/http/users": "whose request it is, on the cluster",
    "services/http/dialects": "requests and responses as bytes and documents, pure",
    "services/http/endpoints": "one module per area: read the request, ask the cluster, answer",
    "outbox": "WRITING TO THE OUTBOX in an application's own database transaction",
    "outbox/django": "the same in Django: an application with a migration",
    "outbox/django/migrations": "of Django",
    "pipelines": "DATA PIPELINES ON SPARK: a topic becomes a table through one function",
    "pipelines/spark": "Spark itself: Java, jars, its session, what it says",
    "pipelines/rows": "from records to rows, and what cannot be one",
    "pipelines/sinks": "where rows go: tables, topics, databases",
    "pipelines/stream": "a running pipeline: checkpoint, backfill, queries",
    "pipelines/report": "A DAY OF A PIPELINE AS A PAGE with charts, read without Spark",
    "pipelines/shipped": "pipelines that come with it, and a generator of made-up visitors",
    "operations": "WHAT AN OPERATOR CAN ASK AND DO, once; command line and console show it",
    "operations/checkup": "what the doctor looks at",
    "operations/files": "Kafka's files of a data folder, read without a broker",
    "operations/files/damage": "damage of a data folder, and the ways to repair it",
    "operations/files/dump": "what a file holds, row by row",
    "edge": "THE EDGE OF EVERY HTTP SERVER: names, guard, listener, status pages",
    "console": "THE WEB CONSOLE: pages on the client and the services' public interfaces",
    "console/decoding": "bytes by a JSON path or an Avro schema that a person gives; pure",
    "console/history": "lag over time: samples, their store, the pace of a group",
    "console/jobs": "long work in the background: one owner, and each kind of work",
    "console/life": "which records are about one message, and what each tells; pure",
    "console/pages": "one module per page: read the address, ask, hand the view to a template",
    "console/views": "what a page shows, pure; the templates beside them only place it",
    "console/access": "questions to the cluster, each bounded in count, bytes and time",
    "console/security": "Host, Origin, tokens, and the headers of every answer",
    "cli": "the `headrace` command, one module per command",
    "cli/options": "options that several commands share",
    "cli/node": "commands about a node and its machine",
    "cli/cluster": "commands about a cluster: brokers, users, rights, limits",
    "cli/records": "commands about records: topics, groups, delays, dead letters",
    "cli/applications": "commands for programs on a cluster: apps, outbox, pipelines",
    "cli/delayed": "what `headrace delay` shows",
    "cli/backlogged": "what `headrace backlog` shows",
    "cli/replayed": "what `headrace replay` shows: plans, progress, what a shadow has found",
    "cli/transfers": "what `headrace demo` runs: two banks, and processes that are killed",
    "cli/segments": "what `headrace segment check` and `repair` show",
    "cli/secured": "what `headrace security init` writes",
}
# Too many and too alike to list: the folder's line is enough.
NOT_LISTED = (
    "wire/protocol/definitions",
    "wire/protocol/messages",
    "wire/protocol/messages/sliced",
)


def draw() -> str:
    lines = ["```", "src/headrace/"]
    top = [path for path in sorted(PACKAGE.glob("*.py")) if path.name != "__init__.py"]
    lines += [_line(path.name, 1, first_sentence(path)) for path in top]
    for folder, words in FOLDERS.items():
        depth = folder.count("/") + 1
        lines.append(_line(folder.rpartition("/")[2] + "/", depth, words))
        if folder not in NOT_LISTED:
            lines += [
                _line(path.name, depth + 1, first_sentence(path))
                for path in sorted((PACKAGE / folder).glob("*.py"))
                if path.name != "__init__.py"
            ]
    return "\n".join([*lines, "```"])


def folders() -> set[str]:
    """Returns the folders that the map must have."""
    found = {
        str(path.parent.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        if path.parent != PACKAGE
    }
    return found | {"wire/protocol/definitions"}


def _line(name: str, depth: int, words: str) -> str:
    return f"{'  ' * depth}{name}".ljust(34) + f"  {words}".rstrip()


def first_sentence(path: Path) -> str:
    """What a module says of itself first, without its full stop."""
    paragraph = " ".join(says(path).split("\n\n")[0].split())
    return re.split(r"(?<=[a-z0-9)`'])[.?](?: |$)", paragraph)[0]


def says(path: Path) -> str:
    """A module's docstring, without parsing the rest of it: there are a thousand of them."""
    found = DOCSTRING.match(path.read_text("utf-8"))
    return inspect.cleandoc(ast.literal_eval(found[1])) if found else ""


def drawn() -> str:
    """The map as it stands in the document."""
    text = DOCUMENT.read_text("utf-8")
    return text.partition(BEGIN)[2].partition(END)[0].strip()


def write() -> None:
    before, _, rest = DOCUMENT.read_text("utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    DOCUMENT.write_text(f"{before}{BEGIN}\n{draw()}\n{END}{after}", "utf-8")


if __name__ == "__main__":
    write()
