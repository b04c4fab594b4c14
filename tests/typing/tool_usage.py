"""Typed usage of function tools: checked by mypy and pyright, never executed.

What must not type-check carries a ``type: ignore`` that mypy reports as unused once it does.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, assert_type

from heaveto.core.request import ToolDeclaration
from heaveto.tools.base import Tool, ToolContext
from heaveto.tools.function import FunctionTool, as_tool
from heaveto.tools.response import to_response


def look(city: str, ctx: ToolContext) -> dict[str, int]:
    ctx.raise_if_cancelled()
    return {city: 1}


async def book(city: str, days: int = 1) -> str:
    return city * days


class Desk:
    async def __call__(self, name: str) -> str:
        return name


tools: list[Tool] = [
    FunctionTool(look),
    FunctionTool(book, name="book_it", description="Book.", replay="idempotent", on_cancel="finish"),
    FunctionTool(functools.partial(book, days=2)),
    FunctionTool(Desk()),
    as_tool(look),
]
mixed: list[Tool | Callable[..., Any]] = [look, book, Desk(), tools[0]]

assert_type(as_tool(book), Tool)
assert_type(tools[0].declaration(), ToolDeclaration)
assert_type(to_response(3), dict[str, Any])

FunctionTool(book, replay="sometimes")  # type: ignore[arg-type]
FunctionTool(book, on_cancel="ignore")  # type: ignore[arg-type]
FunctionTool("book")  # type: ignore[arg-type]
FunctionTool(book, "book")  # type: ignore[call-arg]
as_tool(1)  # type: ignore[arg-type]
