"""Requests after pauses and stops carry the whole conversation: nothing of it is held by a provider, so nothing there
can be out of step."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tests.runner.desk import Desk, Held

from heaveto import Compaction, LlmAgent, RunConfig
from heaveto.core.request import ModelRequest
from heaveto.events.contents import FunctionCall
from heaveto.events.records import Compacted
from heaveto.testing import ScriptedModel, call, gate, say
from heaveto.tools.function import FunctionTool

MakeDesk = Callable[..., Desk]


def unpaired(request: ModelRequest) -> list[str]:
    """Return the calls of a request that have not exactly one result in it."""
    calls = [part.call_id for turn in request.turns for part in turn.parts if isinstance(part, FunctionCall)]
    results = [response.call_id for turn in request.turns for response in turn.responses]
    return [call_id for call_id in calls if results.count(call_id) != 1]


async def pay() -> str:
    """Pay."""
    return "paid"


async def test_two_approvals_one_after_the_other(desk: MakeDesk) -> None:
    """The request behind the second pause has both calls, each with its one result (F40)."""
    at = desk(call("pay"), call("pay"), say("both"), tools=[FunctionTool(pay, require_confirmation=True)])
    run = await at.start()
    for _ in range(2):
        await run.ending_or_pause()
        (question,) = await at.runner.questions(user_id="ann", session_id="s")
        await at.runner.answer(run.run_id, question.call_id)
    assert await run.result() == "both"
    assert [unpaired(request) for request in at.model.requests] == [[], [], []]
    assert len([part for turn in at.model.requests[-1].turns for part in turn.responses]) == 2


async def test_a_call_that_was_streamed_before_a_stop_has_a_result_in_the_next_request(desk: MakeDesk) -> None:
    """Whatever the provider saw of the stopped answer, the next request brings call and result together (F39)."""
    held = Held()
    at = desk(call("held"), say("ok"), tools=[held.tool()])
    run = await at.start()
    await held.began.wait()
    await run.cancel()
    await at.ask("next")
    assert unpaired(at.model.requests[-1]) == []


async def test_summaries_never_overlap() -> None:
    """Whatever makes one due, they are written in the session's one lane, one after another (F81)."""
    door, at_work, most = gate(), 0, 0

    class Counting(ScriptedModel):
        async def generate(self, request: ModelRequest):  # type: ignore[no-untyped-def, override]
            nonlocal at_work, most
            at_work, most = at_work + 1, max(most, at_work + 1)
            try:
                async for chunk in super().generate(request):
                    yield chunk
            finally:
                at_work -= 1

    writer = Counting((door, say("summary")), say("another"), strict=False)
    compaction = Compaction(model=writer, after_runs=1, after_tokens=1, keep_runs=0)
    agent = LlmAgent("root", ScriptedModel(say("one"), say("two"), say("three")))
    at = Desk(agent=agent, app_options={"compaction": compaction})
    await at.ask("a")
    await door.reached()
    door.open()
    await at.until(lambda log: any(isinstance(record, Compacted) for record in log))
    await asyncio.gather(*(at.ask(text, RunConfig()) for text in ("b", "c")))
    await at.runner.aclose()
    assert most == 1
