"""Typed usage of agents, callbacks, plugins and the runner: checked by mypy and pyright, never executed.

What must not type-check carries a ``type: ignore`` that mypy reports as unused once it does.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable
from typing import Any, assert_type

from heaveto import (
    AgentContext,
    App,
    BaseAgent,
    Blob,
    Content,
    LlmAgent,
    LoopAgent,
    MemoryStore,
    ModelRequest,
    Plugin,
    Run,
    RunConfig,
    RunEnded,
    Runner,
    RunStream,
    SequentialAgent,
    SqliteStore,
    StopReport,
    Tool,
    ToolContext,
)
from heaveto.events.contents import Json
from heaveto.stores.base import Store
from heaveto.testing import CrashingStore, ScriptedModel, StoreContract, call, check_promises, say

model = ScriptedModel(say("hi"), call("look", city="Rome"))


# --- agents -----------------------------------------------------------------------------------------------------------


def look(city: str) -> str:
    return city


class Greeter(BaseAgent):
    async def run(self, ctx: AgentContext) -> None:
        assert_type(ctx.input, Content)
        await ctx.say("hello")
        await ctx.run_agent(self)


class Yielding(BaseAgent):
    async def run(self, ctx: AgentContext) -> AsyncIterator[str]:  # type: ignore[override]
        yield "hello"


class Returning(BaseAgent):
    async def run(self, ctx: AgentContext) -> str:  # type: ignore[override]
        return "hello"


agent = LlmAgent("root", model, tools=[look], sub_agents=[Greeter("greeter")])
LoopAgent("loop", sub_agents=(agent,), max_iterations=3)
SequentialAgent("seq", sub_agents=[agent, Greeter("other")])

LlmAgent("x", "anthropic:claude-opus-5", output_schema=dict)
LlmAgent("x", 5)  # type: ignore[arg-type]
LlmAgent("x", ScriptedModel)  # type: ignore[arg-type]
LlmAgent("x")  # type: ignore[call-arg]
LlmAgent("x", model, tools=[1])  # type: ignore[list-item]
LlmAgent("x", model, instruction=5)  # type: ignore[arg-type]
LoopAgent("x", sub_agents=[model])  # type: ignore[list-item]
LoopAgent("x", sub_agents=agent)  # type: ignore[arg-type]


# --- callbacks --------------------------------------------------------------------------------------------------------


def say_text(ctx: AgentContext) -> str:
    return ctx.run_id


async def say_nothing(ctx: AgentContext) -> None: ...


def answer_with_text(ctx: AgentContext, request: ModelRequest) -> str | None:
    return request.agent


async def change_request(ctx: AgentContext, request: ModelRequest) -> ModelRequest:
    return request


def shorten(ctx: AgentContext, answer: Content) -> str:
    return answer.text[:10]


async def excuse(ctx: AgentContext, request: ModelRequest, error: Exception) -> Content | str:
    return str(error)


def refuse(tool: Tool, args: dict[str, Json], ctx: ToolContext) -> dict[str, Json] | None:
    return {"error": tool.name}


def number(ctx: AgentContext, request: ModelRequest) -> int:
    return 5


LlmAgent(
    "x",
    model,
    before_agent_callback=[say_text, say_nothing],
    before_model_callback=[answer_with_text, change_request],
    after_model_callback=shorten,
    on_model_error_callback=excuse,
    before_tool_callback=refuse,
)
LlmAgent("x", model, before_model_callback=number)  # type: ignore[arg-type]
LlmAgent("x", model, before_model_callback=say_text)  # type: ignore[arg-type]
LlmAgent("x", model, before_agent_callback="hello")  # type: ignore[arg-type]


# --- plugins ----------------------------------------------------------------------------------------------------------


class Texts(Plugin):
    async def before_model(self, ctx: AgentContext, request: ModelRequest) -> str:
        return "hello"

    async def after_model(self, ctx: AgentContext, answer: Content) -> Content:
        return answer


class Numbers(Plugin):
    async def before_model(self, ctx: AgentContext, request: ModelRequest) -> int:  # type: ignore[override]
        return 5


# --- runners ----------------------------------------------------------------------------------------------------------

stores: list[Store] = [MemoryStore(), SqliteStore("shop.db"), CrashingStore(MemoryStore(), after=1)]
runner = Runner(agent, store=stores[0], plugins=[Texts()])
Runner(app=App("shop", agent, plugins=[Texts()]))

Runner(model)  # type: ignore[arg-type]
Runner(app=agent)  # type: ignore[arg-type]
Runner(agent, store="shop.db")  # type: ignore[arg-type]
Runner(agent, store=MemoryStore)  # type: ignore[arg-type]
Runner(agent, plugins=[Plugin])  # type: ignore[list-item]
Runner(agent, plugins=Texts())  # type: ignore[arg-type]
App("shop", model)  # type: ignore[arg-type]
RunConfig(30)  # type: ignore[call-arg]
RunConfig(busy_policy="wait")  # type: ignore[arg-type]


async def use() -> None:
    assert_type(runner.run_async(user_id="ann", session_id="s", new_message="hi"), RunStream)
    run = await runner.start(user_id="ann", session_id="s", new_message=Blob(mime_type="image/png", content=b""))
    assert_type(run, Run)
    assert_type(await run.wait(), RunEnded)
    assert_type(await run.cancel(), StopReport)
    assert_type(await run.result(), str)
    check_promises(await runner.records(user_id="ann", session_id="s"))
    await runner.start(user_id="ann", session_id="s", new_message=5)  # type: ignore[arg-type]
    await runner.start(user_id=5, session_id="s", new_message="hi")  # type: ignore[arg-type]
    await runner.start(user_id="ann", session_id="s", new_message=["hi"])  # type: ignore[arg-type]
    await runner.start("ann", "s", "hi")  # type: ignore[call-arg]


class TestMine(StoreContract):
    async def open_store(self) -> Store:
        return stores[0]


contract: type[Any] = TestMine
answers: Awaitable[Run] = runner.start(user_id="ann", session_id="s", new_message="hi")
