"""Plugins, and the order in which callbacks are asked: plugins in order of registration, then the agent's own.

At each point the first that returns something wins. A run that is stopped while a callback works is stopped
afterwards, whatever the callback says (F153).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from inspect import isawaitable
from typing import Any, Literal, TypeAlias

from heaveto.agents.context import AgentContext
from heaveto.core.request import ModelRequest
from heaveto.errors import CallbackAnswerError, NotSerializableError
from heaveto.events.contents import Content, Json
from heaveto.events.records import Record, RunEnded, SessionKey, StopReport, Usage
from heaveto.tools.base import Tool, ToolContext
from heaveto.tools.response import to_response


@dataclass(frozen=True, slots=True)
class RunEnd:
    """What `on_run_end` is told.

    `redelivered` is true where a crash came between the ending and the confirmation of its hook, so that it may have
    been told before.
    """

    key: SessionKey
    run_id: str
    outcome: RunEnded
    report: StopReport
    usage: Usage
    redelivered: bool = False


class Plugin:
    """Derive from it and override what you need. A plugin sees all agents and tools of an app."""

    name: str = ""

    async def on_user_message(self, key: SessionKey, message: Content) -> Content | str | None:
        """Before the message is recorded; a content replaces it."""

    async def before_run(self, ctx: AgentContext) -> Content | str | None:
        """Before the first agent; a content is said instead of running it."""

    async def after_run(self, ctx: AgentContext) -> None:
        """After the agents, on normal completion only (ADK's rule)."""

    async def on_event(self, record: Record) -> None:
        """When a record of the run has become durable; in order, one after another.

        The run waits for it, its ending does not wait longer than for an end hook. An error in it is logged and
        changes nothing; a stop interrupts it.
        """

    async def before_agent(self, ctx: AgentContext) -> Content | str | None:
        """Before an agent; a content is said instead of running it."""

    async def after_agent(self, ctx: AgentContext) -> Content | str | None:
        """After an agent; a content is said in addition."""

    async def before_model(self, ctx: AgentContext, request: ModelRequest) -> Content | str | ModelRequest | None:
        """Before a model call; a content is taken as the answer, a request replaces the request."""

    async def after_model(self, ctx: AgentContext, answer: Content) -> Content | str | None:
        """After a model call; a content replaces the answer."""

    async def on_model_error(self, ctx: AgentContext, request: ModelRequest, error: Exception) -> Content | str | None:
        """When a model call failed for good; a content is taken as the answer."""

    async def before_tool(self, tool: Tool, args: dict[str, Json], ctx: ToolContext) -> dict[str, Json] | None:
        """Before a call is started; a dict is taken as its result, the tool is not executed."""

    async def after_tool(
        self, tool: Tool, args: dict[str, Json], ctx: ToolContext, result: dict[str, Json]
    ) -> dict[str, Json] | None:
        """After a call succeeded; a dict replaces its result."""

    async def on_tool_error(
        self, tool: Tool, args: dict[str, Json], ctx: ToolContext, error: Exception
    ) -> dict[str, Json] | None:
        """When a tool raised; a dict is taken as its result."""

    async def on_run_end(self, end: RunEnd) -> None:
        """After the run's one ending became durable, however it ended: audit and billing go here.

        Called once per run, shielded from cancellation and bounded in time; an error in it is logged and changes
        nothing. Only if the process dies between the ending and the confirmation of the hook is it called again,
        with `redelivered`: make what it does repeatable by the run id.
        """


Point: TypeAlias = Literal[
    "on_user_message",
    "before_run",
    "after_run",
    "on_event",
    "before_agent",
    "after_agent",
    "before_model",
    "after_model",
    "on_model_error",
    "before_tool",
    "after_tool",
    "on_tool_error",
    "on_run_end",
]


_TOOL_POINTS = ("before_tool", "after_tool", "on_tool_error")


class Hooks:
    """The plugins' methods by point; points that nobody overrides cost nothing."""

    def __init__(self, plugins: Sequence[Plugin]) -> None:
        self.plugins = tuple(plugins)
        self._at: dict[str, tuple[Callable[..., Any], ...]] = {}

    def at(self, point: Point) -> tuple[Callable[..., Any], ...]:
        """Return the plugin methods at a point, in order."""
        found = self._at.get(point)
        if found is None:
            base = getattr(Plugin, point)
            found = tuple(getattr(plugin, point) for plugin in self.plugins if getattr(type(plugin), point) is not base)
            self._at[point] = found
        return found

    async def first(self, point: Point, own: Sequence[Callable[..., Any]], *args: Any) -> Any:
        """Ask the plugins, then the agent's own callbacks; return the first answer that is not None, as `ask` does."""
        for callback in (*self.at(point), *own):
            answer = await ask(point, callback, *args)
            if answer is not None:
                return answer
        return None


async def call_back(callback: Callable[..., Any], *args: Any) -> Any:
    """Call a callback, which may be a coroutine function or a plain one."""
    answer = callback(*args)
    return await answer if isawaitable(answer) else answer


async def ask(point: Point, callback: Callable[..., Any], *args: Any) -> Any:
    """Call a callback and return its answer in the form of its point: a content, a JSON object or a request; or None.

    Raises:
        CallbackAnswerError: the answer is nothing that its point can take.
    """
    answer = await call_back(callback, *args)
    match answer:
        case None:
            return None
        case _ if point in _TOOL_POINTS:
            try:
                return to_response(answer)
            except NotSerializableError as error:
                raise CallbackAnswerError(point, _name_of(callback), answer, "a JSON object") from error
        case str():
            return Content.of(answer)
        case Content():
            return answer
        case ModelRequest() if point == "before_model":
            return answer
        case _:
            takes = "a Content, a str or a ModelRequest" if point == "before_model" else "a Content or a str"
            raise CallbackAnswerError(point, _name_of(callback), answer, takes)


def _name_of(callback: Callable[..., Any]) -> str:
    return getattr(callback, "__qualname__", type(callback).__name__)
