"""A task in a container that it has to itself: files in, run, results out."""

from __future__ import annotations

import asyncio
import contextlib
import io
import posixpath
import tarfile
from typing import Final

import msgspec

from dsec_runtime.channel.channel import Channel
from dsec_runtime.channel.process import Process
from dsec_runtime.errors import AgentError, InvalidRequestError, SandboxError
from dsec_runtime.messages import FncallAnswer
from dsec_runtime.spec import ExecEnd, ExecSpec, FncallTask
from dsec_runtime.tiers.fncall.kinds import Kind
from dsec_runtime.tiers.fncall.traces import WORK
from dsec_runtime.tiers.tier import Running

_MODE: Final = 0o755  # a file may be a program


def check(task: FncallTask, kind: Kind) -> None:
    """Raises InvalidRequestError."""
    if not task.code and not task.argv:
        raise InvalidRequestError("a task has code or argv")
    for path in (*task.files, *task.results):
        first = posixpath.normpath(path).split("/")[0]
        if first in ("", ".", "..") or "\0" in path:
            raise InvalidRequestError(
                f"{path!r} is no path below the folder of the task", hint="as in data/input.txt"
            )
    if task.code and not kind.is_inline(task.code) and kind.name in task.files:
        raise InvalidRequestError(f"{kind.name} is the code's own file")


async def run(
    channel: Channel, running: Running, task: FncallTask, kind: Kind, command: str
) -> FncallAnswer:
    """Run a checked task under a name for its command; whose end may not be the whole truth.

    Background processes of it are killed before its results are read. Raises SandboxError;
    CommandFailedError when there is no such program.
    """
    files = dict(task.files)
    argv = task.argv
    if task.code:
        argv = kind.argv(task.code, task.argv)
        if not kind.is_inline(task.code):
            files[kind.name] = task.code.encode()
    if files:
        await channel.upload_tree(WORK, _archive(files))
    spec = ExecSpec(
        argv=argv,
        env={**running.env, "HOME": WORK, **kind.env, **task.env},
        cwd=WORK,
        user=running.user,
        stdin=bool(task.stdin),
        timeout_s=task.timeout_s,
        output_limit_bytes=task.output_limit_bytes,
    )
    process = await channel.exec(spec, command)
    end, stdout, stderr = await _to_end(process, task.stdin)
    if not task.results:
        return FncallAnswer(end=end, stdout=stdout, stderr=stderr)
    await channel.kill(command)
    return await _collect(channel, task, FncallAnswer(end=end, stdout=stdout, stderr=stderr))


async def _to_end(process: Process, data: bytes) -> tuple[ExecEnd, bytes, bytes]:
    feeding = asyncio.ensure_future(_feed(process, data)) if data else None
    kept: dict[str, list[bytes]] = {"stdout": [], "stderr": []}
    try:
        async for stream, _, piece in process:
            kept[stream].append(piece)
        end = await process.wait()
    finally:
        if feeding is not None:
            feeding.cancel()
    return end, b"".join(kept["stdout"]), b"".join(kept["stderr"])


async def _feed(process: Process, data: bytes) -> None:
    with contextlib.suppress(SandboxError):  # the end of the command tells
        await process.write_stdin(data)
        process.close_stdin()


async def _collect(channel: Channel, task: FncallTask, answer: FncallAnswer) -> FncallAnswer:
    """With the results; all together may be as large as the output."""
    files: dict[str, bytes] = {}
    missing: dict[str, str] = {}
    left = task.output_limit_bytes
    for path in dict.fromkeys(task.results):
        try:
            data = await _read(channel, f"{WORK}/{path}", left)
        except AgentError as error:
            missing[path] = error.message
            continue
        if len(data) > left:
            missing[path] = f"the results have more than {task.output_limit_bytes} bytes"
        else:
            files[path] = data
            left -= len(data)
    return msgspec.structs.replace(answer, files=files, missing=missing)


async def _read(channel: Channel, path: str, most: int) -> bytes:
    return b"".join([piece async for piece in channel.read_file(path, 0, most + 1)])


def _archive(files: dict[str, bytes]) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path, data in files.items():
            member = tarfile.TarInfo(posixpath.normpath(path))
            member.size, member.mode = len(data), _MODE
            archive.addfile(member, io.BytesIO(data))
    return made.getvalue()
