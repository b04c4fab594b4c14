"""What newcomers do wrong: each mistake is a typed error where it was made, and says what to do instead."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.runner.desk import SESSION, USER, Desk

from heaveto import (
    AgentContext,
    App,
    BaseAgent,
    Content,
    LlmAgent,
    LoopAgent,
    MemoryStore,
    Plugin,
    RunConfig,
    Runner,
    SequentialAgent,
    Text,
    testing,
)
from heaveto.errors import ConfigError, DuplicateNameError, InputError
from heaveto.events.records import AgentCheckpoint, ErrorInfo
from heaveto.testing import ScriptedModel, call, fault, say

MakeDesk = Callable[..., Desk]
MODEL = ScriptedModel()
WRONG: Any = object()


def agent(**options: Any) -> LlmAgent:
    return LlmAgent("root", MODEL, **options)


async def failure(at: Desk) -> ErrorInfo:
    """Run to the end, which must be a failure."""
    ended = await at.ask()
    assert ended.error is not None, ended
    return ended.error


# --- pieces of the wrong kind -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "advice"),
    [
        (lambda: LlmAgent("x", "gpt-5"), r"model 'gpt-5' names no connector; write one of openai:…, .*anthropic:…"),
        (lambda: LlmAgent("x", 5), r"not a Model but 5; pass a model, such as"),
        (lambda: agent(output_schema={"type": "string"}), r"output_schema is not a schema of type object"),
        (
            lambda: agent(output_schema=type("Plain", (), {})),
            r"output_schema has no JSON schema.*pass a pydantic model",
        ),
        (lambda: LlmAgent("x", ScriptedModel), r"the class ScriptedModel; pass an instance"),
        (lambda: LlmAgent(5, MODEL), r"name is not a str but 5"),
        (lambda: agent(tools="x"), r"tools is not a list but 'x'"),
        (lambda: agent(tools=print), r"tools is not a list"),
        (lambda: agent(tools=["x"]), r"'x'.*neither a tool nor callable"),
        (lambda: agent(before_model_callback="x"), r"callback.*'x'"),
        (lambda: LoopAgent("x", sub_agents=[MODEL]), r"sub_agents\[0\] is not a BaseAgent.*pass an agent"),
        (lambda: LoopAgent("x", sub_agents=agent()), r"sub_agents is not a list"),
        (lambda: SequentialAgent("x", sub_agents=[LlmAgent]), r"the class LlmAgent"),
        (lambda: App("x", MODEL), r"root_agent is not a BaseAgent"),
        (lambda: App(agent(), "x"), r"name is not a str"),
        (lambda: Runner(MODEL), r"agent is not a BaseAgent.*pass an agent"),
        (lambda: Runner(app=agent()), r"pass App\('name', agent\)"),
        (lambda: Runner(agent(), plugins=[Plugin]), r"plugins\[0\] is the class Plugin; pass an instance"),
        (lambda: Runner(agent(), plugins=Plugin()), r"plugins is not a list"),
        (lambda: Runner(agent(), store="shop.db"), r"pass SqliteStore\('shop.db'\)"),
        (lambda: Runner(agent(), store=Path("shop.db")), r"pass SqliteStore\('shop.db'\)"),
        (lambda: Runner(agent(), store=MemoryStore), r"the class MemoryStore; pass an instance"),
    ],
)
def test_a_piece_of_the_wrong_kind_is_refused_where_it_is_handed_in(make: Callable[[], Any], advice: str) -> None:
    """The constructor says what was given and what to pass; nothing waits for the first run to find it."""
    with pytest.raises(ConfigError, match=advice):
        make()


def test_an_agent_that_could_not_be_made_keeps_no_children() -> None:
    """A corrected cell of a notebook works: the failed attempt has not taken the sub-agents."""
    child = agent()
    with pytest.raises(ConfigError):
        LlmAgent("parent", "gpt-5", sub_agents=[child])  # type: ignore[arg-type]
    assert LlmAgent("parent", MODEL, sub_agents=[child]).sub_agents == (child,)


def test_pieces_may_come_from_any_iterable() -> None:
    """Tools and agents are taken from generators as well as from lists, each once."""

    def look() -> None: ...

    made: Any = (piece for piece in [look])
    assert [tool.name for tool in agent(tools=made).tools] == ["look"]


def test_tools_of_one_name_are_refused_where_they_are_listed() -> None:
    """Two tools of one name are refused by the agent's constructor, one of the name of the hand-over by the app."""

    def transfer_to_agent() -> None: ...

    with pytest.raises(DuplicateNameError):
        agent(tools=[transfer_to_agent, transfer_to_agent])
    with pytest.raises(DuplicateNameError):
        App("app", agent(tools=[transfer_to_agent], sub_agents=[LlmAgent("child", MODEL)]))


