"""A call in the background when its runner closes."""

from __future__ import annotations

import asyncio

from tests.runner.desk import Desk

from heaveto import MemoryStore, ToolContext
from heaveto.stores.memory import MemoryData
from heaveto.testing import call, say


async def test_a_call_in_the_background_is_stopped_and_told_when_its_runner_closes() -> None:
    """Its run has ended, its tool works on: closing stops it with cause shutdown, and that is in the log (P2)."""
    data = MemoryData()

    async def build(ctx: ToolContext) -> None:
        """Build."""
        await ctx.detach()
        await asyncio.Event().wait()

    at = Desk(call("build"), say("It goes on."), store=MemoryStore(data), tools=[build])
    await at.ask()
    await at.runner.aclose()

    later = Desk(store=MemoryStore(data))
    assert await later.settlements("build") == [("detached", None, False), ("cancelled", "shutdown", True)]
    await later.runner.aclose()
