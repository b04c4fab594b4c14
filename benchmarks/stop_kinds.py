"""Tools of every kind, each of which works on until it is stopped. `stop_tools` times their stops.

Each says that it is at work by making the file `begun`. A module of its own, since worker processes import from it.
"""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path

from heaveto import ToolContext
from heaveto.tools.command import run_command


async def coroutine(begun: str) -> None:
    """Wait."""
    Path(begun).touch()
    await asyncio.Event().wait()


async def swallows_once(begun: str) -> None:
    """Take no notice of the first interruption."""
    try:
        await coroutine(begun)
    except asyncio.CancelledError:
        await asyncio.Event().wait()


def polite_thread(begun: str, ctx: ToolContext) -> None:
    """Block a thread, and leave it when told to."""
    told = threading.Event()
    ctx.on_cancel(told.set)
    Path(begun).touch()
    told.wait()
    ctx.raise_if_cancelled()


def polling_thread(begun: str, ctx: ToolContext) -> None:
    """Block a thread, and look every ten milliseconds whether to leave it."""
    Path(begun).touch()
    while True:
        ctx.raise_if_cancelled()
        time.sleep(0.01)


def deaf_process(begun: str) -> None:
    """Block, whatever happens: of use with ``isolation="process"``."""
    Path(begun).touch()
    time.sleep(3600)


async def command(begun: str, ctx: ToolContext) -> None:
    """Run a command that ends when it is told to."""
    await run_command(["sh", "-c", f"touch {begun}; sleep 3600 & wait"], ctx=ctx)


async def deaf_command(begun: str, ctx: ToolContext) -> None:
    """Run a command that takes no notice of TERM, and so is killed after half a second."""
    await run_command(["sh", "-c", f"trap '' TERM; touch {begun}; sleep 3600 & wait; wait"], ctx=ctx, term_seconds=0.5)
