"""Stop a run in the middle of its work, see what became of it, and go on.

    python examples/stop_a_run.py

The model is scripted, so that no key is needed; `OpenAIChat("gpt-5-mini")` in its place asks a real one.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from heaveto import CallStarted, LlmAgent, RunConfig, Runner
from heaveto.testing import ScriptedModel, call, say

page_done = threading.Event()


async def refund_order(order: int) -> dict[str, Any]:
    """Refund an order. Waits for the bank, and can be stopped."""
    await asyncio.sleep(60)
    return {"order": order, "refunded": True}


def print_letter(order: int) -> dict[str, Any]:
    """Print a letter. A blocking driver, which nothing can stop."""
    page_done.wait()
    return {"order": order, "printed": True}


async def main() -> None:
    """Stop a run, and send the next message."""
    model = ScriptedModel(
        (call("refund_order", order=7), call("print_letter", order=7)),
        say("The refund was stopped before the bank confirmed it, and the letter is still being printed."),
        say("The letter is printed now."),
    )
    agent = LlmAgent("support", model, tools=[refund_order, print_letter])
    config = RunConfig(cancel_grace_seconds=0.2)
    async with Runner(agent) as runner:
        run = await runner.start(
            user_id="al", session_id="s1", new_message="Refund order 7 by letter.", run_config=config
        )
        started = 0
        async for record in run.stream():
            started += isinstance(record, CallStarted)
            if started == 2:
                break

        report = await run.cancel(by="al")
        for work in report.operations:
            print(f"{work.name}: {work.state}")

        # The next message is accepted, and the model is told what is known of each call.
        run = await runner.start(user_id="al", session_id="s1", new_message="What happened?")
        print(await run.result())
        for turn in model.requests[-1].turns:
            for result in turn.responses:
                print(f"  told of {result.name}: {result.response['error']}")

        # The letter's result comes late: it is recorded, and told with the next message.
        page_done.set()
        await asyncio.sleep(0.1)
        run = await runner.start(user_id="al", session_id="s1", new_message="Anything new?")
        print(await run.result())


if __name__ == "__main__":
    asyncio.run(main())
