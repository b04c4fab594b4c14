"""Servers of these tests: real processes, and a witness that hears what they read."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.tools.mcp.witness import Host, Witness

from heaveto.tools.base import Tool
from heaveto.tools.mcp import MCPToolset

HERE = Path(__file__).parent
PLAIN = [str(HERE / "plain_server.py")]


class Servers:
    """Makes toolsets, and ends them with the test."""

    def __init__(self, witness: Witness, port: int, stack: AsyncExitStack) -> None:
        self.witness, self._port, self._stack = witness, port, stack
        self.http_port = _free_port()

    def plain(self, **options: Any) -> MCPToolset:
        """A toolset of the server without an SDK."""
        return self._kept(MCPToolset.stdio(sys.executable, ["-S", *PLAIN, str(self._port)], name="plain", **options))

    def sdk(self, **options: Any) -> MCPToolset:
        """A toolset of the SDK's server over stdio."""
        args = [str(HERE / "sdk_server.py"), str(self._port)]
        return self._kept(MCPToolset.stdio(sys.executable, args, name="sdk", **options))

    async def http(self, **options: Any) -> MCPToolset:
        """A toolset of the SDK's server over HTTP, which is started here."""
        self.process = await self.start_http()
        return self._kept(MCPToolset.http(f"http://127.0.0.1:{self.http_port}/mcp", name="web", **options))

    async def start_http(self) -> asyncio.subprocess.Process:
        process = await asyncio.create_subprocess_exec(
            sys.executable, str(HERE / "sdk_server.py"), str(self._port), str(self.http_port)
        )
        self._stack.push_async_callback(_end, process)
        return process

    async def listening(self) -> None:
        """Wait until the HTTP server takes connections."""
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", self.http_port)
            except ConnectionError:
                await asyncio.sleep(0.02)
            else:
                writer.close()
                return

    def _kept(self, toolset: MCPToolset) -> MCPToolset:
        self._stack.push_async_callback(toolset.aclose)
        return toolset


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.kill()
    await process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
async def witness() -> Witness:
    return Witness()


@pytest.fixture
async def servers(witness: Witness) -> AsyncIterator[Servers]:
    port = await witness.start()
    async with AsyncExitStack() as stack:
        stack.push_async_callback(witness.aclose)
        yield Servers(witness, port, stack)


@pytest.fixture
async def host() -> Host:
    return Host()


def tool(toolset: MCPToolset, name: str) -> Tool:
    """Return one of its tools."""
    return next(tool for tool in toolset.tools if tool.name == name)


async def call(toolset: MCPToolset, name: str, host: Host | None = None, call_id: str = "call-1", **args: Any) -> Any:
    """Call a tool as the runner does: open, bind, run."""
    await toolset.open()
    wanted = tool(toolset, name)
    return await wanted.run(wanted.bind(args), (host or Host()).context(call_id))
