"""Budgets: counted over the whole run, checked before each request, ended as the caller chose."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.runner.desk import Desk, Held

from heaveto import AgentTool, LlmAgent, ParallelAgent, RunConfig
from heaveto.testing import FakeClock, ScriptedModel, call, fault, hang, say, settle, usage

MakeDesk = Callable[..., Desk]
LOOPING = (call("t"), usage(60, 40, cost=0.5))


def busy(desk: MakeDesk) -> Desk:
    done = Held()
    done.may_end.set()
    return desk(model=ScriptedModel(LOOPING, strict=False), tools=[done.tool("t")])


@pytest.mark.parametrize(
    ("limit", "calls", "error"),
    [
        ({"max_llm_calls": 3}, 3, "LlmCallsLimitExceededError"),
        ({"max_tokens": 250}, 3, "LimitExceededError"),
        ({"max_cost": 0.9}, 2, "LimitExceededError"),
    ],
)
@pytest.mark.parametrize("on_limit", ["stop", "fail"])
async def test_a_budget_ends_the_run(desk: MakeDesk, limit: Any, calls: int, error: str, on_limit: Any) -> None:
    """No request is made beyond a budget; the run fails with a typed error, or stops with cause budget."""
    at = busy(desk)
    ended = await at.ask("go", RunConfig(**limit, on_limit=on_limit))
    assert at.model.calls == ended.llm_calls == calls
    if on_limit == "stop":
        assert (ended.outcome, ended.cause) == ("cancelled", "budget")
    else:
        assert ended.error is not None
        assert (ended.outcome, ended.error.type) == ("failed", error)


@pytest.mark.parametrize("on_limit", ["stop", "fail"])
async def test_wall_clock_time_is_a_budget(desk: MakeDesk, on_limit: Any) -> None:
    """max_seconds ends a run that waits for its model, at its time."""
    clock = FakeClock()
    at = desk(hang(), clock=clock)
    run = await at.start("go", RunConfig(max_seconds=60, on_limit=on_limit))
    await settle()
    await clock.advance(59)
    assert run.status == "running"
    await clock.advance(1)
    ended = await run.wait()
    assert ended.outcome == ("cancelled" if on_limit == "stop" else "failed")


async def test_a_user_who_stops_first_is_the_cause(desk: MakeDesk) -> None:
    """A time limit that passes while a stop waits for its grace does not turn the stop into a failure (F34)."""
    clock = FakeClock()
    held = Held(swallow=10**9)
    at = desk(call("held"), tools=[held.tool()], clock=clock)
    run = await at.start("go", RunConfig(max_seconds=10, cancel_grace_seconds=20))
    await held.began.wait()
    stopping = asyncio.ensure_future(run.cancel())
    await settle()
    await clock.advance(15)
    held.may_end.set()
    report = await stopping
    assert (report.outcome, report.cause) == ("cancelled", "user")


async def test_agents_at_the_same_time_share_one_budget(desk: MakeDesk) -> None:
    """Requests under way count: five agents in parallel make no more calls than allowed."""
    models = [ScriptedModel(hang()) for _ in range(5)]
    tree = ParallelAgent("all", sub_agents=[LlmAgent(f"a{i}", model) for i, model in enumerate(models)])
    ended = await desk(agent=tree).ask("go", RunConfig(max_llm_calls=3, cancel_grace_seconds=0.02))
    assert ended.error is not None and ended.error.type == "LlmCallsLimitExceededError"
    assert sum(model.calls for model in models) == 3


async def test_an_agent_as_a_tool_spends_from_the_same_budget(desk: MakeDesk) -> None:
    """Model calls of an agent tool count for the run that called it."""
    child = LlmAgent("child", ScriptedModel(say("one")))
    at = desk(call("child", request="x"), say("never"), tools=[AgentTool(child)])
    ended = await at.ask("go", RunConfig(max_llm_calls=2, on_limit="stop"))
    assert (ended.outcome, ended.cause, ended.llm_calls) == ("cancelled", "budget", 2)


async def test_failed_requests_count(desk: MakeDesk) -> None:
    """Repeated requests spend the budget too, so that retries cannot run away; no callback hides the limit."""
    at = desk(
        model=ScriptedModel(fault("busy", status=503), strict=False), on_model_error_callback=lambda *_: None
    )  # fmt: skip
    ended = await at.ask("go", RunConfig(max_llm_calls=2, model_retries=10, retry_backoff_seconds=0))
    assert ended.error is not None and ended.error.type == "LlmCallsLimitExceededError"
    assert at.model.calls == 2
