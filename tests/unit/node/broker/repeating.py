"""Two ways to come to a node with the same frames: over one connection, or a new one each time.

What a connection remembers of its requests must not change any answer.
"""

from headrace.node.serving.api import ClosesConnection


class Comer:
    """One node, and one of the two ways to it."""

    def __init__(self, rig, *, stays):
        self.rig = rig
        self.session = rig.connect()
        self.stays = stays

    def send(self, frame):
        """The bytes of the reply, or that the connection was ended."""
        if not self.stays:
            self.session = self.rig.connect()
        data = bytearray(frame)
        try:
            self.rig.node.dispatch.feed(self.session, memoryview(data), len(data))
        except ClosesConnection:
            self.rig.node.dispatch.forget(self.session)
            self.session = self.rig.connect()
            return ClosesConnection
        self.rig.until_idle()
        reply = b"".join(self.session.outbox)
        self.session.outbox.clear()
        return reply

    def decodes(self, route, monkeypatch):
        """Counts how often a request of this API and version is decoded."""
        route = self.rig.node.dispatch.routes[route]
        counted = []
        decode = route.decode
        monkeypatch.setattr(route, "decode", lambda *given: counted.append(1) or decode(*given))
        return counted


def damaged(good):
    """The frame with each byte changed in four ways, cut at each length, and a byte longer."""
    for at in range(4, len(good)):
        for bits in (1, 2, 0x80, 0xFF):
            yield good[:at] + bytes([good[at] ^ bits]) + good[at + 1 :]
    for size in range(14, len(good)):
        yield (size - 4).to_bytes(4, "big") + good[4:size]
    yield (len(good) - 3).to_bytes(4, "big") + good[4:] + b"\0"
