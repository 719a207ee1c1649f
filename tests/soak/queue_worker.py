"""A worker of a queue that writes down what it got, what it wanted, and what was answered.

It releases, rejects, hangs past its lock and dies, by what a record says and by a seed. Run as
`python -m tests.soak.queue_worker BOOTSTRAP TOPIC GROUP SEED LOG`. A line of the log is the time of
this machine in seconds, what happened, and the partition, offset and delivery count.
"""

from __future__ import annotations

import os
import random
import sys
import time

from headrace.client import ClientError, ShareConsumer, ShareRecord

GOT, WANTS, DONE = "got", "wants", "done"
ACCEPTS, RELEASES, REJECTS = "accepts", "releases", "rejects"
# By a record's value, modulo so many: given up at its second delivery, and never accepted.
KINDS, REJECTED, NEVER_ACCEPTED = 100, 0, 1
OUR_LOCK_S = 3.0
RECORDS_PER_POLL = 50
WORK_S = 0.005  # for one record: so there is work left when a broker is killed


class Worker:
    def __init__(self, bootstrap: str, topic: str, group: str, seed: int, log: int) -> None:
        self.random = random.Random(seed)
        self.log = log
        self.consumer = ShareConsumer(bootstrap, topics=[topic], group=group)

    def run(self) -> None:
        while True:
            records = self.consumer.poll(RECORDS_PER_POLL, 0.5)
            self.note(GOT, "", records)
            if not records:
                continue
            trouble = self.random.random()
            if trouble < 0.01:
                os._exit(1)
            if trouble < 0.02:
                time.sleep(OUR_LOCK_S * 1.2)  # its locks run out; what follows must be refused
            time.sleep(WORK_S * len(records))
            wishes: dict[str, list[ShareRecord]] = {ACCEPTS: [], RELEASES: [], REJECTS: []}
            for record in records:
                wishes[self.wish_for(record)].append(record)
            for wish, chosen in wishes.items():
                self.note(WANTS, wish, chosen)
            self.consumer.accept(*wishes[ACCEPTS])
            self.consumer.release(*wishes[RELEASES])
            self.consumer.reject(*wishes[REJECTS])
            if trouble > 0.995:
                os._exit(1)
            refused = {
                (each.partition, offset)
                for each in self.consumer.commit(20.0)
                for offset in range(each.first_offset, each.last_offset + 1)
            }
            for wish, chosen in wishes.items():
                counted = [one for one in chosen if (one.partition, one.offset) not in refused]
                self.note(DONE, wish, counted)

    def wish_for(self, record: ShareRecord) -> str:
        kind = int(record.value or b"0") % KINDS
        if kind == NEVER_ACCEPTED:
            return RELEASES
        if kind == REJECTED:
            return REJECTS if record.delivery_count > 1 else RELEASES
        return RELEASES if self.random.random() < 0.03 else ACCEPTS

    def note(self, what: str, wish: str, records: list[ShareRecord]) -> None:
        lines = []
        for r in records:
            # A record may wait in the consumer: what counts is when it was asked for.
            at_s = r.locked_until - OUR_LOCK_S if what == GOT else time.monotonic()
            lines.append(
                f"{at_s:.6f} {what} {wish or '-'} {r.partition} {r.offset} {r.delivery_count}\n"
            )
        if lines:
            os.write(self.log, "".join(lines).encode())


def main() -> None:
    bootstrap, topic, group, seed, path = sys.argv[1:]
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        Worker(bootstrap, topic, group, int(seed), log).run()
    except ClientError as failure:  # its place is taken by another worker
        sys.exit(str(failure))


if __name__ == "__main__":
    main()
