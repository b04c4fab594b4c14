"""The processes that the demo kills: the same agent on the same store.

Started as ``python -m heaveto.cli.demo.child work`` or ``ask``.
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


async def work(runner: Runner) -> None:
    """Begin a refund in one session and a long answer in another; write the answer to stdout as it comes."""
    await runner.start(user_id="bo", session_id="killed-tool", new_message="Refund order 9.")
    run = await runner.start(user_id="cy", session_id="killed-text", new_message="Tell me about your shop.")
    async for item in run.stream():
        if isinstance(item, Delta):
            _say(item.text)


async def ask(runner: Runner) -> None:
    """Begin what needs a person's yes; write to stdout how the run stands once it waits."""
    text = "Order 10 came broken. Send a voucher over 500."
    run = await runner.start(user_id="di", session_id="voucher", new_message=text)
    await run.ending_or_pause()
    _say(run.status)


def _say(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


async def serve(task: str, provider: str, origin: str, store: str, books: str) -> None:
    """Do a task, and stay until the process dies."""
    agent = support_agent(RefundService(Path(books)), Printer(), PROVIDERS[provider].connect(origin))
    async with Runner(agent, store=SqliteStore(store)) as runner:
        await {"work": work, "ask": ask}[task](runner)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(*sys.argv[1:]))
