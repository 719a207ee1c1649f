"""The limits of one server: every number here bounds a queue, a wait or a piece of memory."""

from __future__ import annotations

from dataclasses import dataclass

MEBIBYTE = 1 << 20


@dataclass(slots=True, kw_only=True)
class HttpLimits:
    body_bytes: int = 16 * MEBIBYTE  # of a request, as it comes
    unpacked_bytes: int = 64 * MEBIBYTE  # of a compressed one
    bulk_bytes: int = 1024 * MEBIBYTE  # of NDJSON and of v3's stream, which are read in pieces
    record_bytes: int = 8 * MEBIBYTE  # of one line or document of those
    records: int = 10_000  # in one request that is answered as a whole
    in_flight_bytes: int = 256 * MEBIBYTE  # bodies that are read or not yet acknowledged
    requests: int = 4096  # at once, streams not counted
    connections: int = 8192  # at once
    body_s: float = 30.0  # for all of a body to come; of a stream's, for its next piece
    body_rate: int = 256  # bytes a second that NDJSON comes with at least, on the whole
    idle_s: float = 60.0  # for a request to begin on a connection
    delivery_s: float = 30.0  # for the cluster to take a record
    answer_bytes: int = 16 * MEBIBYTE  # records in one answer
    poll_s: float = 60.0  # the longest wait of one GET of records
    instances: int = 200  # consumer instances at once
    instance_idle_s: float = 300.0
    streams: int = 4096  # at once
    feeds: int = 64  # topics that are streamed at once, per user and isolation level
    feed_bytes: int = 16 * MEBIBYTE  # what a feed keeps of a topic's newest records
    stall_s: float = 30.0  # for a reader to take some of what was written to it
    unread_bytes: int = 256 * MEBIBYTE  # of answers that their readers have not taken yet
    users: int = 64  # logins at once, each with connections of its own
    user_idle_s: float = 600.0
    login_s: float = 60.0  # after that a login is tried again at the cluster
    questions: int = 8  # to the cluster at once, on threads
    questions_waiting: int = 256
    keys: int = 1_000_000  # of idempotency, in their window
    key_s: int = 24 * 3600
    grace_s: float = 20.0  # for requests under way, at the end
    create_topics: bool = False  # whether a write may create its topic, where the cluster does that


USUAL = HttpLimits()
