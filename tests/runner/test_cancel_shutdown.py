"""The event loop itself goes down: every task is cancelled at once, and the log still tells the truth."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from tests.runner.desk import SESSION, USER, Desk, Held, kinds, states

from heaveto import LlmAgent, ParallelAgent
from heaveto.agents.base import BaseAgent
from heaveto.agents.context import AgentContext
from heaveto.events.records import CallSettled, CallStarted, Record, RunEnded
from heaveto.stores.memory import MemoryData, MemoryStore
from heaveto.testing import ScriptedModel, call, hang, settle

MakeDesk = Callable[..., Desk]


def test_a_loop_that_shuts_down_closes_its_runs_truly() -> None:
    """asyncio.run ends while a tool works: cause shutdown, the call cancelled, what waits stays queued (F164)."""
    data, ran = MemoryData(), []

    async def main() -> None:
        held = Held()
        at = Desk(call("held"), store=MemoryStore(data), tools=[held.tool()])
        await at.start("one")
        await held.began.wait()
        await at.start("two")
        ran.append(at.model)

    asyncio.run(main())

    async def read() -> list[Record]:
        return await Desk(store=MemoryStore(data)).log()

    records = asyncio.run(read())
    settled = next(record for record in records if isinstance(record, CallSettled))
    assert (settled.status, settled.cause) == ("cancelled", "shutdown")
    ended = [record for record in records if isinstance(record, RunEnded)]
    assert [(record.outcome, record.cause) for record in ended] == [("cancelled", "shutdown")]
    assert "Queued" in kinds(records)
    assert ran[0].calls == 1


async def test_a_call_that_was_recorded_as_started_and_never_began(desk: MakeDesk) -> None:
    """A start is being recorded when the run fails elsewhere: the call is told as not started, which is true (P2)."""
    recording, may_land = asyncio.Event(), asyncio.Event()

    class Slow(MemoryStore):
        async def append(self, key: Any, records: Any, **options: Any) -> int:
            if any(isinstance(record, CallStarted) for record in records):
                recording.set()
                await may_land.wait()
            return await super().append(key, records, **options)

    class Failing(BaseAgent):
        async def run(self, ctx: AgentContext) -> None:
            await recording.wait()
            raise ValueError("bug")

    held = Held()
    worker = LlmAgent("worker", ScriptedModel(call("held")), tools=[held.tool()])
    at = desk(agent=ParallelAgent("par", sub_agents=[worker, Failing("failing")]), store=Slow())
    run = await at.start()
    await recording.wait()
    await settle()
    may_land.set()
    ended = await run.wait()
    assert ended.report is not None
    assert held.calls == 0
    assert (await at.settled())["held"].status == "not_started"
    assert states(ended.report)["held"] == "not_started"


async def test_a_runner_closes_while_a_message_hook_hangs() -> None:
    """Closing does not wait for a message that its hook holds: it is refused, or stays for the next process (F164)."""
    from heaveto import Plugin

    asked = asyncio.Event()

    class Slow(Plugin):
        async def on_user_message(self, *_: object) -> None:
            asked.set()
            await asyncio.Event().wait()

    at = Desk(hang(), plugins=[Slow()])
    starting = asyncio.ensure_future(at.runner.start(user_id=USER, session_id=SESSION, new_message="go", run_id="r"))
    await asked.wait()
    await asyncio.wait_for(at.runner.aclose(), 5)
    await asyncio.gather(starting, return_exceptions=True)
    assert at.model.calls == 0
