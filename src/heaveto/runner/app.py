"""An application: a tree of agents under a name, and the plugins that see all of it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from heaveto.agents.base import AGENT_ADVICE, BaseAgent, check_tree
from heaveto.agents.llm import LlmAgent
from heaveto.agents.pieces import as_pieces, require_piece
from heaveto.errors import ConfigError
from heaveto.runner.hooks import Hooks, Plugin


class App:
    """What a runner runs.

    Attributes:
        agents: all agents of the tree by name.
        tree_hash: changes when agents or tools are added, removed or renamed; recorded with each run.
    """

    def __init__(self, name: str, root_agent: BaseAgent, *, plugins: Sequence[Plugin] = ()) -> None:
        """Make an application and check it whole.

        Raises:
            DuplicateNameError: two agents, or two tools of one agent, have the same name.
            ConfigError: the name is empty, or the agent or a plugin is none.
        """
        require_piece(name, str, "App: name", "pass the name first, then the root agent")
        require_piece(root_agent, BaseAgent, f"App {name!r}: root_agent", AGENT_ADVICE)
        if not name or "/" in name:
            raise ConfigError(f"app name {name!r}: it must not be empty and must not contain '/'")
        self.name, self.root_agent = name, root_agent
        self.agents = check_tree(root_agent)
        self.hooks = Hooks(as_pieces(plugins, Plugin, f"App {name!r}: plugins", "pass an instance of a Plugin"))
        self.tree_hash = _hash_tree(root_agent)

    @property
    def plugins(self) -> tuple[Plugin, ...]:
        return self.hooks.plugins

    def agent_at(self, path: str) -> BaseAgent:
        """Return the agent at a stored path, or its nearest ancestor that still exists (F32)."""
        agent = self.root_agent
        for name in path.split("/")[1:]:
            child = next((child for child in agent.sub_agents if child.name == name), None)
            if child is None:
                break
            agent = child
        return agent


def _hash_tree(root: BaseAgent) -> str:
    lines: list[str] = []
    for agent in root.walk():
        tools = sorted(agent.toolbox) if isinstance(agent, LlmAgent) else []
        lines.append(f"{agent.path} {type(agent).__name__} {' '.join(tools)}")
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]
