"""The same over streamable HTTP, with the official SDK's server, and its newest version over stdio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from tests.tools.mcp.conftest import Servers, call
from tests.tools.mcp.witness import Host

from heaveto.errors import InDoubtError, ToolsetError
from heaveto.tools.base import Reply
from heaveto.tools.mcp import MCPToolset
from heaveto.tools.mcp.failures import RejectedError
from heaveto.tools.retry import Retry

PATIENT = Retry(attempts=100, backoff_seconds=0.05, max_backoff_seconds=0.2)
Making = Callable[[Servers], Awaitable[MCPToolset]]


async def over_stdio(servers: Servers) -> MCPToolset:
    return servers.sdk()


async def over_http(servers: Servers) -> MCPToolset:
    return await servers.http(reconnect=PATIENT)


async def over_http_2025(servers: Servers) -> MCPToolset:
    return await servers.http(reconnect=PATIENT, protocol="legacy")


every_way = pytest.mark.parametrize("made", [over_stdio, over_http, over_http_2025])


@every_way
async def test_a_call_a_question_progress_and_a_change(servers: Servers, made: Making) -> None:
    """What a server can do, it can do in every version and over every transport."""
    toolset = await made(servers)
    assert await call(toolset, "add", a=1, b=2) == {"result": 3}
    host = Host(Reply(accepted=True, value={"size": 4}))
    assert await call(toolset, "order", host) == {"result": "a box of 4"}
    assert [hint for hint, _ in host.asked] == ["How big?"]
    await call(toolset, "count", host, to=3)
    assert host.recorded[-1] == {"progress": 3.0, "total": 3.0, "message": "step 3"}
    assert await call(toolset, "learn") == {"result": "learnt"}
    async with asyncio.timeout(10):
        while "trick" not in {tool.name for tool in toolset.tools}:
            await toolset.open()
            await asyncio.sleep(0.01)


@every_way
async def test_a_stop_reaches_the_work_on_the_server(servers: Servers, made: Making) -> None:
    """F49: by notification, or by closing the response where the protocol wants that, the server's work ends."""
    toolset = await made(servers)
    hanging = asyncio.create_task(call(toolset, "hang"))
    await servers.witness.until(lambda told: told.get("event") == "begun")
    hanging.cancel()
    with pytest.raises((asyncio.CancelledError, InDoubtError)):
        await hanging
    await servers.witness.until(lambda told: told.get("event") == "stopped")
    assert await call(toolset, "add", a=2, b=2) == {"result": 4}


@every_way
async def test_calls_overlap(servers: Servers, made: Making) -> None:
    """F132: a call that hangs holds up none of those behind it."""
    toolset = await made(servers)
    hanging = asyncio.create_task(call(toolset, "hang"))
    await servers.witness.until(lambda told: told.get("event") == "begun")
    answers = await asyncio.gather(*(call(toolset, "add", a=n, b=0) for n in range(10)))
    assert [answer["result"] for answer in answers] == list(range(10))
    hanging.cancel()
    with pytest.raises((asyncio.CancelledError, InDoubtError)):
        await hanging


async def test_a_question_over_http_finds_its_call_among_several(servers: Servers) -> None:
    """It comes on the response of the call that it belongs to, so that there is nothing to guess."""
    toolset = await over_http_2025(servers)
    hanging = asyncio.create_task(call(toolset, "hang"))
    await servers.witness.until(lambda told: told.get("event") == "begun")
    hosts = [Host(Reply(accepted=True, value={"size": n})) for n in range(3)]
    answers = await asyncio.gather(*(call(toolset, "ask", host) for host in hosts))
    assert [answer["result"] for answer in answers] == ["accept 0", "accept 1", "accept 2"]
    hanging.cancel()
    with pytest.raises((asyncio.CancelledError, InDoubtError)):
        await hanging


@pytest.mark.parametrize("protocol", ["auto", "legacy"])
async def test_a_server_that_dies_and_comes_back(servers: Servers, protocol: str) -> None:
    """The call on its way is in doubt; one that finds nobody was not executed; the next one finds the new server."""
    toolset = await servers.http(reconnect=PATIENT, protocol=protocol)
    hanging = asyncio.create_task(call(toolset, "hang"))
    await servers.witness.until(lambda told: told.get("event") == "begun")
    servers.process.kill()
    await servers.process.wait()
    with pytest.raises(InDoubtError):
        await hanging
    await servers.start_http()
    assert await call(toolset, "add", a=1, b=1) == {"result": 2}


async def test_a_server_that_forgot_the_session_did_not_execute_the_call(servers: Servers) -> None:
    """Restarted between two calls: the model may simply call again, and that call gets a new session."""
    toolset = await servers.http(reconnect=PATIENT, protocol="legacy")
    assert await call(toolset, "add", a=1, b=1) == {"result": 2}
    servers.process.kill()
    await servers.process.wait()
    await servers.start_http()
    await servers.listening()
    with pytest.raises(ToolsetError, match="'add' was not executed: the server does not know the session"):
        await call(toolset, "add", a=1, b=1)
    assert await call(toolset, "add", a=1, b=1) == {"result": 2}


# --- a server that answers with HTTP statuses ---------------------------------------------------------------------


@pytest.fixture
async def status_server() -> AsyncIterator[tuple[str, list[bytes], dict[str, Any]]]:
    """An HTTP server that answers every request with one status, and keeps what it read."""
    read: list[bytes] = []
    says: dict[str, Any] = {"status": "500 Oh"}

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        read.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(f"HTTP/1.1 {says['status']}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".encode())
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp", read, says


async def test_a_refusal_is_told_at_once_and_without_credentials(
    status_server: tuple[str, list[bytes], dict[str, Any]], caplog: pytest.LogCaptureFixture
) -> None:
    """401 does not get better by trying; headers go to the server and nowhere else."""
    url, read, says = status_server
    says["status"] = "401 No"
    toolset = MCPToolset.http(url, headers={"authorization": "Bearer s3cret"}, name="locked")
    caplog.set_level("DEBUG")
    with pytest.raises(RejectedError, match="toolset locked: cannot be reached: HTTP status 401"):
        await toolset.open()
    await toolset.aclose()
    assert b"Bearer s3cret" in read[0]
    assert "s3cret" not in caplog.text + repr(toolset)


async def test_a_server_in_trouble_is_tried_again(status_server: tuple[str, list[bytes], dict[str, Any]]) -> None:
    """503 may get better; it is tried as often as was said, and then told."""
    url, read, _ = status_server
    toolset = MCPToolset.http(url, name="busy", reconnect=Retry(attempts=3, backoff_seconds=0.01))
    with pytest.raises(ToolsetError, match="toolset busy: cannot be reached: HTTP status 500"):
        await toolset.open()
    await toolset.aclose()
    assert len(read) >= 3
