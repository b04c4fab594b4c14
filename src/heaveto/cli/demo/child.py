"""The process that the demo kills: the same agent on the same store, with two runs under way.

Started as ``python -m heaveto.cli.demo.child``; writes the streamed text to stdout as it comes.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from heaveto.cli.demo.providers import PROVIDERS
from heaveto.cli.demo.shop import Printer, RefundService, support_agent
from heaveto.events.records import Delta
from heaveto.runner.runner import Runner
from heaveto.stores.sqlite import SqliteStore


async def serve(provider: str, origin: str, store: str, books: str) -> None:
    """Begin a refund in one session and a long answer in another; show the answer until the process dies."""
    agent = support_agent(RefundService(Path(books)), Printer(), PROVIDERS[provider].connect(origin))
    async with Runner(agent, store=SqliteStore(store)) as runner:
        await runner.start(user_id="bo", session_id="killed-tool", new_message="Refund order 9.")
        run = await runner.start(user_id="cy", session_id="killed-text", new_message="Tell me about your shop.")
        async for item in run.stream():
            if isinstance(item, Delta):
                sys.stdout.write(item.text)
                sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(*sys.argv[1:]))
