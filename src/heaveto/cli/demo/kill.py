"""The processes that are killed, seen from outside."""

from __future__ import annotations

import asyncio
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from heaveto.cli.demo.show import DemoError, Show

_SAFE_SECONDS = 0.5
_PATIENCE_SECONDS = 20.0
_ENOUGH_SECONDS = 0.9


@dataclass(frozen=True, slots=True)
class Wreck:
    """What was seen of a process before it was killed: all streamed text, and that which came half a second before."""

    seen: str
    safe: str


async def killed_at_work(show: Show) -> Wreck:
    """Start a process, watch it until its refund is paid and its answer half said, and kill it.

    Raises:
        DemoError: it did not come so far.
    """
    show.sessions.update({"bo/killed-tool": 0, "cy/killed-text": 0})
    async with _process(show, "work") as process:
        show.stage.line("user bo", "Refund order 9.")
        show.stage.line("user cy", "Tell me about your shop.")
        return await _watch(show, process)


async def killed_while_it_waits(show: Show) -> str:
    """Start a process, wait until its run waits for a person, kill it, and return how its run stood.

    Raises:
        DemoError: it did not come so far.
    """
    show.sessions["di/voucher"] = 0
    async with _process(show, "ask") as process:
        show.stage.line("user di", "Order 10 came broken. Send a voucher over 500.")
        return await _read(process)


@asynccontextmanager
async def _process(show: Show, task: str) -> AsyncGenerator[Process, None]:
    """A process that does a task; killed on leaving."""
    where = (show.provider, show.emulator.anthropic_url, str(show.store), str(show.books))
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "heaveto.cli.demo.child", task, *where, stdout=PIPE
    )
    try:
        show.stage.line("process", f"{process.pid} is started", "quiet")
        async with asyncio.timeout(_PATIENCE_SECONDS):
            yield process
    except TimeoutError:
        raise DemoError("the process that was to be killed never got under way") from None
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _read(process: Process) -> str:
    assert process.stdout is not None
    piece = (await process.stdout.read(4096)).decode()
    if not piece:
        raise DemoError(f"the process that was to be killed ended by itself, with code {await process.wait()}")
    return piece


async def _watch(show: Show, process: Process) -> Wreck:
    came: list[tuple[float, str]] = []
    seen = ""
    while not came or time.monotonic() < came[0][0] + _ENOUGH_SECONDS or not show.service.payments(9):
        piece = await _read(process)
        show.stage.stream(piece)
        came.append((time.monotonic(), piece))
        seen += piece
    process.kill()
    now = time.monotonic()
    await process.wait()
    return Wreck(seen, "".join(piece for at, piece in came if at < now - _SAFE_SECONDS))
