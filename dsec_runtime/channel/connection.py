"""The connection to a sandbox's agent: requests, and what survives its breaking."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Self

from dsec_runtime.channel import frames, replies
from dsec_runtime.channel.calls import Call
from dsec_runtime.channel.exchange import Exchange
from dsec_runtime.channel.frames import Tag, Type, Value
from dsec_runtime.channel.link import Link
from dsec_runtime.channel.process import Process
from dsec_runtime.errors import LostError, RequestTimeoutError, SandboxError

_ANSWER_S: Final = 60.0


class Connection:
    """What `Channel` stands on, and speaks of.

    A connection that breaks is made again once; then processes are found again, single requests
    are sent again where that does no harm, and other exchanges fail.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = path
        self._link: Link | None = None
        self._recovery: asyncio.Task[Link] | None = None
        self._instance = b""
        self._processes: set[Process] = set()
        self._over: SandboxError | None = None
        self.features = 0

    @classmethod
    async def connect(cls, path: str | Path) -> Self:
        """Connect to the socket on which the agent listens. Raises EdgeUnreachableError."""
        channel = cls(path)
        link = await Link.connect(path, channel._lost)
        channel._link, channel._instance, channel.features = link, link.instance, link.features
        return channel

    def close(self) -> None:
        """Leave; the sandbox and its commands go on."""
        self._give_up(LostError("the channel to the sandbox was closed"))
        if self._link is not None:
            self._link.close()

    # the connection

    def _lost(self, link: Link) -> None:
        if self._over is None and self._link is link:
            self._link = None
            self._recovery = asyncio.get_running_loop().create_task(self._recover())

    async def _recover(self) -> Link:
        try:
            link = await Link.connect(self._path, self._lost)
            if link.instance != self._instance:
                link.close()
                raise LostError("another agent answers in its place")
        except SandboxError as error:
            lost = LostError(f"the sandbox is gone: {error.message}")
            self._give_up(lost)
            raise lost from error
        self._link, self._recovery = link, None
        for process in list(self._processes):
            process.begin(link)
        return link

    def _give_up(self, error: SandboxError) -> None:
        self._over = self._over or error
        for process in list(self._processes):
            process.fail(error)
        if self._recovery is not None:
            # Its error is this one, and who needs it reads it here.
            self._recovery.add_done_callback(lambda task: task.cancelled() or task.exception())

    async def ready(self) -> Link:
        """The connection that is there or is just being made again. Raises LostError."""
        if self._over is not None:
            raise self._over
        if self._link is not None:
            return self._link
        assert self._recovery is not None
        return await asyncio.shield(self._recovery)

    # requests

    async def ask(
        self,
        kind: Type,
        fields: Sequence[tuple[int, Value]] = (),
        *,
        path: str | None = None,
        command: str | None = None,
        again: bool = True,
        timeout_s: float = _ANSWER_S,
    ) -> bytes:
        """One request and the payload of its answer.

        It is sent again after a broken connection when doing it twice does no harm (`again`).
        Raises what `replies.error_of` makes of an error, RequestTimeoutError and LostError.
        """
        request = frames.encode_fields(fields)
        for attempt in (1, 2):
            link = await self.ready()
            try:
                async with asyncio.timeout(timeout_s):
                    answer = await Call(link, kind, request).answer()
            except TimeoutError as error:
                raise RequestTimeoutError(
                    f"the agent of the sandbox did not answer within {timeout_s} s"
                ) from error
            except ConnectionError as error:
                if again and attempt == 1:
                    continue
                raise RequestTimeoutError(
                    "the connection to the sandbox broke; the request may have been carried out"
                ) from error
            if answer.type == Type.ERROR:
                found = frames.fields_of(answer.payload)
                raise replies.error_of(found, path=path, command=command)
            return answer.payload
        raise AssertionError

    async def ping(self, timeout_s: float = 10.0) -> None:
        """Wait for the agent's answer. Raises RequestTimeoutError and LostError."""
        await self.ask(Type.PING, timeout_s=timeout_s)

    async def exchange(
        self, kind: Type, fields: Sequence[tuple[int, Value]], *, path: str | None = None
    ) -> Exchange:
        """A request that goes on with data; close it. `path` is named in errors of it."""
        link = await self.ready()
        return Exchange(link, kind, frames.encode_fields(fields), path)

    def finished(self, process: Process) -> None:
        """What a process of this channel says when nothing more comes to it."""
        self._processes.discard(process)

    async def kill(self, command: str) -> None:
        """Kill all processes of a command, also those that it left in the background.

        Returns when they are gone. Raises UnknownSandboxError.
        """
        await self.ask(Type.KILL, [(Tag.ID, command)], command=command)
