"""Tools of MCP servers, over the official SDK (`mcp`, version 2): a toolset, its connection, its calls."""

from __future__ import annotations

from heaveto.errors import MissingExtraError

try:
    from heaveto.tools.mcp.failures import MCPToolError
    from heaveto.tools.mcp.toolset import LateReply, MCPToolset
except ModuleNotFoundError as error:  # the SDK, or something that only it needs
    if (error.name or "").startswith("heaveto"):
        raise
    raise MissingExtraError("mcp", "MCPToolset") from error

__all__ = ["LateReply", "MCPToolError", "MCPToolset"]
