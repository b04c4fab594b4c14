"""What may be said about a server, and what follows from it for one of its tools."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TypedDict, TypeVar, cast, get_args

from mcp_types import LoggingLevel, Tool, ToolAnnotations

from heaveto.errors import ConfigError
from heaveto.events.contents import Json
from heaveto.events.records import Replay
from heaveto.tools.base import OnCancel
from heaveto.tools.mcp.connection import Protocol
from heaveto.tools.mcp.tool import Declared
from heaveto.tools.retry import Retry

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LateReply:
    """A real result that came when its call had been given up and settled without it."""

    tool: str
    call_id: str
    response: dict[str, Json]


class Options(TypedDict, total=False):
    """What may be said about a server; see `MCPToolset`."""

    name: str
    prefix: str
    tool_filter: Collection[str] | Callable[[Tool], bool] | None
    replay: Replay | Mapping[str, Replay]
    trust_annotations: bool
    on_cancel: OnCancel | Mapping[str, OnCancel]
    timeout_seconds: float | Mapping[str, float] | None
    required: bool
    protocol: Protocol
    connect_timeout_seconds: float
    reconnect: Retry
    cancel_wait_seconds: float
    log_level: LoggingLevel | None
    on_late_reply: Callable[[LateReply], None] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """`Options`, complete."""

    name: str
    prefix: str = ""
    tool_filter: Collection[str] | Callable[[Tool], bool] | None = None
    replay: Replay | Mapping[str, Replay] = "never"
    trust_annotations: bool = False
    on_cancel: OnCancel | Mapping[str, OnCancel] = "cancel"
    timeout_seconds: float | Mapping[str, float] | None = None
    required: bool = True
    protocol: Protocol = "auto"
    connect_timeout_seconds: float = 30.0
    reconnect: Retry = field(default_factory=lambda: Retry(attempts=4, backoff_seconds=0.25, max_backoff_seconds=5.0))
    cancel_wait_seconds: float = 0.25
    log_level: LoggingLevel | None = "info"
    on_late_reply: Callable[[LateReply], None] | None = None

    def __post_init__(self) -> None:
        declared = _all_of(self.replay)
        if "probe" in declared:
            raise ConfigError(f"MCP server {self.name}: a server's tools have no probe; use never, safe or idempotent")
        self._require("replay", declared, ("never", "safe", "idempotent"))
        self._require("on_cancel", _all_of(self.on_cancel), get_args(OnCancel))

    def _require(self, option: str, given: Collection[str], allowed: tuple[str, ...]) -> None:
        for value in given:
            if value not in allowed:
                raise ConfigError(
                    f"MCP server {self.name}: {option} must be one of {', '.join(allowed)}; not {value!r}"
                )

    def wants(self, tool: Tool) -> bool:
        """Whether the tool filter lets it through."""
        if self.tool_filter is None:
            return True
        return self.tool_filter(tool) if callable(self.tool_filter) else tool.name in self.tool_filter

    def declared(self, tool: Tool) -> Declared:
        """Return what holds for one tool."""
        hinted = _hinted(tool.annotations) if self.trust_annotations else "never"
        return Declared(
            replay=_of(self.replay, tool.name, hinted) if self.replay != "never" else hinted,
            on_cancel=_of(self.on_cancel, tool.name, "cancel"),
            timeout_seconds=_of(self.timeout_seconds, tool.name, None),
            cancel_wait_seconds=self.cancel_wait_seconds,
        )


def _all_of(value: T | Mapping[str, T]) -> list[T]:
    """Return what was said, whether for all tools or for some."""
    return [*cast("Mapping[str, T]", value).values()] if isinstance(value, Mapping) else [value]


def _of(value: T | Mapping[str, T], name: str, default: T) -> T:
    """Return what was said for all tools, or for this one."""
    return cast("Mapping[str, T]", value).get(name, default) if isinstance(value, Mapping) else value


def _hinted(annotations: ToolAnnotations | None) -> Replay:
    """Return what a server says about its tool: hints, which nothing holds it to."""
    if annotations is None:
        return "never"
    if annotations.read_only_hint:
        return "safe"
    return "idempotent" if annotations.idempotent_hint else "never"
