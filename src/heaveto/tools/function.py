"""Functions as tools."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from heaveto.core.request import ToolDeclaration
from heaveto.errors import ToolDefinitionError
from heaveto.events.contents import Json
from heaveto.events.records import Replay
from heaveto.tools.base import OnCancel, Tool, ToolContext
from heaveto.tools.docstring import parse_docstring
from heaveto.tools.naming import require_tool_name
from heaveto.tools.schema import Arguments, plain_function, read_signature, without_partial


class FunctionTool(Tool):
    """A function that a model can call.

    Its schema comes from the signature and the docstring (Google, NumPy or Sphinx style), once; arguments are
    validated strictly against it. A function that is not ``async`` runs in a thread, never on the event loop.

    Args:
        func: a function, bound method, ``functools.partial`` or object with ``__call__``; sync or async.
        name: what the model calls it by; the function's own name if left out.
        description: what the model is told; the docstring's text before its sections if left out.
        replay: whether a call in doubt after a crash may be executed again.
        on_cancel: what a stop does to a running call.

    Raises:
        ToolDefinitionError: the function cannot be used as a tool as it is written; the message says what to change.
    """

    def __init__(
        self,
        func: Callable[..., Any],
        *,
        name: str | None = None,
        description: str | None = None,
        replay: Replay = "never",
        on_cancel: OnCancel = "cancel",
    ) -> None:
        self.name = require_tool_name(_own_name(func) if name is None else name)
        _require_plain_call(self.name, func)
        docstring = plain_function(func).__doc__
        signature = read_signature(self.name, func)
        self.func = func
        self.description = parse_docstring(docstring).description if description is None else description
        self.replay, self.on_cancel = replay, on_cancel
        self.blocking = not is_async(func)
        self._context = signature.context
        self._arguments = Arguments(self.name, signature, docstring)
        self._declaration = ToolDeclaration(self.name, self.description, self._arguments.schema)

    def declaration(self) -> ToolDeclaration:
        return self._declaration

    def bind(self, args: dict[str, Json]) -> dict[str, Any]:
        return self._arguments.bind(args)

    async def run(self, args: dict[str, Any], ctx: ToolContext) -> Any:
        return await self.func(**self._completed(args, ctx))

    def run_blocking(self, args: dict[str, Any], ctx: ToolContext) -> Any:
        value = self.func(**self._completed(args, ctx))
        if inspect.isawaitable(value):
            if inspect.iscoroutine(value):
                value.close()
            raise ToolDefinitionError(self.name, "it is not 'async def' but returned an awaitable; make it async")
        return value

    def _completed(self, args: dict[str, Any], ctx: ToolContext) -> dict[str, Any]:
        return args if self._context is None else {**args, self._context: ctx}

    def __repr__(self) -> str:
        return f"FunctionTool({self.name!r})"


def as_tool(value: Tool | Callable[..., Any]) -> Tool:
    """Return a tool as it is, and a callable as a `FunctionTool`.

    Raises:
        ToolDefinitionError: it is neither, or the callable cannot be used as a tool.
    """
    if isinstance(value, Tool):
        return value
    if callable(value):
        return FunctionTool(value)
    raise ToolDefinitionError(repr(value), "it is neither a tool nor callable")


def is_async(func: Callable[..., Any]) -> bool:
    """Whether calling it gives a coroutine: an async function, or an object with an async ``__call__``."""
    inner = without_partial(func)
    return inspect.iscoroutinefunction(inner) or inspect.iscoroutinefunction(type(inner).__call__)


def _own_name(func: Callable[..., Any]) -> str:
    inner = without_partial(func)
    return inner.__name__ if inspect.isroutine(inner) else type(inner).__name__


def _require_plain_call(name: str, func: Callable[..., Any]) -> None:
    if inspect.isclass(func):
        raise ToolDefinitionError(name, "it is a class; pass a function, or an object with __call__")
    plain = plain_function(func)
    if inspect.isgeneratorfunction(plain) or inspect.isasyncgenfunction(plain):
        raise ToolDefinitionError(name, "it is a generator; return one value, and use ctx.progress to tell progress")
