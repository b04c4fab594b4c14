"""An MCP server over stdio with one tool that works until it is stopped; `stop_tools` starts it."""

from __future__ import annotations

import asyncio
from pathlib import Path

from mcp.server.mcpserver import MCPServer

server = MCPServer("bench", log_level="ERROR")


@server.tool()
async def remote(begun: str) -> None:
    """Wait."""
    Path(begun).touch()
    await asyncio.Event().wait()


if __name__ == "__main__":
    server.run("stdio")
