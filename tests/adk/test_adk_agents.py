"""Every agent of an app hears of its lost calls; none is told that a call is lost which others have in the works."""

from __future__ import annotations

import pytest
from google.adk.agents import SequentialAgent
from google.adk.agents.callback_context import CallbackContext
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.tools.agent_tool import AgentTool
from google.genai import types
from tests.adk.world import ScriptedLlm, World, agent, call, next_request, shape, turn

from heaveto.adk import ToolCallRepairPlugin
from heaveto.adk.complete import Standpoint, complete


async def pay(amount: int) -> dict[str, int]:
    """Pays."""
    return {"paid": amount}


class Counting(ToolCallRepairPlugin):
    """Notes whose requests it is shown."""

    def __init__(self) -> None:
        super().__init__()
        self.agents: list[str] = []

    async def before_model_callback(
        self, *, callback_context: CallbackContext, llm_request: LlmRequest
    ) -> LlmResponse | None:
        self.agents.append(callback_context.agent_name)
        return await super().before_model_callback(callback_context=callback_context, llm_request=llm_request)


async def test_a_sub_agent_hears_of_its_own_lost_call() -> None:
    """The conversation was handed to a sub-agent, whose call was cut off; its next turn hears of it."""
    root_llm = ScriptedLlm.of([call("transfer_to_agent", agent_name="till")])
    till_llm = ScriptedLlm.of([call("pay", amount=3)], "Paid?")
    till = agent(till_llm, pay, name="till", description="Pays.")
    world = World(agent(root_llm, name="root", sub_agents=[till]), ToolCallRepairPlugin())
    await world.run("pay 3", until=lambda e: any(c.name == "pay" for c in e.get_function_calls()))
    request = await next_request(world, till_llm)
    assert shape(request)[-3:] == ["M:pay()", "R:pay=unknown", "U:go on"]


async def test_what_another_agent_lost_is_quoted_with_its_result() -> None:
    """google-adk shows an agent what others did as quotations; the lost call's result is one of them."""
    llm = ScriptedLlm.of("Paid?")
    world = World(agent(llm, pay), ToolCallRepairPlugin())
    await world.stored(
        turn("user", types.Part(text="pay 3")),
        turn("till", call("pay", "adk-1", amount=3)),
    )
    request = await next_request(world, llm)
    quoted = [line for line in shape(request) if "unknown" in line]
    assert len(quoted) == 1 and "[till]" in quoted[0]


@pytest.mark.filterwarnings("ignore:SequentialAgent is deprecated:DeprecationWarning")
async def test_the_agents_of_a_workflow() -> None:
    """Each agent of a workflow is covered, by the plugin of the app."""
    first, second = ScriptedLlm.of("one", "one"), ScriptedLlm.of([call("pay", amount=3)], "two")
    workflow = SequentialAgent(name="work", sub_agents=[agent(first, name="first"), agent(second, pay, name="second")])
    plugin = Counting()
    world = World(workflow, plugin)
    await world.run("pay 3", until=lambda e: bool(e.get_function_calls()))
    await next_request(world, second)
    assert plugin.agents == ["first", "second", "first", "second"]
    assert "R:pay=unknown" in shape(second.requests[-1])


async def test_an_agent_as_a_tool_has_the_plugin_too() -> None:
    """google-adk hands an app's plugins to the runner inside of an AgentTool."""
    inner = ScriptedLlm.of([call("pay", amount=3)], "paid")
    outer = ScriptedLlm.of([call("till", request="pay 3")], "Done.")
    plugin = Counting()
    world = World(agent(outer, AgentTool(agent(inner, pay, name="till", description="Pays."))), plugin)
    await world.run("pay 3")
    assert plugin.agents == ["shop", "till", "till", "shop"]


async def test_an_agent_as_a_tool_that_was_cut_off_is_told() -> None:
    """To the agent around it, an agent as a tool is a call as any other."""
    outer = ScriptedLlm.of([call("till", request="pay 3")], "Paid?")
    till = agent(ScriptedLlm.of(), pay, name="till", description="Pays.")
    world = World(agent(outer, AgentTool(till)), ToolCallRepairPlugin())
    await world.run("pay 3", until=lambda e: bool(e.get_function_calls()))
    request = await next_request(world, outer)
    assert shape(request) == ["U:pay 3", "M:till()", "R:till=unknown", "U:go on"]


async def test_a_call_in_the_works_around_an_agent_is_not_told_as_lost() -> None:
    """An agent that runs within another one's call, in the same invocation, sees it open: it is not interrupted."""
    llm = ScriptedLlm.of("Done.")
    world = World(agent(llm, pay), ToolCallRepairPlugin())

    async def begin(callback_context: CallbackContext) -> None:
        mine = callback_context.invocation_id
        event = turn("boss", call("delegate", "adk-1", to="shop"), invocation=mine)
        context = callback_context.get_invocation_context()
        await context.session_service.append_event(context.session, event)

    world.agent.before_agent_callback = begin  # type: ignore[attr-defined]
    await world.run("go")
    assert not any("unknown" in line for line in shape(llm.requests[-1]))


def test_a_task_that_waits_for_the_user_is_pending() -> None:
    """A call that handed work to an agent in a scope of its own is not lost while that agent waits."""
    events = [
        turn("user", types.Part(text="plan")),
        turn("shop", call("planner", "adk-1", request="plan")),
        turn("planner", types.Part(text="Where to?"), isolation_scope="adk-1"),
    ]
    changes = complete(events, Standpoint("e-2", "shop", None, None), {}).changes
    assert [(change.name, change.known) for change in changes] == [("planner", "pending")]
