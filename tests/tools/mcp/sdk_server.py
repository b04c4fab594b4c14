"""A server made with the official SDK, over stdio or streamable HTTP. ``sdk_server.py WITNESS_PORT [HTTP_PORT]``."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from typing import Annotated, Any

from mcp.server.mcpserver import Context, Elicit, MCPServer, Resolve
from pydantic import BaseModel

WITNESS = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
server = MCPServer("sdk", log_level="ERROR")


def tell(**message: Any) -> None:
    WITNESS.sendall(json.dumps(message).encode() + b"\n")


class Size(BaseModel):
    size: int


async def how_big() -> Elicit[Size]:
    return Elicit("How big?", Size)


@server.tool()
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
async def hang() -> str:
    """Never come back."""
    tell(event="begun")
    try:
        await asyncio.Event().wait()
    finally:
        tell(event="stopped")
    return "never"


@server.tool()
async def count(to: int, ctx: Context) -> str:
    """Count."""
    for step in range(1, to + 1):
        await ctx.report_progress(step, to, f"step {step}")
    return "counted"


@server.tool()
async def order(answer: Annotated[Size, Resolve(how_big)]) -> str:
    """Order a box."""
    return f"a box of {answer.size}"


@server.tool()
async def ask(ctx: Context) -> str:
    """Ask in the middle of the call, as versions before 2026 do."""
    reply = await ctx.elicit("How big?", Size)
    return f"{reply.action} {reply.data.size if reply.action == 'accept' else ''}".strip()


@server.tool()
async def learn(ctx: Context) -> str:
    """Learn a trick."""

    async def trick() -> str:
        return "ta-da"

    server.add_tool(trick, name="trick", description="Do a trick.")
    await ctx.notify_tools_changed()
    await ctx.session.send_tool_list_changed()
    return "learnt"


if __name__ == "__main__":
    if len(sys.argv) > 2:
        server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[2]))
    else:
        server.run()
