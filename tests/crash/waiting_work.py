"""What the runs with pauses do: one small application per kind of waiting call, and whoever answers its questions."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.crash.deaths import HERE, KEY
from tests.crash.scenarios import GO, NEXT

from heaveto import (
    AgentTool,
    App,
    FunctionTool,
    LlmAgent,
    LoopAgent,
    ParallelAgent,
    Plugin,
    Run,
    Runner,
    SequentialAgent,
    ToolContext,
)
from heaveto.agents.base import BaseAgent
from heaveto.core.request import ModelRequest
from heaveto.events.contents import text_of
from heaveto.events.records import Answered, Replay, RunEnded
from heaveto.runner.application.app import OnShutdown
from heaveto.runner.application.hooks import RunEnd
from heaveto.runner.session.desk import Question
from heaveto.testing import ScriptedModel, call, hang, say, usage
from heaveto.tools.base import Tool
from heaveto.tools.outside import ClientTool, LongRunningFunctionTool, RequestInputTool

ANSWERS: dict[str, dict[str, Any]] = {
    "pay": {"value": "go on"},
    "mail": {},
    "drop": {"accept": False, "value": "keep it"},
    "careful": {"value": "sure"},
    "request_input": {"value": "blue"},
    "locate": {"value": {"lat": 1.5}},
    "dig": {"value": {"dug": 7}},
    "ship": {"value": {"shipped": True}},
}
"""What people say to each tool's question."""
WITH_YES = {"pay", "mail", "drop", "careful"}


@dataclass
class World:
    """What is outside of any process."""

    effects: Counter[str] = field(default_factory=Counter)
    ends: list[RunEnd] = field(default_factory=list)
    holds: bool = False
    """Whether what begins now goes on until it is stopped."""

    @property
    def told(self) -> list[str]:
        return [end.run_id for end in self.ends]


