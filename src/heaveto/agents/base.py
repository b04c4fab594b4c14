"""What every agent is: a name, sub-agents, callbacks, and a coroutine that does its part of a run."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias, TypeVar, cast

from heaveto.errors import ConfigError, DuplicateNameError
from heaveto.events.contents import Content

if TYPE_CHECKING:
    from heaveto.agents.context import AgentContext

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
            ConfigError: the name is not usable, or a sub-agent has another parent already.
        """
        if name == "user" or not _NAME.fullmatch(name):
            raise ConfigError(f"agent name {name!r}: use letters, digits, '_' and '-', not 'user'")
        self.name, self.description = name, description
        self.sub_agents = tuple(sub_agents)
        self.before_agent_callbacks = as_tuple(before_agent_callback)
        self.after_agent_callbacks = as_tuple(after_agent_callback)
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


def as_tuple(value: _T | Sequence[_T] | None) -> tuple[_T, ...]:
    """Return one value, several or none as a tuple."""
    if value is None:
        return ()
    if isinstance(value, (list, tuple)):
        return tuple(cast("Sequence[_T]", value))
    return (cast("_T", value),)


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
