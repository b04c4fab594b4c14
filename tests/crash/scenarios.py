"""What the runs of these tests do: one small application per kind of work, and a count of what its tools did."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from heaveto import (
    AgentTool,
    App,
    FunctionTool,
    LlmAgent,
    LoopAgent,
    ParallelAgent,
    Plugin,
    SequentialAgent,
    ToolContext,
)
from heaveto.agents.base import BaseAgent
from heaveto.core.request import ModelRequest
from heaveto.events.contents import text_of
from heaveto.events.records import Replay
from heaveto.runner.application.app import OnShutdown
from heaveto.runner.application.config import OnCrash
from heaveto.runner.application.hooks import RunEnd
from heaveto.testing import ScriptedModel, call, say, usage

GO, NEXT = "go ahead", "and the next thing?"


@dataclass
class World:
    """What is outside of any process: it is there after a crash, too."""

    executions: Counter[str] = field(default_factory=Counter)
    ends: list[RunEnd] = field(default_factory=list)
    holds: bool = False
    """Whether what begins now goes on until it is stopped."""

    async def effort(self) -> None:
        """What a tool does after its effect."""
        await (asyncio.Event().wait() if self.holds else asyncio.sleep(0))

    @property
    def told(self) -> list[str]:
        return [end.run_id for end in self.ends]


class Listener(Plugin):
    """Notes what end hooks are told."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def on_run_end(self, end: RunEnd) -> None:
        self._world.ends.append(end)


class Looker(Plugin):
    """A before-tool hook that takes its time and writes state."""

    async def before_tool(self, tool: Any, args: Any, ctx: ToolContext) -> None:
        await asyncio.sleep(0)
        ctx.state["looked"] = True
        await asyncio.sleep(0)


def make_tools(world: World, replay: Replay = "never") -> list[FunctionTool]:
    async def act(ctx: ToolContext, n: int = 1) -> dict[str, int]:
        """Do something that shows outside."""
        world.executions[ctx.call_id] += 1
        ctx.state[f"acted {n}"] = True
        await world.effort()
        return {"acted": n}

    async def enough(ctx: ToolContext) -> str:
        """End the loop."""
        world.executions[ctx.call_id] += 1
        ctx.escalate = True
        return "enough"

    async def finish(ctx: ToolContext) -> str:
        """End the agent's turn."""
        world.executions[ctx.call_id] += 1
        ctx.end_turn = True
        return "finished"

    return [FunctionTool(function, replay=replay) for function in (act, enough, finish)]


CALLS: dict[str, Sequence[Any]] = {
    "worker": (call("act", n=1),),
    "second": (call("act", n=2),),
    "many": (say("Three at once."), call("act", n=1), call("act", n=2), call("act", n=3)),
    "front": (call("transfer_to_agent", agent_name="worker"),),
    "boss": (call("worker", request="do it"),),
    "stopper": (call("enough"),),
    "last": (call("finish"),),
}


def brain(request: ModelRequest) -> Any:
    """Answer by what is asked, so that any process can go on from any log."""
    last = request.turns[-1]
    spent = usage(10, 5)
    if last.role == "tool":
        return (say(f"{request.agent} has done its part", chunks=3), spent)
    if NEXT in text_of(last.parts):
        return (say("fine"), spent)
    return (*CALLS.get(request.agent, (say("Hello there, friend", chunks=3),)), spent)


def make_model() -> ScriptedModel:
    return ScriptedModel(brain, strict=False)


Build = Callable[[ScriptedModel, list[FunctionTool]], BaseAgent]

SCENARIOS: dict[str, Build] = {
    "text": lambda model, tools: LlmAgent("talker", model),
    "one_tool": lambda model, tools: LlmAgent("worker", model, tools=tools, output_key="answer"),
    "parallel_tools": lambda model, tools: LlmAgent("many", model, tools=tools),
    "transfer": lambda model, tools: LlmAgent("front", model, sub_agents=[LlmAgent("worker", model, tools=tools)]),
    "sequential": lambda model, tools: SequentialAgent(
        "steps", sub_agents=[LlmAgent("worker", model, tools=tools), LlmAgent("second", model, tools=tools)]
    ),
    "parallel": lambda model, tools: ParallelAgent(
        "sides", sub_agents=[LlmAgent("worker", model, tools=tools), LlmAgent("second", model, tools=tools)]
    ),
    "loop": lambda model, tools: LoopAgent(
        "rounds",
        sub_agents=[LlmAgent("worker", model, tools=tools), LlmAgent("stopper", model, tools=tools)],
        max_iterations=2,
    ),
    "agent_tool": lambda model, tools: LlmAgent(
        "boss", model, tools=[AgentTool(LlmAgent("worker", model, tools=tools))]
    ),
    "end_turn": lambda model, tools: LlmAgent("last", model, tools=tools),
    "nested": lambda model, tools: SequentialAgent(
        "whole",
        sub_agents=[
            ParallelAgent(
                "sides", sub_agents=[LlmAgent("worker", model, tools=tools), LlmAgent("second", model, tools=tools)]
            ),
            LoopAgent(
                "rounds",
                sub_agents=[
                    LlmAgent("boss", model, tools=[AgentTool(LlmAgent("many", model, tools=tools), name="worker")]),
                    LlmAgent("stopper", model, tools=tools),
                ],
                max_iterations=2,
            ),
        ],
    ),
    "hook": lambda model, tools: LlmAgent("many", model, tools=tools),
}


def make_app(
    scenario: str,
    world: World,
    model: ScriptedModel | None = None,
    *,
    on_crash: OnCrash = "seal",
    on_shutdown: OnShutdown = "stop",
    replay: Replay = "never",
) -> App:
    """Make a scenario's application anew, as a new process does."""
    plugins: list[Plugin] = [Listener(world)]
    if scenario == "hook":
        plugins.append(Looker())
    agent = SCENARIOS[scenario](model or make_model(), make_tools(world, replay))
    return App("crash", agent, plugins=plugins, on_crash=on_crash, on_shutdown=on_shutdown)
