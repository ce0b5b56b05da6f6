"""The loop behind the synchronous face: one thread, started when it is first needed."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager
from typing import TypeVar

T = TypeVar("T")


@functools.cache
def _loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="dsec-sdk", daemon=True).start()
    return loop


def run(work: Coroutine[object, object, T]) -> T:
    """Carry out `work` on the loop; it is cancelled when the caller is interrupted."""
    future = asyncio.run_coroutine_threadsafe(work, _loop())
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


def iterate(items: AsyncIterator[T]) -> Iterator[T]:
    """The same items, each as it comes."""
    try:
        while True:
            try:
                yield run(_next(items))
            except StopAsyncIteration:
                return
    finally:
        run(_close(items))


@contextlib.contextmanager
def entered(manager: AbstractAsyncContextManager[AsyncIterator[T]]) -> Iterator[Iterator[T]]:
    """A context that gives items."""
    items = run(_enter(manager))
    try:
        yield iterate(items)
    finally:
        run(_leave(manager))


async def _next(items: AsyncIterator[T]) -> T:
    return await anext(items)


async def _enter(manager: AbstractAsyncContextManager[T]) -> T:
    return await manager.__aenter__()


async def _leave(manager: AbstractAsyncContextManager[T]) -> None:
    await manager.__aexit__(None, None, None)


async def _close(items: AsyncIterator[T]) -> None:
    close = getattr(items, "aclose", None)
    if close is not None:
        await close()
