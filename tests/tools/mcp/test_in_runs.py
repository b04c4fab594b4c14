"""Servers' tools in runs: what the log, the model and the caller get to know."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.tools.mcp.conftest import Servers
from tests.tools.mcp.conftest import call as call_directly

from heaveto import CallSettled, LlmAgent, Runner
from heaveto.events.records import Paused
from heaveto.testing import ScriptedModel, call, say
from heaveto.tools.mcp import MCPToolset
from heaveto.tools.retry import Retry

WHO: dict[str, Any] = {"user_id": "ann", "session_id": "s"}


async def settlements(runner: Runner) -> list[CallSettled]:
    return [record for record in await runner.records(**WHO) if isinstance(record, CallSettled)]


async def test_a_stop_of_the_run_stops_the_call_and_is_no_timeout(servers: Servers) -> None:
    """F49, F50: the server is told without a reason; the log says who wanted it."""
    plain = servers.plain(timeout_seconds=600.0)
    async with Runner(LlmAgent("a", ScriptedModel(call("hang"), say("ok")), tools=[plain])) as runner:
        run = await runner.start(**WHO, new_message="go")
        await servers.witness.called("hang")
        report = await run.cancel(by="ann", reason="ann changed her mind")
        assert [operation.state for operation in report.operations] == ["unknown"]  # a silent server may go on
        (settled,) = await settlements(runner)
        assert (settled.status, settled.cause) == ("unknown", "user")
        await servers.witness.got("notifications/cancelled")
    assert "ann" not in str(servers.witness.heard)


async def test_a_time_limit_tells_the_server_too(servers: Servers) -> None:
    """The call fails as timed out, the run goes on, and the server does not work in vain."""
    plain = servers.plain(timeout_seconds={"hang": 0.2}, cancel_wait_seconds=0.05)
    async with Runner(LlmAgent("a", ScriptedModel(call("hang"), say("ok")), tools=[plain])) as runner:
        run = await runner.start(**WHO, new_message="go")
        assert await run.result() == "ok"
        (settled,) = await settlements(runner)
        assert (settled.status, settled.cause) == ("unknown", "timeout")
        await servers.witness.got("notifications/cancelled")


async def test_a_reply_that_comes_after_the_stop_is_recorded(servers: Servers) -> None:
    """F49: the server finished all the same; the log, and with it the model, learns of it."""
    plain = servers.plain(cancel_wait_seconds=0.01)
    model = ScriptedModel(call("answer_on_release"), say("I see."))
    async with Runner(LlmAgent("a", model, tools=[plain])) as runner:
        run = await runner.start(**WHO, new_message="go")
        await servers.witness.called("answer_on_release")
        await run.cancel()
        recorded = asyncio.Event()
        runner.store.subscribe(run.session, lambda _: recorded.set())
        await call_directly(plain, "release")
        await recorded.wait()
        assert [(one.status, one.late, one.response) for one in await settlements(runner)] == [
            ("unknown", False, None), ("succeeded", True, {"result": "late"}),
        ]  # fmt: skip


async def test_a_server_that_dies_leaves_its_call_unknown(servers: Servers) -> None:
    """The model is told that nobody knows; the run goes on with a new server, and nothing is sent twice."""
    plain = servers.plain()
    model = ScriptedModel(call("die"), call("echo", text="hi"), say("ok"))
    async with Runner(LlmAgent("a", model, tools=[plain])) as runner:
        run = await runner.start(**WHO, new_message="go")
        assert await run.result() == "ok"
        assert [settled.status for settled in await settlements(runner)] == ["unknown", "succeeded"]
    assert servers.witness.count("tools/call") == 2


async def test_people_answer_the_questions_of_a_server(servers: Servers) -> None:
    """A question is listed with the server's schema, and its answer goes back to the server; a second one as well."""
    plain = servers.plain()
    model = ScriptedModel(call("ask_twice"), say("ok"))
    async with Runner(LlmAgent("a", model, tools=[plain])) as runner:
        run = await runner.start(**WHO, new_message="go")
        sizes = iter((3, 4))
        async for record in run.stream():
            if isinstance(record, Paused):
                (question,) = record.waiting
                assert question.hint == "How big?" and question.schema is not None
                await runner.answer(run.run_id, question.call_id, {"size": next(sizes)}, by="bob")
        assert await run.result() == "ok"
        (settled,) = await settlements(runner)
        assert settled.response == {"result": '{"action": "accept", "content": {"size": 4}}'}


async def test_an_agent_whose_server_is_away_fails_with_a_name() -> None:
    """The error says which server, and why."""
    absent = MCPToolset.stdio("/no/such/server", name="absent", reconnect=Retry(attempts=1))
    async with Runner(LlmAgent("a", ScriptedModel(say("never")), tools=[absent])) as runner:
        run = await runner.start(**WHO, new_message="go")
        with pytest.raises(Exception, match="toolset absent: cannot be reached: FileNotFoundError"):
            await run.result()


async def test_runs_share_a_server(servers: Servers) -> None:
    """F132: two sessions use one connection; the run that opened it is stopped, and the other one goes on."""
    plain = servers.plain()
    model = ScriptedModel(call("hang"), call("answer_on_release"), say("ok"))
    async with Runner(LlmAgent("a", model, tools=[plain])) as runner:
        first = await runner.start(user_id="ann", session_id="1", new_message="go")
        await servers.witness.called("hang")
        second = await runner.start(user_id="ann", session_id="2", new_message="go")
        await servers.witness.called("answer_on_release")
        await first.cancel()
        assert second.status == "running"
        assert servers.witness.count("initialize") == 1
        await second.cancel()
    await servers.witness.gone()
