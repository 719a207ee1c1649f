"""A client without sockets: frames in, replies out, through the real Dispatch."""

from struct import pack, unpack_from
from typing import Any

from headrace.environment import Now
from headrace.node.serving.api import Api
from headrace.node.serving.dispatch import Dispatch
from headrace.node.serving.purgatory import Purgatory
from headrace.node.serving.route import Route
from headrace.node.serving.session import Session
from headrace.wire.protocol.messages import api_versions, find_coordinator, metadata


def frame(api_key, version, body=b"", *, correlation_id=1, client_id=b"me", flexible=False):
    header = pack(">hhih", api_key, version, correlation_id, len(client_id)) + client_id
    if flexible:
        header += b"\0"
    payload = header + body
    return pack(">i", len(payload)) + payload


class Conversation:
    """`handlers` maps a messages module to a handler."""

    def __init__(self, handlers, **options):
        self.purgatory = Purgatory()
        routes = [
            Route(Api(messages=module, handle=handle, versions=module.VERSIONS), version, None)
            for module, handle in handlers.items()
            for version in module.VERSIONS
        ]
        self.dispatch = Dispatch(
            routes, self.purgatory, Now(0, 0), max_frame=options.pop("max_frame", 10_000), **options
        )
        self.session = Session("127.0.0.1", "PLAINTEXT")

    def send(self, data):
        return self.dispatch.feed(self.session, memoryview(bytearray(data)), len(data))

    def replies(self):
        """(correlation id, body) of everything in the outbox."""
        pieces: Any = self.session.outbox  # no file is read here
        data = b"".join(bytes(piece) for piece in pieces)
        self.session.outbox.clear()
        self.session.owed = 0
        found, at = [], 0
        while at < len(data):
            size, correlation_id = unpack_from(">ii", data, at)
            found.append((correlation_id, data[at + 8 : at + 4 + size]))
            at += 4 + size
        return found


__all__ = ["Conversation", "api_versions", "find_coordinator", "frame", "metadata"]