# --- callbacks --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", ["before_model", "after_model", "on_model_error", "before_agent", "after_agent"])
async def test_a_string_is_an_answer_wherever_a_content_is(desk: MakeDesk, point: str) -> None:
    """A callback that answers with a text may return it as it is."""
    step = fault("no", status=400) if point == "on_model_error" else say("from the model")
    at = desk(step, **{f"{point}_callback": lambda *_: "from the callback"})
    assert await (await at.start()).result() == "from the callback"


@pytest.mark.parametrize("point", ["on_user_message", "before_run"])
async def test_a_plugin_may_answer_with_a_string(desk: MakeDesk, point: str) -> None:
    """The points that only plugins have take a text as well."""

    class Speaking(Plugin):
        pass

    async def speak(self: Plugin, *_: Any) -> str:
        return "from the plugin"

    setattr(Speaking, point, speak)
    at = desk(say("ok"), plugins=[Speaking()])
    await at.ask()
    if point == "before_run":
        assert [message.parts[0] for message in await at.messages()] == [Text(text="from the plugin")]
    else:
        assert at.model.requests[0].turns[0].parts == (Text(text="from the plugin"),)


@pytest.mark.parametrize("point", ["before_model", "after_model", "on_model_error", "before_agent", "after_agent"])
async def test_a_callback_that_answers_with_something_else_is_named(desk: MakeDesk, point: str) -> None:
    """What its point cannot take fails the run with an error that names the callback and what it returned."""

    def careless(*_: Any) -> Any:
        return 5

    step = fault("no", status=400) if point == "on_model_error" else say("hi")
    error = await failure(desk(step, **{f"{point}_callback": careless}))
    assert error.type == "CallbackAnswerError"
    assert "careless returned 5" in error.message
    assert f"{point} takes a Content" in error.message


@pytest.mark.parametrize("point", ["before_tool", "after_tool", "on_tool_error"])
async def test_a_tool_callback_may_answer_with_what_a_tool_may_return(desk: MakeDesk, point: str) -> None:
    """What is no dict becomes one as a tool's own result does."""

    def look() -> str:
        if point == "on_tool_error":
            raise ValueError("bug")
        return "looked"

    at = desk(call("look"), say("ok"), tools=[look], **{f"{point}_callback": lambda *_: "from the callback"})
    await at.ask()
    settled = (await at.settled())["look"]
    assert (settled.status, settled.response) == ("succeeded", {"result": "from the callback"})


@pytest.mark.parametrize("point", ["before_tool", "after_tool", "on_tool_error"])
async def test_a_tool_callback_whose_answer_is_no_json_is_named(desk: MakeDesk, point: str) -> None:
    """It fails the run with an error that names the callback; a result that the tool gave is kept."""

    def careless(*_: Any) -> Any:
        return WRONG

    def look() -> str:
        looked.append(1)
        if point == "on_tool_error":
            raise ValueError("bug")
        return "looked"

    looked: list[int] = []
    at = desk(call("look"), tools=[look], **{f"{point}_callback": careless})
    error = await failure(at)
    assert error.type == "CallbackAnswerError"
    assert "careless returned <object" in error.message
    assert len(looked) == (0 if point == "before_tool" else 1)
    assert (await at.settled())["look"].status == {
        "before_tool": "not_started", "after_tool": "succeeded", "on_tool_error": "failed",
    }[point]  # fmt: skip


async def test_what_after_run_returns_is_of_no_account(desk: MakeDesk) -> None:
    """after_run returns nothing; every plugin's is called, whatever one returns."""

    class Careless(Plugin):
        async def after_run(self, ctx: AgentContext) -> Any:
            called.append(1)
            return 5

    called: list[int] = []
    assert (await desk(say("ok"), plugins=[Careless(), Careless()]).ask()).outcome == "completed"
    assert len(called) == 2


# --- agents in plain Python -------------------------------------------------------------------------------------------


def test_an_agent_that_yields_is_refused() -> None:
    """`run` written as a generator, as elsewhere, is told what to do when the agent is made."""

    class Yielding(BaseAgent):
        async def run(self, ctx: AgentContext) -> Any:
            yield "hello"

    class PlainYielding(BaseAgent):
        def run(self, ctx: AgentContext) -> Any:
            yield "hello"

    for kind in (Yielding, PlainYielding):
        with pytest.raises(ConfigError, match=r"run\(\) must not yield; say things with await ctx\.say"):
            kind("y")


