"""A refund tool made safe: an answer is lost, the bank hangs, the process dies, and each order is paid back once.

    python examples/safe_refund.py

The model is scripted, so that no key is needed. The bank is a file, which outlives the process. Like a real payment
service it knows idempotency keys: what it has booked under a key it does not book again.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

from heaveto import CallStarted, FunctionTool, LlmAgent, Retry, Runner, SqliteStore, ToolContext
from heaveto.testing import ScriptedModel, call, say
from heaveto.testing.script import Step

BANK, STORE = Path("safe_refund_bank.json"), Path("safe_refund.db")


def booked() -> dict[str, int]:
    """Return what the bank has booked: orders by idempotency key."""
    entries: dict[str, int] = json.loads(BANK.read_text()) if BANK.exists() else {}
    return entries


def book(key: str, order: int) -> None:
    """Book a refund; once for each key."""
    BANK.write_text(json.dumps({**booked(), key: order}))


async def refund_order(order: int, ctx: ToolContext) -> str:
    """Pay an order back."""
    book(ctx.idempotency_key, order)
    if ctx.attempt == 1:
        await something_breaks(order)
    return f"order {order} is paid back"


async def something_breaks(order: int) -> None:
    """Break each first attempt, when the bank has booked and nobody knows it yet."""
    match order:
        case 1:
            raise ConnectionError("the bank's answer was lost")
        case 3:
            os._exit(9)  # the process dies
        case _:
            await asyncio.sleep(60)  # the bank hangs


refund = FunctionTool(
    refund_order,
    replay="idempotent",  # may be executed again with the same key: after a crash, and by `retry`
    retry=Retry(attempts=3, backoff_seconds=0.1, on=(ConnectionError, TimeoutError)),
    timeout_seconds=0.3,  # of an attempt; one that is late is interrupted, fenced and repeated
)


def open_runner(*script: Step) -> Runner:
    """Return a runner on the one store, with a model that plays a script."""
    return Runner(LlmAgent("shop", ScriptedModel(*script), tools=[refund]), store=SqliteStore(STORE))


async def first_life() -> None:
    """Refund three orders, one after another. The third one's first attempt takes the process with it."""
    runner = open_runner(*(call("refund_order", order=order) for order in (1, 2, 3)))
    run = await runner.start(user_id="al", session_id="s1", new_message="Refund orders 1, 2 and 3.")
    await run.wait()


async def second_life() -> None:
    """Go on with the run whose process died, then stop one call of another run."""
    async with open_runner(
        say("Orders 1, 2 and 3 are paid back."),
        (call("refund_order", order=4), say("One moment.")),
        say("You stopped the refund of order 4; I will ask the bank what became of it."),
    ) as runner:
        (run_id,) = await runner.recover()
        print(await (await runner.attach(run_id)).result())
        for record in await runner.records(user_id="al", session_id="s1"):
            if isinstance(record, CallStarted):
                why = f", after {record.previous.type}" if record.previous is not None else ""
                print(f"  {record.call_id}: attempt {record.attempt}{why}")
        print(f"The bank has booked: {sorted(booked().values())}")

        run = await runner.start(user_id="al", session_id="s1", new_message="Refund order 4, too.")
        async for item in run.stream():
            if isinstance(item, CallStarted):  # Stop was clicked beside this one call; the run goes on
                settled = await runner.cancel_call(run.run_id, item.call_id, by="al")
                print(f"order 4: {settled.status if settled else 'still at work'}")
        print(await run.result())


if __name__ == "__main__":
    if "--first" in sys.argv:
        asyncio.run(first_life())
    else:
        for file in (BANK, *Path().glob(f"{STORE}*")):
            file.unlink(missing_ok=True)
        died = subprocess.run([sys.executable, __file__, "--first"], check=False)
        print(f"The first process died with {died.returncode}.")
        asyncio.run(second_life())
