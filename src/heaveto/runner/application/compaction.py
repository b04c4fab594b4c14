"""When and how long conversations are summarised."""

from __future__ import annotations

from dataclasses import dataclass

from heaveto.agents.base import BaseAgent
from heaveto.agents.llm import LlmAgent
from heaveto.core.compact import CompactionPoint, compaction_point
from heaveto.core.fold import SessionState
from heaveto.errors import ConfigError
from heaveto.models.base import Model

INSTRUCTION = (
    "You summarise the first part of a conversation between a user and an assistant, for the assistant itself, who "
    "will see only your summary in its place. Keep what was wanted, what was decided, what was done and with which "
    "results (names, numbers, ids), and what is still open. Invent nothing. Write plain text."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compaction:
    """When and how a session's conversation is summarised.

    Attributes:
        model: writes the summaries; the root agent's if left out, which must then have one.
        after_runs: summarise when so many runs have ended since the last summary; None: not by count.
        after_tokens: summarise when a model request was as large as this; None: not by size.
        keep_runs: how many of the newest runs stay as they are.
        instruction: what the model is told to do.
    """

    model: Model | None = None
    after_runs: int | None = None
    after_tokens: int | None = None
    keep_runs: int = 2
    instruction: str = INSTRUCTION

    def __post_init__(self) -> None:
        if self.after_runs is None and self.after_tokens is None:
            raise ConfigError("Compaction: set after_runs, after_tokens or both; else it never happens")
        for name in ("after_runs", "after_tokens"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"Compaction: {name} must be at least 1, not {value}")
        if self.keep_runs < 0:
            raise ConfigError(f"Compaction: keep_runs must not be negative; it is {self.keep_runs}")

    def model_for(self, agent: BaseAgent) -> Model:
        """Return who writes the summaries of an app with this root agent.

        Raises:
            ConfigError: nobody does.
        """
        if self.model is not None:
            return self.model
        if not isinstance(agent, LlmAgent):
            raise ConfigError(f"Compaction: agent {agent.name!r} has no model; pass model=")
        return agent.model

    def point(self, state: SessionState) -> CompactionPoint | None:
        """Return what is to be summarised now, or None."""
        return compaction_point(
            state, after_runs=self.after_runs, after_tokens=self.after_tokens, keep_runs=self.keep_runs
        )