async def test_an_agent_that_returns_something_fails_its_run(desk: MakeDesk) -> None:
    """Nobody would see what `run` returns, so the run fails and says how to say it."""

    class Returning(BaseAgent):
        async def run(self, ctx: AgentContext) -> Any:
            return "hello"

    error = await failure(desk(agent=Returning("r")))
    assert error.type == "ConfigError"
    assert "Returning('r'): run() returned 'hello'" in error.message
    assert "ctx.say" in error.message


async def test_an_agent_that_is_not_async_fails_its_run(desk: MakeDesk) -> None:
    """A plain `def run` is told to be async."""

    class Plain(BaseAgent):
        def run(self, ctx: AgentContext) -> Any:
            return None

    assert "run() must be 'async def'" in (await failure(desk(agent=Plain("p")))).message


# --- loops ------------------------------------------------------------------------------------------------------------


class Idle(BaseAgent):
    """Does nothing, or what it is told to do."""

    def __init__(self, act: Callable[[AgentContext], Any] = lambda _: None) -> None:
        super().__init__("idle")
        self._act = act

    async def run(self, ctx: AgentContext) -> None:
        self._act(ctx)
        await asyncio.sleep(0)


async def test_an_unbounded_loop_that_does_nothing_is_stopped(desk: MakeDesk) -> None:
    """A whole round that recorded nothing but checkpoints would be followed by others, for ever: the run fails."""
    at = desk(agent=LoopAgent("loop", sub_agents=[Idle(), SequentialAgent("empty")]))
    error = await failure(at)
    assert error.type == "LoopStalledError"
    assert "'loop'" in error.message
    assert "max_iterations" in error.message
    assert len(await at.log()) < 10


async def test_a_loop_that_sets_state_gets_on(desk: MakeDesk) -> None:
    """Setting state is progress: what the next round sees is different."""

    def count(ctx: AgentContext) -> None:
        ctx.state["n"] = ctx.state.get("n", 0) + 1
        if ctx.state["n"] == 3:
            raise ValueError("enough")

    assert (await failure(desk(agent=LoopAgent("loop", sub_agents=[Idle(count)])))).message == "enough"


async def test_a_bounded_loop_may_do_nothing(desk: MakeDesk) -> None:
    """A loop with max_iterations, which may wait for something outside, goes round as often as it says."""
    at = desk(agent=LoopAgent("loop", sub_agents=[Idle()], max_iterations=3))
    assert (await at.ask()).outcome == "completed"
    rounds = [r.agent_state for r in await at.log() if isinstance(r, AgentCheckpoint) and r.agent_state]
    assert [state["times_looped"] for state in rounds] == [0, 1, 2]


# --- starts -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ({"new_message": 5}, "new_message must be a str, a part .* or a Content of parts; it is 5"),
        ({"new_message": None}, "pass new_message, or the run_id"),
        ({"new_message": ["hi"]}, r"it is \['hi'\]"),
        ({"new_message": Content("hi")}, "Content"),  # type: ignore[arg-type]
        ({"user_id": 5}, "user_id must be a str that is not empty; it is 5"),
        ({"session_id": None}, "session_id must be a str that is not empty; it is None"),
    ],
)
async def test_a_start_with_the_wrong_kind_of_value_is_refused(desk: MakeDesk, bad: Any, says: str) -> None:
    """The error names the value and what is accepted; nothing is written."""
    at = desk(say("never"))
    with pytest.raises(InputError, match=says):
        await at.runner.start(**{"user_id": USER, "session_id": SESSION, "new_message": "x", **bad})
    assert await at.runner.list_sessions() == []


def test_a_deadline_that_was_meant_as_a_time_span_is_refused() -> None:
    """`deadline` is a point in epoch seconds; a small number is a span, for which there is max_seconds."""
    with pytest.raises(InputError, match="use max_seconds=30"):
        RunConfig(deadline=30)


# --- the test kit -----------------------------------------------------------------------------------------------------

_WITHOUT = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"_pytest", "openai", "pytest", "starlette", "uvicorn"}:
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Missing())
from heaveto.testing import *
print(CrashingStore, Emulator, EmulatorThread, check_promises, ScriptedModel)
"""


def test_the_test_kit_needs_nothing_but_the_package() -> None:
    """`from heaveto.testing import *` works without pytest and without any extra."""
    done = subprocess.run([sys.executable, "-c", _WITHOUT], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_name_of_the_test_kit_is_there() -> None:
    """What `heaveto.testing` promises can be got, the store's suite by name."""
    assert [name for name in [*testing.__all__, "StoreContract"] if not hasattr(testing, name)] == []
