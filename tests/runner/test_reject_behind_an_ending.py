"""The policy ``reject`` refuses a message while a run goes on, not while its end hook is told."""

from __future__ import annotations

import asyncio

import pytest

from heaveto import LlmAgent, Plugin, RunConfig, RunEnd, Runner
from heaveto.errors import SessionBusyError
from heaveto.testing import ScriptedModel, gate, say

REJECT = RunConfig(busy_policy="reject")


class SlowBooking(Plugin):
    def __init__(self) -> None:
        self.asked, self.may_end = asyncio.Event(), asyncio.Event()

    async def on_run_end(self, end: RunEnd) -> None:
        self.asked.set()
        await self.may_end.wait()


async def test_a_message_behind_a_stop_is_not_rejected_for_the_end_hook() -> None:
    """When `cancel` has returned, the next message is taken, although the stopped run's end hook still works."""
    door, booking = gate(), SlowBooking()
    model = ScriptedModel((say("a"), door), say("b"))
    async with Runner(LlmAgent("root", model), plugins=[booking]) as runner:
        run = await runner.start(user_id="ann", session_id="s", new_message="one")
        await door.reached()
        with pytest.raises(SessionBusyError):
            await runner.start(user_id="ann", session_id="s", new_message="two", run_config=REJECT)
        await run.cancel()
        await booking.asked.wait()
        next_run = await runner.start(user_id="ann", session_id="s", new_message="three", run_config=REJECT)
        with pytest.raises(SessionBusyError):
            await runner.start(user_id="ann", session_id="s", new_message="four", run_config=REJECT)
        booking.may_end.set()
        assert await next_run.result() == "b"
