"""Which tools a server has, and when that changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from mcp import Client
from mcp.client import ClientSession
from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost, listen
from mcp.shared.exceptions import MCPError
from mcp_types import PaginatedRequestParams, Tool

from heaveto.errors import ToolsetError

_MAX_PAGES = 1000
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 1.0, 60.0


async def all_tools(session: ClientSession, server: str) -> list[Tool]:
    """Return all tools of a server, from as many pages as there are.

    Raises:
        ToolsetError: the pages do not come to an end.
        MCPError, ValidationError: the server did not tell them.
    """
    found: list[Tool] = []
    cursor: str | None = None
    for _ in range(_MAX_PAGES):
        page = await session.list_tools(params=PaginatedRequestParams(cursor=cursor))
        found += page.tools
        cursor = page.next_cursor
        if cursor is None:
            return found
    raise ToolsetError(server, f"it lists more than {_MAX_PAGES} pages of tools")


async def listen_for_changes(client: Client, changed: Callable[[], None]) -> None:
    """Call `changed` when the tools may have, where the protocol's version wants that asked for. Ends if cancelled."""
    tools = client.server_capabilities.tools
    if tools is None or not tools.list_changed:
        return
    pause = _FIRST_PAUSE_SECONDS
    while True:
        try:
            async with listen(client.session, tools_list_changed=True) as changes:
                pause = _FIRST_PAUSE_SECONDS
                async for _ in changes:
                    changed()
            return
        except SubscriptionLost:
            changed()
        except (ListenNotSupportedError, MCPError):
            return  # an older version tells unasked; a server that refuses is taken at its word
        await asyncio.sleep(pause)
        pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)
