"""Tools of MCP servers, over the official SDK (`mcp`, version 2).

`toolset` is what an agent gets, `options` what may be said about it. `connection` is one connection and the task that
owns it, over a transport of `process` or `http` that `tap` listens in on; `listing` asks for the tools, `exchange`
talks for one call. `tool` is a server's tool as the runtime knows it, `following` what a run does about what is said
meanwhile.
"""

from __future__ import annotations

from heaveto.errors import MissingExtraError

try:
    from heaveto.tools.mcp.failures import MCPToolError
    from heaveto.tools.mcp.options import LateReply
    from heaveto.tools.mcp.toolset import MCPToolset
except ModuleNotFoundError as error:  # the SDK, or something that only it needs
    if (error.name or "").startswith("heaveto"):
        raise
    raise MissingExtraError("mcp", "MCPToolset") from error

__all__ = ["LateReply", "MCPToolError", "MCPToolset"]
