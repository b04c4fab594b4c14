"""A runner that is closed over an agent in the background, and hands it over."""

from __future__ import annotations

from typing import Any

import pytest

from heaveto import AgentTool, App, LlmAgent, MemoryStore, Runner
from heaveto.events.records import CallSettled, SessionKey
from heaveto.stores.memory import MemoryData
from heaveto.testing import ScriptedModel, call, gate, say

WHO: dict[str, Any] = {"user_id": "ann", "session_id": "s"}


def open_runner(data: MemoryData, inner: ScriptedModel, outer: ScriptedModel) -> Runner:
    helper = AgentTool(LlmAgent("inner", inner), background=True)
    root = LlmAgent("outer", outer, tools=[helper])
    return Runner(app=App("desk", root, on_shutdown="hand_over"), store=MemoryStore(data))


@pytest.mark.timeout(20)
async def test_the_outcome_of_an_agent_that_was_handed_over_comes_home() -> None:
    """Its run goes on in the next process, and its call is settled late with what comes of it: nothing else (P2)."""
    data, door = MemoryData(), gate()
    outer = ScriptedModel(call("inner", request="t"), say("Begun."))
    runner = open_runner(data, ScriptedModel((say("Half"), door)), outer)
    run = await runner.start(**WHO, new_message="go")
    await run.wait()
    await door.reached()
    await runner.aclose()
    async with open_runner(data, ScriptedModel(say("Whole.")), ScriptedModel(say("Heard."))) as runner:
        await runner.recover()
    store = MemoryStore(data)
    log = await store.read(SessionKey("desk", "ann", "s"))
    await store.aclose()
    late = [(one.status, one.response) for one in log if isinstance(one, CallSettled) and one.late]
    assert late == [("succeeded", {"result": "Whole."})]
