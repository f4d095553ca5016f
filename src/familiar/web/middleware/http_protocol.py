"""HTTP protocol with timeouts: uvicorn limits neither the duration nor the size of a request's head."""

import asyncio
import socket
import ssl
import struct
from asyncio.sslproto import SSLProtocol
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, Protocol, runtime_checkable

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from familiar.web.settings import Limits

PROGRESS_BYTES = 65_536  # of a body: a client that sends them does not keep the server waiting
MAX_UNPARSED_BYTES = 65_536  # of a head, trailers or a chunk's extensions, which uvicorn would buffer without limit


class _Timer:
    """One-shot timer that can be restarted and stopped."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._handle: asyncio.TimerHandle | None = None

    @property
    def is_running(self) -> bool:
        return self._handle is not None

    def start(self, seconds: float, call: Callable[[], object]) -> None:
        self.stop()
        self._handle = self._loop.call_later(seconds, call)

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._handle = None


@runtime_checkable
class _Connection(Protocol):
    @property
    def waiting_since(self) -> float | None:
        """When the client last made progress, by the loop's clock; None while the server has to do something."""
        ...

    def abort(self) -> None:
        """Close the connection at once."""
        ...


class OpenConnections:
    """The open connections, at most `limit`.

    A new one beyond that replaces the one that has kept the server waiting longest: for a head, for a body, to read a
    response, or for another request. So clients that do so on many connections displace each other, not those that
    send their requests at once.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._connections: set[_Connection] = set()

    def admit(self, new: _Connection) -> bool:
        """Add a connection; False: it has to be closed, since the server is at work for all others."""
        if len(self._connections) >= self._limit:
            waiting = [(since, each) for each in self._connections if (since := each.waiting_since) is not None]
            if not waiting:
                return False
            _, slowest = min(waiting, key=lambda pair: pair[0])
            self._connections.remove(slowest)  # now: it is told of its end later
            slowest.abort()
        self._connections.add(new)
        return True

    def remove(self, connection: _Connection) -> None:
        self._connections.discard(connection)


class TimeoutHttpProtocol(HttpToolsProtocol):
    """Uvicorn's HTTP/1.1 protocol, which also closes some connections.

    A connection is closed if it

    - has not sent a whole head within header_seconds of connecting, or of the first byte after the last response,
    - sends more than MAX_UNPARSED_BYTES that are neither a head's end nor part of a body,
    - reads nothing of its response for chunk_seconds,
    - has kept the server waiting longest, when there are more than limits.connections.
    """

    limits: ClassVar[Limits] = Limits()
    opened: ClassVar[OpenConnections | None] = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._head_timer, self._write_timer = _Timer(self.loop), _Timer(self.loop)
        self._unread_bytes = 0
        self._progress_bytes, self._progress_time = 0, self.loop.time()

    @property
    def waiting_since(self) -> float | None:
        """When the client last made progress, by the loop's clock; None while the server has to do something."""
        if self.cycle is None or self.cycle.response_complete or self.cycle.more_body or self.flow.write_paused:
            return self._progress_time
        return None

    def abort(self) -> None:
        """Close the connection at once."""
        _abort(self.transport)

    def connection_made(self, transport: Any) -> None:  # uvloop's are not asyncio.Transport
        super().connection_made(transport)
        if self.opened is not None and not self.opened.admit(self):
            self.abort()
        else:
            self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_timer.stop()
        self._write_timer.stop()
        if self.opened is not None:
            self.opened.remove(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        # Between requests any byte starts the timer: otherwise the rest of an unread body, or the empty lines that are
        # allowed before a head, would keep the connection open for ever.
        if not self._head_timer.is_running and (self.cycle is None or self.cycle.response_complete):
            self._expect_head()
        self._unread_bytes += len(data)
        super().data_received(data)
        if self._unread_bytes > MAX_UNPARSED_BYTES:
            self.abort()

    def on_headers_complete(self) -> None:
        self._head_timer.stop()
        self._unread_bytes = 0
        self._note_progress()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._unread_bytes = 0
        self._progress_bytes += len(body)
        if self._progress_bytes >= PROGRESS_BYTES:
            self._note_progress()
        super().on_body(body)

    def on_response_complete(self) -> None:
        self._note_progress()
        super().on_response_complete()

    def pause_writing(self) -> None:
        self._expect_reading()
        super().pause_writing()

    def resume_writing(self) -> None:
        self._write_timer.stop()
        self._note_progress()
        super().resume_writing()

    def _note_progress(self) -> None:
        self._progress_bytes, self._progress_time = 0, self.loop.time()

    def _expect_head(self) -> None:
        self._head_timer.start(self.limits.header_seconds, self.abort)

    def _expect_reading(self, before: int | None = None) -> None:
        """Abort if the client reads nothing. `before`: unsent bytes at the last check."""
        waiting = self.transport.get_write_buffer_size()
        if waiting == before:
            self.abort()
        else:
            self._write_timer.start(self.limits.chunk_seconds, partial(self._expect_reading, waiting))


def _abort(transport: Any) -> None:
    """Close a connection with a reset: otherwise the system goes on to offer its client what it does not read."""
    if (connection := transport.get_extra_info("socket")) is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()


class _TlsProtocol(SSLProtocol):
    """asyncio's TLS, for sockets that are counted in `opened` from their start, before the TLS handshake.

    Otherwise many silent ones would use up the files that this process may open.
    """

    def __init__(self, inner: TimeoutHttpProtocol, context: ssl.SSLContext, opened: OpenConnections) -> None:
        seconds = inner.limits.header_seconds
        super().__init__(
            inner.loop,
            inner,
            context,
            None,  # pyright: ignore[reportArgumentType] - no caller waits for it
            server_side=True,
            ssl_handshake_timeout=seconds,  # pyright: ignore[reportArgumentType] - it may be a fraction
            ssl_shutdown_timeout=seconds,
        )
        self._opened, self._http = opened, inner
        self._socket: Any = None

    @property
    def waiting_since(self) -> float | None:
        """As that of the HTTP within, which waits since the connection was opened until the handshake is done."""
        return self._http.waiting_since

    def abort(self) -> None:
        """Close the connection at once, without TLS's farewell."""
        _abort(self._socket)

    def connection_made(self, transport: Any) -> None:
        self._socket = transport
        if self._opened.admit(self):
            super().connection_made(transport)
        else:
            transport.abort()

    def connection_lost(self, exc: BaseException | None) -> None:
        self._opened.remove(self)
        super().connection_lost(exc)


def make_protocol_factory(limits: Limits, tls: ssl.SSLContext | None = None) -> Any:
    """Make the factory for uvicorn.Config(http=...), which is typed as a class but only called.

    uvicorn must not know of `tls`: it allows a handshake a minute, and any number of connections in it.
    """
    opened = OpenConnections(limits.connections)
    if tls is None:
        return type("LimitedHttpProtocol", (TimeoutHttpProtocol,), {"limits": limits, "opened": opened})
    within_tls = type("LimitedHttpProtocol", (TimeoutHttpProtocol,), {"limits": limits})

    def accept(**kwargs: Any) -> _TlsProtocol:
        return _TlsProtocol(within_tls(**kwargs), tls, opened)

    return accept
