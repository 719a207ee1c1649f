"""One client's socket: receives through a shared buffer, sends with send and sendfile.

Receiving: the loop has one buffer; a connection keeps only the incomplete frame at its end, or its
own memory for a large frame (`loop.py` decides which). Sending: small pieces are joined into one
send, larger slices of files go by sendfile. A client that does not read its replies is not read
either, so the memory for its replies is bounded. Frames are not parsed here
(`serving/dispatch.py`).
"""

from __future__ import annotations

import mmap
import os
import socket
from collections.abc import Callable

from headrace.environment import Buffer, FileSlice
from headrace.node.serving.session import Piece, Session

# pread + join + send against MSG_MORE + sendfile: equal at 6 KiB, 3x apart at 64 KiB.
SENDFILE_FROM = 8 * 1024
# The socket's buffer would cut a longer send anyway.
JOIN_UP_TO = 256 * 1024

_MSG_MORE = getattr(socket, "MSG_MORE", 0)


class Connection:
    __slots__ = (
        "socket",
        "descriptor",
        "session",
        "address",
        "tail",
        "tail_is_ready",
        "big",
        "big_view",
        "big_filled",
        "interest",
        "blocked",
        "active_at_ms",
        "receive_into",
    )

    def __init__(self, sock: socket.socket, session: Session, address: str, now_ms: int) -> None:
        # Invariants: either `tail` or `big` holds the unfinished request, never both; `blocked` is
        # true while a part of the outbox waits until the socket takes more.
        self.socket = sock
        self.descriptor = sock.fileno()
        self.session = session
        self.address = address
        self.tail = b""  # received bytes that are not handled yet
        self.tail_is_ready = False  # it holds complete requests; otherwise the beginning of one
        self.big: mmap.mmap | bytearray | None = None  # memory of a large frame while it arrives
        self.big_view: memoryview | None = None
        self.big_filled = 0
        self.interest = 0  # what the poller watches
        self.blocked = False  # the socket's buffer is full
        self.active_at_ms = now_ms
        self.receive_into: Callable[[memoryview], int] = sock.recv_into

    @property
    def is_shaken(self) -> bool:
        """Returns whether the TLS handshake is complete; without TLS there is none."""
        return True

    @property
    def has_received(self) -> bool:
        """Returns whether received bytes are buffered that the poller cannot see (TLS)."""
        return False

    @property
    def has_unsent(self) -> bool:
        """Returns whether bytes outside of replies (of a TLS handshake) wait for the socket."""
        return False

    def close(self) -> None:
        self.socket.close()

    def begin_big(self, memory: mmap.mmap | bytearray, size: int, start: memoryview) -> None:
        """A large frame of `size` has begun with `start`; the rest is received into `memory`."""
        self.big = memory
        self.big_view = memoryview(memory)[:size]
        self.big_view[: len(start)] = start
        self.big_filled = len(start)

    def end_big(self) -> None:
        self.big_view = None
        self.big = None  # released when the last view of it goes
        self.big_filled = 0

    def send(self) -> bool:
        """Send as much of the outbox as the socket takes; True when all of it went."""
        outbox = self.session.outbox
        sent_pieces = 0
        try:
            while sent_pieces < len(outbox):
                piece = outbox[sent_pieces]
                # Records of a file go from the page cache to the socket without passing through
                # this process. Small slices are read and joined instead, since a system call for
                # each costs more.
                if type(piece) is FileSlice and piece.length >= SENDFILE_FROM:
                    if not self._send_file(piece):
                        break
                    sent_pieces += 1
                    continue
                run, pieces, more = _joined_run(outbox, sent_pieces)
                sent = self.socket.send(run, _MSG_MORE if more else 0)
                if sent < len(run):
                    # The socket took a part: keep the rest as one piece at the head, so that the
                    # order of bytes on the wire stays.
                    outbox[sent_pieces : sent_pieces + pieces] = [memoryview(run)[sent:]]
                    break
                sent_pieces += pieces
        except BlockingIOError:
            pass
        if sent_pieces == len(outbox):
            outbox.clear()
            return True
        del outbox[:sent_pieces]
        return False

    def _send_file(self, piece: FileSlice) -> bool:
        """Returns True when the slice was sent; otherwise shortens it to the remaining bytes."""
        out = self.descriptor
        source = piece.file.fileno()
        while piece.length > 0:
            sent = os.sendfile(out, source, piece.position, piece.length)
            # A truncation while a slice waits in the outbox. The client was promised more bytes
            # than exist, so the frame cannot be completed and the connection must end.
            if sent == 0:
                raise ConnectionError("the file ended before its slice did")
            piece.position += sent
            piece.length -= sent
        return True


def _joined_run(outbox: list[Piece], start: int) -> tuple[Buffer, int, bool]:
    """The next pieces as one run of bytes, how many they were, and whether a sendfile follows."""
    pieces: list[Buffer] = []
    size = 0
    more = False
    at = start
    while at < len(outbox) and size < JOIN_UP_TO:
        piece = outbox[at]
        if isinstance(piece, FileSlice):
            if piece.length >= SENDFILE_FROM:
                more = True
                break
            pieces.append(piece.file.read(piece.length, piece.position))
            size += piece.length
        else:
            pieces.append(piece)
            size += len(piece)
        at += 1
    run = pieces[0] if len(pieces) == 1 else b"".join(pieces)
    return run, at - start, more
