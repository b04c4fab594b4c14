"""Functions as tools."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any, Literal, TypeAlias, get_args

from heaveto.core.request import ToolDeclaration
from heaveto.errors import ToolDefinitionError
from heaveto.events.contents import Json
from heaveto.events.records import Replay
from heaveto.tools.base import Hold, OnCancel, Tool, ToolContext
from heaveto.tools.docstring import parse_docstring
from heaveto.tools.generators import drain_async, result_of
from heaveto.tools.naming import require_tool_name
from heaveto.tools.process.reference import refer_to
from heaveto.tools.retry import Retry
from heaveto.tools.schema import Arguments
from heaveto.tools.signature import plain_function, read_signature, without_partial

Isolation: TypeAlias = Literal["thread", "process"]

_CHOICES: dict[str, tuple[str, ...]] = {"replay": get_args(Replay), "on_cancel": get_args(OnCancel)}


class FunctionTool(Tool):
    """A function that a model can call.

    Its schema comes from the signature and the docstring (Google, NumPy or Sphinx style), once; arguments are
    validated strictly against it. A function that is not ``async`` runs in a thread, never on the event loop. Of a
    generator function each piece is shown as output at once; its result is what it returns, else its pieces: one text
    if all are text, or a list.

    Args:
        func: a function, generator function, bound method, ``functools.partial`` or object with ``__call__``; sync or
            async.
        name: what the model calls it by; the function's own name if left out.
        description: what the model is told; the docstring's text before its sections if left out.
        replay: whether a call in doubt after a crash may be executed again.
        probe: for ``replay="probe"``, which it implies: a function, sync or async, that is handed the arguments and
            the context as `func` is. It returns the result that an earlier attempt of this call had, by
            `ctx.idempotency_key`, or None if it had no effect; it raises if it cannot tell.
        on_cancel: what a stop does to a running call.
        isolation: ``process`` runs a blocking function in a process that a stop can kill; see `tools.process`.
        timeout_seconds: how long one attempt may take.
        retry: whether and how a failed attempt is repeated: a number of attempts, or a `Retry`.
        max_concurrency: how many calls of this tool run at the same time in this process.
        max_result_bytes: results larger than this become an artifact; None leaves it to the run's setting.
        require_confirmation: whether a call needs a yes before it is executed: always, or as a function decides that is
            handed the arguments and the context as `func` is.
        confirmation_hint: what whoever says yes is told.
        confirm_within_seconds: how long to wait for it; then the call is denied.
        long_running: the function only begins the work, see `Tool.long_running`.

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
        isolation: Isolation = "thread",
        probe: Callable[..., Any] | None = None,
        timeout_seconds: float | None = None,
        retry: Retry | int | None = None,
        max_concurrency: int | None = None,
        max_result_bytes: int | None = None,
        require_confirmation: bool | Callable[..., Any] = False,
        confirmation_hint: str = "",
        confirm_within_seconds: float | None = None,
        long_running: bool = False,
    ) -> None:
        self.name = require_tool_name(_own_name(func) if name is None else name)
        _require_no_class(self.name, func)
        docstring = plain_function(func).__doc__
        signature = read_signature(self.name, func)
        self.func = func
        self.description = parse_docstring(docstring).description if description is None else description
        self.replay, self.on_cancel = "probe" if probe is not None else replay, on_cancel
        self.timeout_seconds, self.max_concurrency = timeout_seconds, max_concurrency
        self.retry = Retry(attempts=retry) if isinstance(retry, int) else retry
        self.max_result_bytes, self.long_running = max_result_bytes, long_running
        self._confirm, self._confirm_within = require_confirmation, confirm_within_seconds
        self._confirmation_hint = confirmation_hint or f"Please approve or reject the call to {self.name}."
        self._probe = probe
        require_policy(self, probe is not None, replay)
        if isolation not in get_args(Isolation):
            raise ToolDefinitionError(self.name, f"isolation must be one of thread, process; not {isolation!r}")
        self._reference = refer_to(self.name, func) if isolation == "process" else None
        self.blocking = self._reference is None and not is_async(func)
        self._context = signature.context
        self._arguments = Arguments(self.name, signature, docstring)
        self._declaration = ToolDeclaration(self.name, self.description, self._arguments.schema)

    def declaration(self) -> ToolDeclaration:
        return self._declaration

    def bind(self, args: dict[str, Json]) -> dict[str, Any]:
        return self._arguments.bind(args)

    async def run(self, args: dict[str, Any], ctx: ToolContext) -> Any:
        if self._reference is not None:
            from heaveto.tools.process.conversation import call_in_process

            stoppable = self.on_cancel == "cancel"
            return await call_in_process(
                self.name, self._reference, args, ctx, context=self._context, stoppable=stoppable
            )
        value = self.func(**self._completed(args, ctx))
        return await (drain_async(value, ctx) if inspect.isasyncgen(value) else value)

    def run_blocking(self, args: dict[str, Any], ctx: ToolContext) -> Any:
        value = self.func(**self._completed(args, ctx))
        return result_of(self.name, value, ctx, stoppable=self.on_cancel == "cancel")

    async def hold(self, args: dict[str, Any], ctx: ToolContext) -> Hold | None:
        wanted = self._confirm
        if callable(wanted):
            wanted = wanted(**self._completed(args, ctx))
            wanted = await wanted if inspect.isawaitable(wanted) else wanted
        if not wanted:
            return None
        return Hold("confirmation", self._confirmation_hint, within_seconds=self._confirm_within)

    async def probe(self, args: dict[str, Any], ctx: ToolContext) -> Any:
        if self._probe is None:
            return await super().probe(args, ctx)
        func, given = self._probe, self._completed(args, ctx)
        if is_async(func):
            return await func(**given)
        return await asyncio.to_thread(func, **given)

    def _completed(self, args: dict[str, Any], ctx: ToolContext) -> dict[str, Any]:
        return args if self._context is None else {**args, self._context: ctx}

    def __repr__(self) -> str:
        return f"FunctionTool({self.name!r})"


