"""An application: a tree of agents under a name, and the plugins that see all of it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from heaveto.agents.base import AGENT_ADVICE, BaseAgent, check_tree
from heaveto.agents.llm import LlmAgent
from heaveto.agents.pieces import as_pieces, require_piece
from heaveto.agents.tool import AgentTool
from heaveto.core.close import Stamp
from heaveto.core.fold import RunState
from heaveto.errors import ConfigError, DuplicateNameError
from heaveto.events.records import CallSettled
from heaveto.runner.application.changes import close_calls_of, gone_agents, missing_pieces
from heaveto.runner.application.compaction import Compaction
from heaveto.runner.application.config import OnCrash
from heaveto.runner.application.hooks import Hooks, Plugin


@dataclass(frozen=True, slots=True)
class ResumabilityConfig:
    """Whether runs may pause and go on (ADK's name). With False, one that would have to wait fails instead."""

    resumable: bool = True


OnShutdown: TypeAlias = Literal["stop", "hand_over"]
"""What becomes of a run whose runner is closed while it works.

stop: it ends as cancelled, with cause ``shutdown``. hand_over: its work is stopped, and whoever next gets the session,
or `Runner.recover` elsewhere, goes on with it, as after a crash, but with all that is known.
"""

OnTreeChange: TypeAlias = Literal["fail", "close"]
"""What becomes of a run that is to go on, when an agent or tool that it needs is gone.

fail: it fails with `AgentTreeChangedError`; an answer is refused with it, and nothing is written. close: its calls to
tools that are gone, and those of agents that are gone, are settled as failed, or unknown where they had begun; agents
that are gone are left out, the nearest agent above takes over from them, and the run goes on.
"""


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
        resumability_config: ResumabilityConfig | None = None,
        resumable: bool | None = None,
        on_crash: OnCrash = "resume",
        on_shutdown: OnShutdown = "stop",
        on_tree_change: OnTreeChange = "fail",
        compaction: Compaction | None = None,
        max_concurrent_calls: int | None = None,
        max_concurrent_calls_per_user: int | None = None,
    ) -> None:
        """Make an application and check it whole.

        Args:
            name: under which its sessions are kept.
            root_agent: the root of the tree.
            plugins: they see all agents and tools.
            resumability_config: whether its runs may pause; they may if it is left out.
            resumable: not to be used: ADK's older flag, refused where it contradicts `resumability_config`.
            on_shutdown: what becomes of a run whose runner is closed while it works.
            on_tree_change: what becomes of a run that needs an agent or a tool that is gone.
            compaction: when and how long conversations are summarised; never if left out.
            on_crash: what becomes of a run whose process died, unless its `RunConfig` says otherwise.
            max_concurrent_calls: how many tool calls run at the same time in one process.
            max_concurrent_calls_per_user: how many of one user do.

        Raises:
            DuplicateNameError: two agents, or two tools of one agent, have the same name.
            ConfigError: the name is empty, the agent or a plugin is none, or nobody can write the summaries.
        """
        require_piece(name, str, "App: name", "pass the name first, then the root agent")
        require_piece(root_agent, BaseAgent, f"App {name!r}: root_agent", AGENT_ADVICE)
        if not name or "/" in name:
            raise ConfigError(f"app name {name!r}: it must not be empty and must not contain '/'")
        if resumability_config is not None and resumable not in (None, resumability_config.resumable):
            raise ConfigError(
                f"App {name!r}: resumable={resumable} contradicts {resumability_config}; pass resumability_config alone"
            )
        if on_shutdown not in get_args(OnShutdown):
            allowed = ", ".join(get_args(OnShutdown))
            raise ConfigError(f"App {name!r}: on_shutdown must be one of {allowed}; not {on_shutdown!r}")
        if on_tree_change not in get_args(OnTreeChange):
            allowed = ", ".join(get_args(OnTreeChange))
            raise ConfigError(f"App {name!r}: on_tree_change must be one of {allowed}; not {on_tree_change!r}")
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
        self.resumability_config = resumability_config or ResumabilityConfig(resumable is not False)
        self.on_shutdown: OnShutdown = on_shutdown
        self.on_tree_change, self.compaction = on_tree_change, compaction
        if compaction is not None:
            compaction.model_for(root_agent)
        self.max_concurrent_calls = max_concurrent_calls
        self.max_concurrent_calls_per_user = max_concurrent_calls_per_user
        self.agents = check_tree(root_agent)
        self.hooks = Hooks(as_pieces(plugins, Plugin, f"App {name!r}: plugins", "pass an instance of a Plugin"))
        self._trees, self._background = _other_trees(root_agent)
        self.tree_hash = _hash_trees(self._trees)

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

    def missing(self, run: RunState) -> tuple[str, ...]:
        """Return what a run needs in order to go on and this app does not have: agents and tools, by name.

        Nothing is missing where the tree is that of the run's last attempt, whatever its model may have called.
        """
        return () if run.tree_hash == self.tree_hash else missing_pieces(run, self._everyone)

    def close_gone(self, run: RunState, *, stamp: Stamp) -> list[CallSettled]:
        """Return the settlements of a run's open calls whose agents are gone (``on_tree_change="close"``)."""
        return close_calls_of(gone_agents(run, self._everyone), run, stamp=stamp)

    def agent_named(self, name: str) -> BaseAgent | None:
        """Return an agent by its name, also one that works as a tool, or None."""
        return self._everyone.get(name)

    @property
    def _everyone(self) -> dict[str, BaseAgent]:
        """All agents by name, those that work as tools and below them included."""
        return {agent.name: agent for root in self._trees for agent in root.walk()}


def _other_trees(root: BaseAgent) -> tuple[list[BaseAgent], dict[str, BaseAgent]]:
    """Return the roots of all trees of agents, also of those that work as tools; and those in the background by name.

    Raises:
        DuplicateNameError: two have the same name, or that of the root, so that a log could not tell them apart.
    """
    found: dict[str, BaseAgent] = {}
    trees, seen, roots = [root], {id(root)}, [root]
    while trees:
        for agent in trees.pop().walk():
            for tool in agent.tools if isinstance(agent, LlmAgent) else ():
                if not isinstance(tool, AgentTool) or id(tool.agent) in seen:
                    continue
                seen.add(id(tool.agent))
                trees.append(tool.agent)
                roots.append(tool.agent)
                if tool.background:
                    if tool.agent.name in found or tool.agent.name == root.name:
                        raise DuplicateNameError("agent", tool.agent.name, "those that work in the background")
                    found[tool.agent.name] = tool.agent
    return roots, found


def _hash_trees(roots: Sequence[BaseAgent]) -> str:
    lines: list[str] = []
    for agent in (agent for root in roots for agent in root.walk()):
        tools = sorted(agent.toolbox) if isinstance(agent, LlmAgent) else []
        lines.append(f"{agent.path} {type(agent).__name__} {' '.join(tools)}")
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]
