"""What an agent that works as a tool had found when it did not finish: its caller is told, as partial (F157)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from tests.crash.sites import HERE

from heaveto import AgentTool, LlmAgent, Run, RunConfig, Runner
from heaveto.agents.base import BaseAgent
from heaveto.core.findings import Findings
from heaveto.events.contents import Text
from heaveto.events.records import CallSettled, CallStarted, Message
from heaveto.testing import FakeClock, ScriptedModel, call, fault, gate, say, settle
from heaveto.testing.promises import check_promises
from heaveto.testing.script import Gate

FOUND = "Paris has 2 million people"


async def find(what: str) -> str:
    """Find."""
    return f"{what}: {FOUND}"


def helper(*steps: Any, tools: Sequence[Any] = (find,)) -> LlmAgent:
    """An agent that finds something, and then goes on with the steps."""
    return LlmAgent("helper", ScriptedModel((say("I look it up."), call("find", what="a")), *steps), tools=list(tools))


class Scene:
    """A caller whose model calls the helper, and is then told what became of it."""

    def __init__(self, agent: BaseAgent, *, timeout_seconds: float | None = None, background: bool = False) -> None:
        tool = AgentTool(agent, name="ask_helper", background=background)
        tool.timeout_seconds = timeout_seconds
        self.clock = FakeClock()
        self.model = ScriptedModel(call("ask_helper", request="find a"), say("I see."), strict=False)
        self.runner = Runner(LlmAgent("root", self.model, tools=[tool]), clock=self.clock)

    async def start(self, text: str = "go", **config: Any) -> Run:
        return await self.runner.start(**HERE, new_message=text, run_config=RunConfig(**config))

    async def told(self) -> dict[str, Any]:
        """What the caller's model is told of its call, when all is over."""
        check_promises(await self.runner.records(**HERE))
        (response,) = [part for turn in self.model.requests[-1].turns for part in turn.responses]
        await self.runner.aclose()
        return response.response

    async def call_id(self) -> str:
        log = await self.runner.records(**HERE)
        return next(record.call_id for record in log if isinstance(record, CallStarted) and record.name == "ask_helper")


def check(told: dict[str, Any], *more: str) -> None:
    lines = told["partial_findings"]
    assert lines[0] == "[helper said:] I look it up."
    assert "helper called find" in lines[1]
    assert FOUND in lines[2]
    assert lines[3:] == list(more)
    assert "did not finish" in told["note"]


@pytest.fixture
def door() -> Gate:
    return gate()


CUT = ("[helper said:] So far", "[helper was cut off there.]")


async def test_its_time_limit_passes(door: Gate) -> None:
    """Also what it was just saying is told."""
    scene = Scene(helper((say("So far"), door)), timeout_seconds=60)
    run = await scene.start()
    await door.reached()
    await scene.clock.advance(61)
    await run.wait()
    told = await scene.told()
    assert "time limit" in told["error"]
    check(told, *CUT)


async def test_it_is_stopped_alone(door: Gate) -> None:
    """The run goes on, with what is known."""
    scene = Scene(helper((say("So far"), door)))
    run = await scene.start()
    await door.reached()
    await scene.runner.cancel_call(run.run_id, await scene.call_id())
    await run.wait()
    told = await scene.told()
    assert "the user stopped it" in told["error"]
    check(told, *CUT)


async def test_it_fails() -> None:
    """Its model refuses in the middle: the error is told beside what it had found before."""
    scene = Scene(helper(fault("no more", status=400)))
    await (await scene.start()).wait()
    told = await scene.told()
    assert "no more" in str(told["error"])
    check(told)


async def test_the_budget_of_its_run_is_used_up() -> None:
    """The next run's model hears what was found with it."""
    scene = Scene(helper(say("never asked")))
    ended = await (await scene.start(max_llm_calls=2)).wait()
    assert (ended.outcome, ended.cause) != ("completed", None)
    await (await scene.start("and?")).wait()
    check(await scene.told())


async def test_its_run_is_stopped(door: Gate) -> None:
    """The next run's model hears it, too."""
    scene = Scene(helper((say("So far"), door)))
    run = await scene.start()
    await door.reached()
    await run.cancel()
    await (await scene.start("and?")).wait()
    check(await scene.told(), *CUT)


async def test_an_agent_that_works_for_an_agent(door: Gate) -> None:
    """What was found further below counts as well."""
    middle = LlmAgent("middle", ScriptedModel(call("helper", request="a")), tools=[AgentTool(helper(door))])
    scene = Scene(middle, timeout_seconds=60)
    run = await scene.start()
    await door.reached()
    await scene.clock.advance(61)
    await run.wait()
    lines = (await scene.told())["partial_findings"]
    assert any(FOUND in line for line in lines)
    assert any(line.startswith("[middle called helper") for line in lines)


async def test_one_that_finishes_tells_nothing_but_its_answer() -> None:
    """Its way there is its own."""
    scene = Scene(helper(say("two million")))
    await (await scene.start()).wait()
    assert await scene.told() == {"result": "two million"}


async def test_one_in_the_background(door: Gate) -> None:
    """It has a session of its own; what it had found comes home with its ending."""
    scene = Scene(helper((say("So far"), door)), background=True)
    run = await scene.start()
    await run.wait()
    await door.reached()
    await scene.runner.cancel_call(run.run_id, await scene.call_id())
    await settle()
    late = [r for r in await scene.runner.records(**HERE) if isinstance(r, CallSettled) and r.late]
    assert late[-1].status == "cancelled"
    assert late[-1].response is not None
    check(late[-1].response, *CUT)
    await scene.runner.aclose()


def test_too_much_is_cut() -> None:
    """The newest forty lines count, each up to two thousand characters; that some are missing is said."""
    findings = Findings()
    for number in range(50):
        parts = (Text(text=f"{number} {'x' * 5_000}"),)
        findings.take(Message(id=str(number), time=0.0, run_id="r", author="helper", parts=parts))
    lines = findings.lines
    assert lines[0] == "[10 lines before these are left out.]"
    assert len(lines) == 41
    assert lines[1].startswith("[helper said:] 10 ")
    assert all(len(line) <= 2_001 for line in lines)