def as_tool(value: Tool | Callable[..., Any]) -> Tool:
    """Return a tool as it is, and a callable as a `FunctionTool`.

    Raises:
        ToolDefinitionError: it is neither, the callable cannot be used as a tool, or what the tool declares about
            further attempts does not fit together.
    """
    if isinstance(value, Tool):
        if not isinstance(value, FunctionTool):  # that has looked at it itself
            has_probe = value.replay == "probe" and type(value).probe is not Tool.probe
            require_policy(value, has_probe, value.replay)
        return value
    if callable(value):
        return FunctionTool(value)
    raise ToolDefinitionError(repr(value), "it is neither a tool nor callable")


def is_async(func: Callable[..., Any]) -> bool:
    """Whether it is an async function, an async generator function, or an object with such a ``__call__``."""
    inner = without_partial(func)
    return any(map(inspect.iscoroutinefunction, (inner, type(inner).__call__))) or any(
        map(inspect.isasyncgenfunction, (inner, type(inner).__call__))
    )


def _own_name(func: Callable[..., Any]) -> str:
    inner = without_partial(func)
    return inner.__name__ if inspect.isroutine(inner) else type(inner).__name__


def require_policy(tool: Tool, has_probe: bool, declared: Replay) -> None:
    """Check that what a tool declares about further attempts fits together.

    Raises:
        ToolDefinitionError: it does not; the message says what to change.
    """
    for option, allowed in _CHOICES.items():
        value = getattr(tool, option)
        if value not in allowed:
            raise ToolDefinitionError(tool.name, f"{option} must be one of {', '.join(allowed)}; not {value!r}")
    if has_probe and declared not in ("never", "probe"):
        raise ToolDefinitionError(tool.name, f"it has a probe and replay={declared!r}; leave replay out")
    if tool.replay == "probe" and not has_probe:
        raise ToolDefinitionError(tool.name, "replay='probe' needs probe=, a function that finds out what happened")
    if tool.retry is not None and tool.retry.attempts > 1 and tool.replay == "never":
        raise ToolDefinitionError(
            tool.name,
            "retry needs a tool that may be executed again: declare replay='safe' or 'idempotent', or a probe",
        )
    for option in ("timeout_seconds", "max_concurrency", "max_result_bytes"):
        value = getattr(tool, option)
        if value is not None and value <= 0:
            raise ToolDefinitionError(tool.name, f"{option} must be positive, or None for no limit; not {value}")


def _require_no_class(name: str, func: Callable[..., Any]) -> None:
    if inspect.isclass(func):
        raise ToolDefinitionError(name, "it is a class; pass a function, or an object with __call__")