class Listener(Plugin):
    """Notes what end hooks are told."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def on_run_end(self, end: RunEnd) -> None:
        self._world.ends.append(end)


def make_tools(world: World, replay: Replay) -> dict[str, Tool]:
    async def effect(ctx: ToolContext) -> None:
        world.effects[ctx.call_id] += 1
        await (asyncio.Event().wait() if world.holds else asyncio.sleep(0))

    async def pay(ctx: ToolContext) -> str:
        """Pay, which wants a yes."""
        assert ctx.confirmation is not None and ctx.confirmation.payload == "go on"
        await effect(ctx)
        return "paid"

    async def mail(ctx: ToolContext) -> str:
        """Send a mail, which wants a yes."""
        assert ctx.confirmation is not None
        await effect(ctx)
        return "sent"

    async def drop(ctx: ToolContext) -> str:
        """Drop everything, to which people say no."""
        await effect(ctx)
        return "dropped"

    async def look(ctx: ToolContext) -> str:
        """Look, which anyone may."""
        await effect(ctx)
        return "seen"

    async def careful(ctx: ToolContext) -> str:
        """Look first, and ask then."""
        if ctx.confirmation is None:
            ctx.request_confirmation("really?")
            return "asked"
        await effect(ctx)
        return "done with care"

    async def enough(ctx: ToolContext) -> str:
        """End the loop."""
        await effect(ctx)
        ctx.escalate = True
        return "enough"

    async def dig(ctx: ToolContext) -> None:
        """Let others dig."""
        await effect(ctx)

    async def ship(ctx: ToolContext) -> dict[str, int]:
        """Let others ship it, under a number."""
        await effect(ctx)
        return {"number": 5}

    gated = [FunctionTool(function, replay=replay, require_confirmation=True) for function in (pay, mail, drop)]
    plain = [FunctionTool(function, replay=replay) for function in (look, careful, enough)]
    long = [LongRunningFunctionTool(function, replay=replay) for function in (dig, ship)]
    place = ClientTool("locate", "Where are you?", {"type": "object"}, result_schema={"type": "object"})
    return {tool.name: tool for tool in (*gated, *plain, *long, place, RequestInputTool())}


CALLS: dict[str, Sequence[Any]] = {
    "payer": (call("pay"),),
    "mailer": (call("mail"),),
    "three": (say("Three at once."), call("pay"), call("look"), call("drop")),
    "careful": (call("careful"),),
    "asker": (call("request_input", question="Which colour?"),),
    "locator": (call("locate"),),
    "digger": (call("dig"),),
    "shipper": (call("ship"),),
    "stopper": (call("enough"),),
    "boss": (call("payer", request="pay it"), call("look")),
}


def brain(request: ModelRequest) -> Any:
    """Answer by what is asked, so that any process can go on from any log."""
    last, spent = request.turns[-1], usage(10, 5)
    if last.role == "tool":
        return (say(f"{request.agent} has done its part", chunks=2), spent)
    heard = text_of(last.parts)
    is_next = any(NEXT in text_of(turn.parts) for turn in request.turns)
    if is_next or "background call" in heard or "Late result" in heard:
        return (say("fine"), spent)
    return (*CALLS[request.agent], spent)


Make = Callable[..., LlmAgent]
SCENES: dict[str, Callable[[Make], BaseAgent]] = {
    "confirm": lambda make: make("payer", "pay"),
    "three": lambda make: make("three", "pay", "look", "drop"),
    "careful": lambda make: make("careful", "careful"),
    "input": lambda make: make("asker", "request_input"),
    "client": lambda make: make("locator", "locate"),
    "long": lambda make: make("digger", "dig"),
    "long_with_value": lambda make: make("shipper", "ship"),
    "nested": lambda make: make("boss", "look", AgentTool(make("payer", "pay"))),
    "sequential": lambda make: SequentialAgent("steps", sub_agents=[make("payer", "pay"), make("mailer", "mail")]),
    "loop": lambda make: LoopAgent(
        "rounds", sub_agents=[make("payer", "pay"), make("stopper", "enough")], max_iterations=2
    ),
    "parallel": lambda make: ParallelAgent(
        "sides", sub_agents=[make("payer", "pay"), make("three", "look", "drop", "pay")]
    ),
}  # fmt: skip


def make_app(scene: str, world: World, replay: Replay = "never", on_shutdown: OnShutdown = "stop") -> App:
    """Make a scene's application anew, as a new process does."""
    tools = make_tools(world, replay)

    def think(request: ModelRequest) -> Any:
        return (say("Half an ans"), hang()) if world.holds else brain(request)

    def make(name: str, *used: str | Tool) -> LlmAgent:
        own = [tools[tool] if isinstance(tool, str) else tool for tool in used]
        return LlmAgent(name, ScriptedModel(think, strict=False), tools=own)

    return App("crash", SCENES[scene](make), plugins=[Listener(world)], on_shutdown=on_shutdown)


async def answer(runner: Runner, question: Question, by: str = "ann") -> Answered:
    return await runner.answer(question.run_id, question.call_id, by=by, **ANSWERS[question.tool])


async def answer_all(runner: Runner, run: Run, *, twice: bool = False) -> RunEnded:
    """Answer what a run asks, until it has ended and nothing of the session waits any more."""
    while True:
        reached = await run.ending_or_pause()
        await let_go(runner.store)  # its end hook is told
        questions = await runner.questions(**HERE)
        if not isinstance(reached, RunEnded):
            assert {one.call_id for one in questions} >= {one.call_id for one in reached.waiting}
        elif not questions:
            return reached
        for question in questions:
            first = await answer(runner, question)
            if twice:
                assert await answer(runner, question, by="bob") == first


async def let_go(store: Any) -> None:
    """Wait until no process that lives holds the session."""
    changed = asyncio.Event()
    unsubscribe = store.subscribe(KEY, lambda _: changed.set())
    while (holder := await store.holder(KEY)) is not None and holder.alive:
        await changed.wait()
        changed.clear()
    unsubscribe()


async def begin(runner: Runner) -> Run:
    return await runner.start(new_message=GO, **HERE)
