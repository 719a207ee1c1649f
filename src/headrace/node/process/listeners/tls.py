"""TLS on a connection: records in and out, by OpenSSL over memory and not over the socket.

The socket is read and written as a plain one; ciphertext goes through two memory buffers of an
`ssl.SSLObject`. One receive then brings many records, and nothing that OpenSSL wants can block the
loop or stay unseen by the poller. An `ssl.SSLSocket` makes two system calls for each record of
16 KiB and one copy less; on a busy machine both took about 1.2 s/GB to receive and 1.0 to send.

Bounds: at most CIPHERTEXT_BYTES are taken from the socket at a time, a reply is read from its file
and encrypted in pieces of PIECE_BYTES that must leave before the next one is made, and after
SEND_PER_TURN_BYTES other connections have their turn. A handshake has a limit of bytes, and the
loop makes a limited number of handshake steps per turn, because each costs a signature (a
millisecond with RSA): logged-in clients are still served while a thousand others connect.

No renegotiation, no compression; session tickets are OpenSSL's own. Which certificates, versions
and ciphers: `tls_context.py`.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from contextlib import suppress
from socket import SHUT_WR, socket

from headrace.environment import Buffer, FileSlice
from headrace.node.process.listeners.connection import Connection
from headrace.node.serving.api import ClosesConnection
from headrace.node.serving.session import Session

CIPHERTEXT_BYTES = 256 * 1024
PIECE_BYTES = 256 * 1024
SEND_PER_TURN_BYTES = 1024 * 1024
# Certificates of a client included; OpenSSL itself takes 100 KB of those.
LONGEST_HANDSHAKE_BYTES = 128 * 1024
HANDSHAKE_STEPS_PER_TURN = 16
_NOTHING = memoryview(b"")


class Handshakes:
    """The state that all handshakes of a node share: the steps of one turn, a buffer, and
    counts."""

    __slots__ = ("_turn", "_turn_of", "_left", "ciphertext", "done", "failed")

    def __init__(self, turn: Callable[[], int]) -> None:
        self._turn = turn  # the number of the loop's turn
        self._turn_of = -1
        self._left = 0
        self.ciphertext = memoryview(bytearray(CIPHERTEXT_BYTES))
        self.done = 0
        self.failed = 0

    def may_step(self) -> bool:
        turn = self._turn()
        if turn != self._turn_of:
            self._turn_of, self._left = turn, HANDSHAKE_STEPS_PER_TURN
        self._left -= 1
        return self._left >= 0


class TlsConnection(Connection):
    __slots__ = (
        "_tls",
        "_incoming",
        "_outgoing",
        "_encrypted",
        "_handshakes",
        "_handshake_bytes",
        "_shaken",
        "_ended",
        "_on_shaken",
    )

    def __init__(
        self,
        sock: socket,
        session: Session,
        address: str,
        now_ms: int,
        *,
        context: ssl.SSLContext,
        handshakes: Handshakes,
        on_shaken: Callable[[Session, bytes | None], None],
    ) -> None:
        """`on_shaken` gets the client's certificate, if it has shown one; may raise Refused."""
        super().__init__(sock, session, address, now_ms)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._encrypted = _NOTHING  # what the socket has not taken yet
        self._handshakes = handshakes
        self._handshake_bytes = 0
        self._shaken = False
        self._ended = False  # the client has announced that nothing follows
        self._on_shaken = on_shaken
        self.receive_into = self._receive_into

    @property
    def is_shaken(self) -> bool:
        return self._shaken

    @property
    def has_received(self) -> bool:
        """There may be more to read although the socket has nothing."""
        return self._shaken and (self._tls.pending() > 0 or self._incoming.pending > 0)

    @property
    def has_unsent(self) -> bool:
        return len(self._encrypted) > 0

    def close(self) -> None:
        if self._shaken and not self._encrypted:
            # Send close_notify, so that an attacker cannot cut a reply short unnoticed.
            with suppress(OSError):
                self._tls.unwrap()
            with suppress(OSError):
                self.socket.send(self._outgoing.read())
        self.receive_into = self.socket.recv_into  # ends the circle of references
        super().close()

    # Receiving

    def _receive_into(self, view: memoryview) -> int:
        """Does the same as a socket's recv_into; BlockingIOError also if no record is complete
        yet."""
        if not self._shaken:
            self._shake_hands()
        filled = self._decrypt_into(view)
        if filled or self._ended:
            return filled
        ciphertext = self._handshakes.ciphertext
        received = self.socket.recv_into(ciphertext)
        if not received:
            return 0
        self._incoming.write(ciphertext[:received])
        filled = self._decrypt_into(view)
        if self._outgoing.pending:  # new keys or an alert
            self._flush_or_fail()
        if not filled and not self._ended:
            raise BlockingIOError
        return filled

    def _decrypt_into(self, view: memoryview) -> int:
        """Whole records, as long as there are some and there is room."""
        read, filled, size = self._tls.read, 0, len(view)
        while filled < size:
            try:
                # With a buffer, it returns how many bytes it has filled.
                length: int = read(size - filled, view[filled:])  # type: ignore[assignment]
            except ssl.SSLWantReadError:
                break
            if not length:
                self._ended = True
                break
            filled += length
        return filled

    # The handshake

    def _shake_hands(self) -> None:
        """Do one step of the handshake; BlockingIOError if the client has to send more."""
        handshakes = self._handshakes
        if not handshakes.may_step():
            raise BlockingIOError  # in the next turn: the socket stays readable
        received = self.socket.recv_into(handshakes.ciphertext)
        if not received:
            raise ConnectionError("left during the handshake")
        self._handshake_bytes += received
        self._incoming.write(handshakes.ciphertext[:received])
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            # Asked only now: after the last step requests may have come along.
            if self._handshake_bytes > LONGEST_HANDSHAKE_BYTES:
                raise self._failed("it is too long") from None
            self._flush()
            raise BlockingIOError from None
        except ssl.SSLError as failure:
            self._say_why()
            raise self._failed(failure.reason or "of no known reason") from None
        self._flush()
        self._on_shaken(self.session, self._tls.getpeercert(binary_form=True))
        self._shaken = True
        handshakes.done += 1

    def _say_why(self) -> None:
        """Send the alert, and take what else has arrived: unread bytes would overtake it."""
        with suppress(OSError):
            self._flush()
            self.socket.shutdown(SHUT_WR)
            self.socket.recv_into(self._handshakes.ciphertext)

    def _failed(self, why: str) -> ClosesConnection:
        self._handshakes.failed += 1
        return ClosesConnection(f"a TLS handshake that failed: {why.replace('_', ' ').lower()}")

    # Sending

    def send(self) -> bool:
        """Send as much of the outbox as the socket takes; True when all of it went."""
        outbox = self.session.outbox
        sent_bytes = 0
        try:
            while True:
                while self._encrypted:
                    sent = self.socket.send(self._encrypted)
                    self._encrypted = self._encrypted[sent:]
                    sent_bytes += sent
                if not outbox:
                    return True
                if sent_bytes >= SEND_PER_TURN_BYTES:
                    return False
                self._encrypt(_next_run(outbox))
        except BlockingIOError:
            return False

    def _encrypt(self, run: Buffer) -> None:
        at, view = 0, memoryview(run)
        while at < len(view):
            at += self._tls.write(view[at:])
        self._encrypted = memoryview(self._outgoing.read())

    def _flush(self) -> None:
        """Send OpenSSL's own bytes; those that the socket does not take wait for `send`."""
        if self._outgoing.pending:
            said = self._outgoing.read()
            self._encrypted = memoryview(bytes(self._encrypted) + said if self._encrypted else said)
        with suppress(BlockingIOError):
            while self._encrypted:
                self._encrypted = self._encrypted[self.socket.send(self._encrypted) :]

    def _flush_or_fail(self) -> None:
        self._flush()
        if self._encrypted:
            raise ConnectionError("asks for new keys and does not read")


def _next_run(outbox: list[FileSlice | Buffer]) -> Buffer:
    """Takes the next bytes out of the outbox, at most a piece's length of them."""
    pieces: list[Buffer] = []
    room, taken = PIECE_BYTES, 0
    for piece in outbox:
        if room <= 0:
            break
        if isinstance(piece, FileSlice):
            data: Buffer = piece.file.read(min(piece.length, room), piece.position)
            if not data and piece.length:
                raise ConnectionError("the file ended before its slice did")
            piece.position += len(data)
            piece.length -= len(data)
            whole = piece.length == 0
        else:
            whole = len(piece) <= room
            data = piece if whole else memoryview(piece)[:room]
            if not whole:
                outbox[taken] = memoryview(piece)[room:]
        pieces.append(data)
        room -= len(data)
        taken += whole
    del outbox[:taken]
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)
