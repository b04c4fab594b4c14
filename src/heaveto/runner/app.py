"""An application: a tree of agents under a name, and the plugins that see all of it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import get_args

from heaveto.agents.base import AGENT_ADVICE, BaseAgent, check_tree
from heaveto.agents.llm import LlmAgent
from heaveto.agents.pieces import as_pieces, require_piece
from heaveto.agents.tool import AgentTool
from heaveto.errors import ConfigError, DuplicateNameError
from heaveto.runner.config import OnCrash
from heaveto.runner.hooks import Hooks, Plugin


class App:
    """What a runner runs.

    Attributes:
        agents: all agents of the tree by name.
        tree_hash: changes when agents or tools are added, removed or renamed; recorded with each run.
    """

    def __init__(
        self,
        name: str,
        root_agent: BaseAgent,
        *,
        plugins: Sequence[Plugin] = (),
        on_crash: OnCrash = "resume",
        max_concurrent_calls: int | None = None,
        max_concurrent_calls_per_user: int | None = None,
    ) -> None:
        """Make an application and check it whole.

        Args:
            name: under which its sessions are kept.
            root_agent: the root of the tree.
            plugins: they see all agents and tools.
            on_crash: what becomes of a run whose process died, unless its `RunConfig` says otherwise.
            max_concurrent_calls: how many tool calls run at the same time in one process.
            max_concurrent_calls_per_user: how many of one user do.

        Raises:
            DuplicateNameError: two agents, or two tools of one agent, have the same name.
            ConfigError: the name is empty, or the agent or a plugin is none.
        """
        require_piece(name, str, "App: name", "pass the name first, then the root agent")
        require_piece(root_agent, BaseAgent, f"App {name!r}: root_agent", AGENT_ADVICE)
        if not name or "/" in name:
            raise ConfigError(f"app name {name!r}: it must not be empty and must not contain '/'")
        if on_crash not in get_args(OnCrash):
            raise ConfigError(f"App {name!r}: on_crash must be one of {', '.join(get_args(OnCrash))}; not {on_crash!r}")
        for option, limit in (
            ("max_concurrent_calls", max_concurrent_calls),
            ("max_concurrent_calls_per_user", max_concurrent_calls_per_user),
        ):
            if limit is not None and limit < 1:
                raise ConfigError(f"App {name!r}: {option} must be at least 1, or None for no limit; not {limit}")
        self.name, self.root_agent = name, root_agent
        self.on_crash: OnCrash = on_crash
        self.max_concurrent_calls = max_concurrent_calls
        self.max_concurrent_calls_per_user = max_concurrent_calls_per_user
        self.agents = check_tree(root_agent)
        self.hooks = Hooks(as_pieces(plugins, Plugin, f"App {name!r}: plugins", "pass an instance of a Plugin"))
        self._background = _background_agents(root_agent)
        self.tree_hash = _hash_tree(root_agent)

    @property
    def plugins(self) -> tuple[Plugin, ...]:
        return self.hooks.plugins

    def agent_at(self, path: str) -> BaseAgent:
        """Return the agent at a stored path, or its nearest ancestor that still exists (F32).

        The root of a path may be an agent that works as a tool in the background.
        """
        agent = self._background.get(path.partition("/")[0], self.root_agent)
        for name in path.split("/")[1:]:
            child = next((child for child in agent.sub_agents if child.name == name), None)
            if child is None:
                break
            agent = child
        return agent


def _background_agents(root: BaseAgent) -> dict[str, BaseAgent]:
    """Return the agents that work as tools in the background, those of their own tools included, by name.

    Raises:
        DuplicateNameError: two have the same name, or that of the root, so that a log could not tell them apart.
    """
    found: dict[str, BaseAgent] = {}
    trees, seen = [root], {id(root)}
    while trees:
        for agent in trees.pop().walk():
            for tool in agent.tools if isinstance(agent, LlmAgent) else ():
                if not isinstance(tool, AgentTool) or id(tool.agent) in seen:
                    continue
                seen.add(id(tool.agent))
                trees.append(tool.agent)
                if tool.background:
                    if tool.agent.name in found or tool.agent.name == root.name:
                        raise DuplicateNameError("agent", tool.agent.name, "those that work in the background")
                    found[tool.agent.name] = tool.agent
    return found


def _hash_tree(root: BaseAgent) -> str:
    lines: list[str] = []
    for agent in root.walk():
        tools = sorted(agent.toolbox) if isinstance(agent, LlmAgent) else []
        lines.append(f"{agent.path} {type(agent).__name__} {' '.join(tools)}")
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]
