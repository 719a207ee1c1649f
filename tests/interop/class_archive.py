"""An archive of the classes that Apache Kafka loads, so that its JVMs start in half the time.

Made once by a broker that starts, serves a client and stops; measured: 4.7 s of processor time for
a start and stop of the broker without it, 2.4 s with it. A JVM for which it was not made ignores
it. `make tools` makes it; without it everything works, slower.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from confluent_kafka import Consumer, Producer

from tests.interop.brokers import ApacheNode
from tests.interop.tools import class_archive_path


class TrainingNode(ApacheNode):
    """Writes down its classes as it ends."""

    def command(self) -> list[str]:
        java, *rest = super().command()
        return [java, f"-XX:ArchiveClassesAtExit={self.folder / 'classes.jsa'}", *rest]


def class_archive() -> Path:
    path = class_archive_path()
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="headrace-archive-") as folder:
            node = TrainingNode(Path(folder))
            node.start()
            _use(node.bootstrap)
            node.stop(within_s=300)
            whole = path.with_suffix(".part")
            shutil.copyfile(node.folder / "classes.jsa", whole)
            whole.rename(path)
    return path


def _use(bootstrap: str) -> None:
    """A record comes and goes, with the coordinators of a transaction and of a group."""
    quiet = {"bootstrap.servers": bootstrap, "log_level": "0"}
    producer = Producer({**quiet, "transactional.id": "trained"})
    producer.init_transactions(120)
    producer.begin_transaction()
    producer.produce("trained", b"value")
    producer.commit_transaction(120)
    consumer = Consumer({**quiet, "group.id": "trained", "auto.offset.reset": "earliest"})
    consumer.subscribe(["trained"])
    consumer.consume(1, timeout=120)
    consumer.close()
