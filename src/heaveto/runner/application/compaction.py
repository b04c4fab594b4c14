"""Long conversations are summarised: as a projection over the untouched log, between two runs, by a model call."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from heaveto.agents.base import BaseAgent
from heaveto.agents.llm import LlmAgent
from heaveto.core import notes
from heaveto.core.compact import CompactionPoint, compaction_point
from heaveto.core.request import ModelRequest, Turn
from heaveto.errors import ConfigError, LogMovedError, ModelError
from heaveto.events.contents import Content, Text, text_of
from heaveto.events.records import Compacted
from heaveto.models.assemble import Assembler
from heaveto.models.base import Chunk, Model
from heaveto.runner.session.log import SessionLog
from heaveto.stores.base import Lease

if TYPE_CHECKING:
    from heaveto.runner.services import Services

INSTRUCTION = (
    "You summarise the first part of a conversation between a user and an assistant, for the assistant itself, who "
    "will see only your summary in its place. Keep what was wanted, what was decided, what was done and with which "
    "results (names, numbers, ids), and what is still open. Invent nothing. Write plain text."
)
ASK = "Summarise the conversation above."
HEADING = "[Summary of the conversation up to here:]"


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

    def point(self, log: SessionLog) -> CompactionPoint | None:
        """Return what is to be summarised now, or None."""
        return compaction_point(
            log.state, after_runs=self.after_runs, after_tokens=self.after_tokens, keep_runs=self.keep_runs
        )


async def summarise(
    config: Compaction, agent: BaseAgent, services: Services, log: SessionLog, lease: Lease, point: CompactionPoint
) -> bool:
    """Ask for a summary and record it. Cancelling it leaves everything as it was. Return whether it was recorded.

    Raises:
        ModelError: there is no summary.
    """
    model = config.model_for(agent)
    turns = _with_question(point.turns(log.state.records, agent.name, model.profile))
    request = ModelRequest(turns=turns, instruction=config.instruction, agent=agent.name)
    assembler = Assembler(services.ids, provider=model.profile.name)
    chunks = cast("AsyncGenerator[Chunk, None]", model.generate(request))
    async with aclosing(chunks):
        async for chunk in chunks:
            assembler.feed(chunk)
    answer = assembler.finish()
    text = text_of(answer.parts).strip()
    if not text:
        raise ModelError("the summary is empty")
    record_id, time = services.stamp()
    summary = Content.of(f"{HEADING}\n{text}")
    compacted = Compacted(id=record_id, time=time, upto=point.upto, summary=summary, usage=answer.usage)
    try:
        await log.append([compacted], token=lease.token, expect=log.state.last_seq)
    except LogMovedError:
        return False
    return True


def _with_question(turns: Sequence[Turn]) -> list[Turn]:
    """Return the conversation with the wish for a summary as, or in, its last user turn."""
    *before, last = turns
    if last.parts == (Text(text=notes.CONTINUE),):
        return [*before, Turn("user", (Text(text=ASK),))]
    if last.role == "user":
        return [*before, Turn("user", (*last.parts, Text(text=ASK)))]
    return [*before, last, Turn("user", (Text(text=ASK),))]
