"""Long conversations are summarised: as a projection over the untouched log, between two runs, by a model call."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, suppress
from typing import cast

from heaveto.core import notes
from heaveto.core.compact import CompactionPoint
from heaveto.core.request import ModelRequest, Turn
from heaveto.errors import LogMovedError, ModelError
from heaveto.events.contents import Content, Text, text_of
from heaveto.events.records import Compacted
from heaveto.models.assemble import Assembler
from heaveto.models.base import Chunk
from heaveto.runner.application.compaction import Compaction
from heaveto.runner.services import Services, logger
from heaveto.runner.session.log import SessionLog
from heaveto.stores.base import Lease

ASK = "Summarise the conversation above."
HEADING = "[Summary of the conversation up to here:]"


class Summariser:
    """Summarises a session's conversation, as long as nobody wants anything of the session.

    What comes to the session is more urgent: then the summary is given up, and not waited for.
    """

    def __init__(self, services: Services, log: SessionLog) -> None:
        self._services, self._log = services, log
        self._at_work: tuple[asyncio.Task[None], asyncio.Event] | None = None
        """The summary that is being written, and whether it is waited for no more."""

    async def summarise(self, lease: Lease, *, is_wanted: Callable[[], bool]) -> None:
        """Write a summary if the conversation has become long; until the session is wanted, here or by others."""
        config = self._services.app.compaction
        point = config.point(self._log.state) if config is not None else None
        if config is None or point is None:
            return
        work = _summarise(config, self._services, self._log, lease, point)
        task = asyncio.create_task(work, name=f"heaveto summary of {self._log.key}")
        self._services.background.add(task)
        task.add_done_callback(self._services.background.discard)
        task.add_done_callback(self._is_over)
        self._at_work = task, asyncio.Event()
        unwatch = self._log.watch(lambda: self.give_up() if is_wanted() else None)
        try:
            await self._at_work[1].wait()
        finally:
            unwatch()
            self._at_work = None
            task.cancel()

    def give_up(self) -> None:
        """Leave the summary, if one is being written."""
        if self._at_work is not None:
            self._at_work[0].cancel()
            self._at_work[1].set()  # not waited for: it may not want to end

    def _is_over(self, task: asyncio.Task[None]) -> None:
        if self._at_work is not None and self._at_work[0] is task:
            self._at_work[1].set()
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.warning("session %s could not be summarised", self._log.key, exc_info=error)


async def _summarise(
    config: Compaction, services: Services, log: SessionLog, lease: Lease, point: CompactionPoint
) -> None:
    """Ask for a summary and record it. Cancelling it leaves everything as it was.

    Raises:
        ModelError: there is no summary.
    """
    agent = services.app.root_agent
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
    with suppress(LogMovedError):
        await log.append([compacted], token=lease.token, expect=log.state.last_seq)


def _with_question(turns: Sequence[Turn]) -> list[Turn]:
    """Return the conversation with the wish for a summary as, or in, its last user turn."""
    *before, last = turns
    if last.parts == (Text(text=notes.CONTINUE),):
        return [*before, Turn("user", (Text(text=ASK),))]
    if last.role == "user":
        return [*before, Turn("user", (*last.parts, Text(text=ASK)))]
    return [*before, last, Turn("user", (Text(text=ASK),))]
