"""The names that every provider accepts."""

from __future__ import annotations

import re

from heaveto.errors import ToolDefinitionError

_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_ARGUMENT_NAME = re.compile(r"[A-Za-z0-9_]{1,64}")


def require_tool_name(name: str) -> str:
    """Return the name, or raise `ToolDefinitionError` if a provider would refuse it."""
    if not _TOOL_NAME.fullmatch(name):
        raise ToolDefinitionError(name, "a tool's name is 1 to 64 of the characters A-Z a-z 0-9 _ -; pass name='…'")
    return name


def require_argument_name(tool: str, name: str) -> str:
    """Return the parameter's name, or raise `ToolDefinitionError` if a provider would refuse it in a schema."""
    if not _ARGUMENT_NAME.fullmatch(name):
        raise ToolDefinitionError(
            tool, f"parameter {name!r}: a parameter's name is 1 to 64 of the characters A-Z a-z 0-9 _; rename it"
        )
    return name
