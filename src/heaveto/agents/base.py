"""What every agent is: a name, sub-agents, callbacks, and a coroutine that does its part of a run."""

from __future__ import annotations

import inspect
import re
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Sequence
from reprlib import repr as short_repr
from typing import TYPE_CHECKING, TypeAlias, TypeVar, cast

from heaveto.agents.pieces import as_pieces, require_piece
from heaveto.errors import ConfigError, DuplicateNameError
from heaveto.events.contents import Content

if TYPE_CHECKING:
    from heaveto.agents.context import AgentContext

AGENT_ADVICE = "pass an agent, such as LlmAgent('name', model)"

_T = TypeVar("_T")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")

AgentCallback: TypeAlias = Callable[["AgentContext"], Awaitable[Content | str | None] | Content | str | None]
"""A callback around an agent. What it returns is said by the agent: before it, instead of the agent's work."""


class BaseAgent(ABC):
    """Derive from it to write an agent in plain Python: implement `run`.

    An agent object is configuration: it may serve many runs at once and keeps nothing of them. All that must survive
    goes through the context: messages, state, checkpoints.
    """

    def __init__(
        self,
        name: str,
        *,
        description: str = "",
        sub_agents: Sequence[BaseAgent] = (),
        before_agent_callback: AgentCallback | Sequence[AgentCallback] | None = None,
        after_agent_callback: AgentCallback | Sequence[AgentCallback] | None = None,
    ) -> None:
        """Make an agent.

        Args:
            name: unique within its tree; letters, digits, ``_`` and ``-``; not ``user``.
            description: what other agents' models are told about it when they may hand over to it.
            sub_agents: the agents below it. An agent has one parent.
            before_agent_callback: called first; what one returns is said instead of running the agent.
            after_agent_callback: called when the agent has done its part; what one returns is said in addition.

        Raises:
            ConfigError: the name is not usable, something handed in is not what it must be, `run` is written as a
                generator, or a sub-agent has another parent already.
        """
        kind = type(self).__name__
        require_piece(name, str, f"{kind}: name", "pass the name first")
        if name == "user" or not _NAME.fullmatch(name):
            raise ConfigError(f"agent name {name!r}: use letters, digits, '_' and '-', not 'user'")
        if inspect.isasyncgenfunction(type(self).run) or inspect.isgeneratorfunction(type(self).run):
            raise ConfigError(f"{kind} {name!r}: run() must not yield; say things with await ctx.say(…)")
        self.name, self.description = name, description
        self.sub_agents = as_pieces(sub_agents, BaseAgent, f"{kind} {name!r}: sub_agents", AGENT_ADVICE)
        self.before_agent_callbacks = as_callbacks(before_agent_callback)
        self.after_agent_callbacks = as_callbacks(after_agent_callback)
        self.parent: BaseAgent | None = None
        for child in self.sub_agents:
            if child.parent is not None:
                raise ConfigError(f"agent {child.name!r} has a parent already: {child.parent.name!r}; make another one")
            child.parent = self

    @abstractmethod
    async def run(self, ctx: AgentContext) -> None:
        """Do this agent's part of a run. Returning ends the part; raising fails the run; cancelling stops it.

        Nothing may go on behind its back: what it starts, it awaits.
        """

    @property
    def root(self) -> BaseAgent:
        agent = self
        while agent.parent is not None:
            agent = agent.parent
        return agent

    @property
    def path(self) -> str:
        """The names from the root to this agent, such as ``root/billing``."""
        return self.name if self.parent is None else f"{self.parent.path}/{self.name}"

    def walk(self) -> Iterator[BaseAgent]:
        """Yield this agent and all below it."""
        yield self
        for child in self.sub_agents:
            yield from child.walk()

    def find(self, name: str) -> BaseAgent | None:
        """Return the agent of that name in this agent's subtree."""
        return next((agent for agent in self.walk() if agent.name == name), None)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"


def as_callbacks(value: _T | Sequence[_T] | None) -> tuple[_T, ...]:
    """Return one callback, several or none as a tuple.

    Raises:
        ConfigError: one is not callable.
    """
    if value is None:
        return ()
    callbacks = tuple(cast("Sequence[_T]", value)) if isinstance(value, (list, tuple)) else (cast("_T", value),)
    for callback in callbacks:
        if not callable(callback):
            raise ConfigError(f"a callback is a function, or a list of functions, not {callback!r}")
    return callbacks


async def do_part(agent: BaseAgent, ctx: AgentContext) -> None:
    """Let an agent do its part.

    Raises:
        ConfigError: its `run` is not a coroutine function, or returned something, which nobody would see.
    """
    run: Callable[[AgentContext], object] = agent.run
    part = run(ctx)
    if not inspect.isawaitable(part):
        raise ConfigError(f"{agent!r}: run() must be 'async def', and say things with await ctx.say(…)")
    returned = await part
    if returned is not None:
        raise ConfigError(
            f"{agent!r}: run() returned {short_repr(returned)}, which nobody would see; say it with await ctx.say(…)"
        )


def check_tree(root: BaseAgent) -> dict[str, BaseAgent]:
    """Return all agents of a tree by name.

    Raises:
        DuplicateNameError: two have the same name, so that the log could not tell them apart.
    """
    agents: dict[str, BaseAgent] = {}
    for agent in root.walk():
        if agent.name in agents:
            raise DuplicateNameError("agent", agent.name, f"the tree of {root.name!r}")
        agents[agent.name] = agent
    return agents
