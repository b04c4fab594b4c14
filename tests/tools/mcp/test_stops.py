"""Stopping calls (F49, F50), and sharing one connection between runs (F132)."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import time
from typing import Any

import pytest
from tests.tools.mcp.conftest import Servers, call
from tests.tools.mcp.witness import Host

from heaveto.errors import InDoubtError
from heaveto.tools.mcp import LateReply
from heaveto.tools.mcp.tap import REASON

pytestmark = pytest.mark.usefixtures("swept")


async def stopped(task: asyncio.Task[Any], message: str = "") -> float:
    """Cancel a task that must end as cancelled, or in doubt; return the seconds that it took."""
    began = time.monotonic()
    task.cancel(message)
    with pytest.raises((asyncio.CancelledError, InDoubtError)):
        await task
    return time.monotonic() - began


async def test_a_stop_tells_the_server_and_does_not_wait_for_it(servers: Servers) -> None:
    """F49, F50: the cancel notification goes out, its reason says nothing, and a silent server delays nobody."""
    plain = servers.plain(cancel_wait_seconds=0.1)
    hanging = asyncio.create_task(call(plain, "hang", call_id="secret-call"))
    request = await servers.witness.called("hang")
    took = await stopped(hanging, "user bob at billing.internal said so")
    notification = await servers.witness.got("notifications/cancelled")
    assert notification["params"] == {"requestId": request["id"], "reason": REASON}
    assert took < 1
    assert await call(plain, "echo", text="next") == {"result": "next"}
    assert "secret-call" not in str(servers.witness.heard) and "billing" not in str(servers.witness.heard)


async def test_a_result_that_comes_with_the_stop_is_kept(servers: Servers) -> None:
    """The tool had done its work: the real result is returned, not thrown away."""
    plain = servers.plain(cancel_wait_seconds=30)
    working = asyncio.create_task(call(plain, "answer_when_cancelled"))
    await servers.witness.called("answer_when_cancelled")
    working.cancel()
    assert await working == {"result": "done all the same"}


async def test_a_result_that_comes_later_is_handed_over(servers: Servers, caplog: pytest.LogCaptureFixture) -> None:
    """F49: it is logged and told to whoever wants it, with the call that it belongs to."""
    late: asyncio.Queue[LateReply] = asyncio.Queue()
    plain = servers.plain(cancel_wait_seconds=0.01, on_late_reply=late.put_nowait)
    working = asyncio.create_task(call(plain, "answer_on_release", call_id="c7"))
    await servers.witness.called("answer_on_release")
    await stopped(working)
    assert await call(plain, "release") == {"result": "released"}
    assert await late.get() == LateReply("answer_on_release", "c7", {"result": "late"})
    assert any(
        "had a result after its stop" in message
        for _, level, message in caplog.record_tuples
        if level == logging.WARNING
    )


async def test_a_second_cancel_ends_the_wait_for_a_last_result(servers: Servers) -> None:
    """Who asks again does not get to wait: the server was told the first time."""
    plain = servers.plain(cancel_wait_seconds=600)
    hanging = asyncio.create_task(call(plain, "hang"))
    await servers.witness.called("hang")
    hanging.cancel()
    await servers.witness.got("notifications/cancelled")
    assert await stopped(hanging) < 1


async def test_a_stop_before_anything_was_sent_sends_nothing(servers: Servers) -> None:
    """A call that the server never saw is not cancelled there either."""
    plain = servers.plain()
    await plain.open()
    await stopped(asyncio.create_task(call(plain, "hang")))
    assert await call(plain, "echo", text="x") == {"result": "x"}
    assert servers.witness.count("notifications/cancelled") == 0


async def test_runs_share_a_connection_and_none_can_end_it(servers: Servers) -> None:
    """F132: the run that opened it is cancelled while another one uses it; the other one does not notice."""
    plain = servers.plain()
    first = asyncio.create_task(call(plain, "hang"))
    await servers.witness.called("hang")
    second = asyncio.create_task(call(plain, "answer_on_release"))
    await servers.witness.called("answer_on_release")
    await stopped(first)
    assert await call(plain, "release") == {"result": "released"}
    assert await second == {"result": "late"}
    assert servers.witness.count("initialize") == 1


async def test_the_first_opener_may_be_cancelled_while_it_connects(servers: Servers) -> None:
    """F132: those who wait for the same connection get it."""
    plain = servers.plain()
    first, second = (asyncio.create_task(plain.open()) for _ in range(2))
    await asyncio.sleep(0)
    await stopped(first)
    await second
    assert len(plain.tools) == 20
    assert servers.witness.count("initialize") == 1


async def test_calls_overlap(servers: Servers) -> None:
    """F132: a call that hangs holds up none of those behind it."""
    plain = servers.plain()
    hanging = asyncio.create_task(call(plain, "hang"))
    await servers.witness.called("hang")
    answers = await asyncio.gather(*(call(plain, "echo", text=str(n)) for n in range(50)))
    assert [answer["result"] for answer in answers] == [str(n) for n in range(50)]
    await stopped(hanging)


async def test_context_variables_of_the_opener_stay_with_it(servers: Servers, caplog: pytest.LogCaptureFixture) -> None:
    """The connection is nobody's child: it sees nothing of the run that happened to open it."""
    whose: contextvars.ContextVar[str] = contextvars.ContextVar("whose", default="nobody's")
    whose.set("ann's")
    seen: list[str] = []
    caplog.handler.addFilter(lambda record: seen.append(whose.get()) or True)
    with caplog.at_level(logging.INFO, "heaveto.mcp"):
        plain = servers.plain(tool_filter=lambda tool: seen.append(whose.get()) or True)
        await plain.open()
        whose.set("bob's")
        await call(plain, "complain")
        await plain.aclose()
    assert len(seen) > 19 and set(seen) == {"nobody's"}


async def test_a_close_in_the_middle_of_a_call_leaves_it_in_doubt(servers: Servers) -> None:
    """Its caller was not stopped, so that it gets an error which says what is known; the server is told to stop."""
    plain = servers.plain()
    hanging = asyncio.create_task(call(plain, "hang"))
    await servers.witness.called("hang")
    await plain.aclose()
    with pytest.raises(InDoubtError, match="may or may not have taken effect"):
        await hanging
    assert servers.witness.count("notifications/cancelled") == 1


async def test_progress_is_not_recorded_after_the_stop(servers: Servers, host: Host) -> None:
    """When `run` has ended, nothing of it goes on."""
    plain = servers.plain(cancel_wait_seconds=0)
    before = asyncio.all_tasks()
    counting = asyncio.create_task(call(plain, "count", host, to=5))
    await counting
    hanging = asyncio.create_task(call(plain, "hang", host))
    await servers.witness.called("hang")
    await stopped(hanging)
    recorded = list(host.recorded)
    await call(plain, "echo", text="x")
    assert host.recorded == recorded
    left = {task.get_name() for task in asyncio.all_tasks() - before}
    assert all(name.startswith(("heaveto MCP", "Task-", "mcp", "anyio")) for name in left)
