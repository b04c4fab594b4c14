"""A support agent with a refund tool. Chat with it:

    heaveto run examples/support_agent.py:app                      # a scripted model: no key needed
    OPENAI_API_KEY=... heaveto run examples/support_agent.py:app   # a real one

Press Ctrl-C while it answers, or while the bank takes its time, and go on talking. Run as a program it plays two turns.
"""

from __future__ import annotations

import asyncio
import os

from heaveto import App, LlmAgent, Model, OpenAIChat, Runner, ToolContext
from heaveto.testing import ScriptedModel, call, say

BANK_SECONDS = 1.0


async def refund_order(order: int, ctx: ToolContext) -> dict[str, object]:
    """Refund an order.

    Args:
        order: the number of the order.
    """
    # Hand the key to the payment service: it stays the same over crashes, resumes and machines.
    key = ctx.idempotency_key
    await asyncio.sleep(BANK_SECONDS)
    return {"order": order, "refunded": True, "idempotency_key": key}


def choose_model() -> Model:
    """Return OpenAI's model where there is a key, else one that plays a script."""
    if os.environ.get("OPENAI_API_KEY"):
        return OpenAIChat("gpt-5-mini")  # base_url="http://localhost:11434/v1" for a server of your own
    return ScriptedModel(
        call("refund_order", order=7),
        say("Order 7 is refunded: the money is on its way.", chunks=12),
        say("You are welcome. (This was the script; set OPENAI_API_KEY for a real model.)", chunks=12),
        strict=False,
    )


app = App(
    "support",
    LlmAgent(
        "support",
        choose_model(),
        instruction="You are the support agent of a small shop. Refund orders when customers ask for it.",
        tools=[refund_order],
    ),
)


async def main() -> None:
    """Play two turns of one session and print what is said."""
    async with Runner(app=app) as runner:
        for text in ("Please refund order 7.", "Thank you!"):
            print(f"> {text}")
            run = await runner.start(user_id="al", session_id="s1", new_message=text)
            print(await run.result())


if __name__ == "__main__":
    asyncio.run(main())
