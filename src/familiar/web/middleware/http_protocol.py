"""Connections that say nothing, or never stop: uvicorn has no limit on how long a request's head may take or be."""

import asyncio
import ssl
from asyncio.sslproto import SSLProtocol
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from familiar.web.settings import Limits

MAX_UNPARSED_BYTES = 65_536  # of a head, trailers or a chunk's extensions, which uvicorn would gather without end


class _Timer:
    """Calls once, after a while, unless it is stopped before."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._handle: asyncio.TimerHandle | None = None

    @property
    def runs(self) -> bool:
        return self._handle is not None

    def start(self, seconds: float, call: Callable[[], object]) -> None:
        self.stop()
        self._handle = self._loop.call_later(seconds, call)

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._handle = None


class TimeoutHttpProtocol(HttpToolsProtocol):
    """uvicorn's HTTP/1.1, which also closes a connection that

    - has not brought a whole head within header_seconds of connecting, or of the first byte after the last answer,
    - brings more than UNREAD_BYTES that are neither a head's end nor part of a body,
    - takes nothing of its answer for chunk_seconds,
    - is one too many: beyond limits.connections.
    """

    limits: ClassVar[Limits] = Limits()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._head_timer, self._write_timer = _Timer(self.loop), _Timer(self.loop)
        self._unread_bytes = 0

    def connection_made(self, transport: Any) -> None:  # uvloop's are no asyncio.Transport
        super().connection_made(transport)
        if len(self.connections) > self.limits.connections:
            transport.abort()
        else:
            self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_timer.stop()
        self._write_timer.stop()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        # Between requests anything starts the clock: the rest of a body we did not want, and the empty lines that may
        # stand before a head, would keep the connection open for ever.
        if not self._head_timer.runs and (self.cycle is None or self.cycle.response_complete):
            self._expect_head()
        self._unread_bytes += len(data)
        super().data_received(data)
        if self._unread_bytes > MAX_UNPARSED_BYTES:
            self.transport.abort()

    def on_headers_complete(self) -> None:
        self._head_timer.stop()
        self._unread_bytes = 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._unread_bytes = 0
        super().on_body(body)

    def pause_writing(self) -> None:
        self._expect_taken()
        super().pause_writing()

    def resume_writing(self) -> None:
        self._write_timer.stop()
        super().resume_writing()

    def _expect_head(self) -> None:
        self._head_timer.start(self.limits.header_seconds, self.transport.abort)

    def _expect_taken(self, before: int | None = None) -> None:
        """`before`: bytes that waited to be taken when we last looked."""
        waiting = self.transport.get_write_buffer_size()
        if waiting == before:
            self.transport.abort()
        else:
            self._write_timer.start(self.limits.chunk_seconds, partial(self._expect_taken, waiting))


class _TlsProtocol(SSLProtocol):
    """TLS as asyncio does it, for sockets that are counted in `opened` from the first and not only once they speak TLS:
    a crowd of silent ones would use up the files that this process may open."""

    def __init__(self, inner: TimeoutHttpProtocol, context: ssl.SSLContext, opened: set["_TlsProtocol"]) -> None:
        seconds = inner.limits.header_seconds
        super().__init__(
            inner.loop,
            inner,
            context,
            None,  # pyright: ignore[reportArgumentType] - nobody waits for it
            server_side=True,
            ssl_handshake_timeout=seconds,  # pyright: ignore[reportArgumentType] - it may be a fraction
            ssl_shutdown_timeout=seconds,
        )
        self._opened, self._most = opened, inner.limits.connections

    def connection_made(self, transport: Any) -> None:
        if len(self._opened) >= self._most:
            transport.abort()
        else:
            self._opened.add(self)
            super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._opened.discard(self)
        super().connection_lost(exc)


def make_protocol_factory(limits: Limits, tls: ssl.SSLContext | None = None) -> Any:
    """For uvicorn.Config(http=...), which asks for a class and only calls it. uvicorn is to know nothing of `tls`: it
    gives that a minute, and has no bound on how many connections are at it."""
    plain = type("Handshake", (TimeoutHttpProtocol,), {"limits": limits})
    if tls is None:
        return plain
    opened: set[_TlsProtocol] = set()

    def accept(**said: Any) -> _TlsProtocol:
        return _TlsProtocol(plain(**said), tls, opened)

    return accept
