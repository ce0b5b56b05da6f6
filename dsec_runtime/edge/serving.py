"""The edge as a daemon: its sockets, its signals, its end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import structlog
import uvicorn
import uvloop
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp

from dsec_layers.linux import local_socket
from dsec_runtime.alive import watch_peer
from dsec_runtime.edge.app import Guarded, application, local
from dsec_runtime.edge.auth import Tokens
from dsec_runtime.edge.config import EdgeConfig, Tcp
from dsec_runtime.edge.notify import notify
from dsec_runtime.edge.principal import Principal
from dsec_runtime.edge.service import Edge
from dsec_runtime.errors import InvalidRequestError

Build = Callable[[EdgeConfig], AbstractContextManager[Edge]]
SOCKET = "edge.sock"
_BACKLOG = 4096
_log = structlog.get_logger("dsec.edge")


class _Server(uvicorn.Server):
    """One of several in a process, whose signals are handled once for all."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def run(config: EdgeConfig, build: Build) -> None:
    """Serve until SIGTERM, SIGINT or SIGHUP. Raises BusyError, InvalidRequestError, OSError."""
    tokens = Tokens(config.tcp.tokens) if config.tcp else None  # first: without any, no start
    _allow_many_files()
    with build(config) as edge:
        uvloop.run(_serve(config, edge, tokens))


def _allow_many_files() -> None:
    """Each sandbox has a pidfd and a connection, each client a connection."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


async def _serve(config: EdgeConfig, edge: Edge, tokens: Tokens | None) -> None:
    try:
        await edge.start()
        app = application(edge)
        servers = [(_local_server(config, Guarded(app, local)), _local_socket(config))]
        if config.tcp and tokens:
            guarded = Guarded(app, _by_token(tokens))
            servers.append((_tcp_server(config, config.tcp, guarded), _tcp_socket(config.tcp)))
        _handle_signals(edge, [server for server, _ in servers])
        notify(f"READY=1\nMAINPID={os.getpid()}")
        _log.info("serving", socket=str(config.run / SOCKET), tcp=config.tcp and config.tcp.port)
        await asyncio.gather(*(server.serve([listener]) for server, listener in servers))
    finally:
        await edge.close()
        _log.info("ended")


def _handle_signals(edge: Edge, servers: list[_Server]) -> None:
    """A first signal drains; a second one waits for nobody."""

    def end(number: int) -> None:
        _log.info("draining", signal=signal.Signals(number).name)
        notify("STOPPING=1")
        edge.drain()
        for server in servers:
            server.force_exit = server.should_exit
            server.should_exit = True

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, end, number)


def _local_socket(config: EdgeConfig) -> socket.socket:
    config.run.mkdir(mode=0o755, parents=True, exist_ok=True)
    listener = local_socket.listen(config.run, SOCKET)
    listener.setblocking(False)
    return listener


def _tcp_socket(tcp: Tcp) -> socket.socket:
    family = socket.AF_INET6 if ":" in tcp.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    watch_peer(listener)
    try:
        listener.bind((tcp.host, tcp.port))
        listener.listen(_BACKLOG)  # before we say that we are ready
    except OSError as error:
        listener.close()
        raise InvalidRequestError(f"{tcp.host}:{tcp.port}: {error}") from error
    listener.setblocking(False)
    return listener


def _local_server(config: EdgeConfig, app: ASGIApp) -> _Server:
    return _Server(_config(config, app))


def _tcp_server(config: EdgeConfig, tcp: Tcp, app: ASGIApp) -> _Server:
    made = _config(config, app)
    made.ssl_certfile, made.ssl_keyfile = tcp.certificate, tcp.key
    return _Server(made)


def _config(config: EdgeConfig, app: ASGIApp) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http="httptools",
        ws="websockets-sansio",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        backlog=_BACKLOG,
        timeout_keep_alive=120,
        timeout_graceful_shutdown=int(config.drain_s),
        ws_max_size=32 << 20,
        ws_per_message_deflate=False,
    )


def _by_token(tokens: Tokens) -> Callable[[HTTPConnection], Principal]:
    return lambda asked: tokens.principal(asked.headers.get("authorization"))
