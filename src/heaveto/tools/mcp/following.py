"""What the run does about what a server says while a call goes on: progress is recorded, people are asked."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from contextlib import suppress
from contextvars import copy_context
from typing import Any, Final

from mcp_types import ElicitRequestFormParams, ElicitResult
from pydantic import ValidationError

from heaveto.errors import RunCancelled
from heaveto.events.contents import Json
from heaveto.tools.base import Reply, ToolContext
from heaveto.tools.mcp.call import Progress, Question

_PAUSE_SECONDS: Final = 0.25
"""Progress is durable, and so written no more often than this; the last value always is."""
_MOST_OUTPUT: Final = 64 * 1024
_DROP_SECONDS = 1.0


class Follower:
    """Follows one call for its `ToolContext`. Its tasks end with the call, and run in the context that made it."""

    def __init__(self, ctx: ToolContext, log: logging.Logger) -> None:
        self._ctx, self._log = ctx, log
        self._context = copy_context()
        self._latest: Progress | None = None
        self._said: list[str] = []
        self._said_size = 0
        self._ended = asyncio.Event()
        self._recorder: asyncio.Task[None] | None = None
        self._questions: dict[Question, asyncio.Task[None]] = {}
        self._one_at_a_time = asyncio.Lock()

    # --- told by the connection -------------------------------------------------------------------------------------

    def progressed(self, progress: Progress) -> None:
        """Take a progress notification; it is recorded soon."""
        if self._ended.is_set():
            return
        self._latest = progress
        if progress.message and self._said_size < _MOST_OUTPUT:
            self._said.append(progress.message)
            self._said_size += len(progress.message)
        if self._recorder is None or self._recorder.done():
            self._recorder = self._task(self._record())

    def asked(self, question: Question) -> None:
        """Take a question of the server, and have people asked."""
        if self._ended.is_set():
            question.settle(ElicitResult(action="cancel"))
            return
        task = self._task(self._ask(question))
        self._questions[question] = task
        task.add_done_callback(lambda _: self._questions.pop(question, None))
        question.answer.add_done_callback(lambda answer: task.cancel() if answer.cancelled() else None)

    # --- told by the call -------------------------------------------------------------------------------------------

    async def finish(self) -> None:
        """The call has ended: record the last progress; questions that nobody answered are withdrawn."""
        self._ended.set()
        self._withdraw()
        await self._until_done()

    def drop(self) -> None:
        """The call was given up: questions are answered with cancel, nothing is recorded any more."""
        self._ended.set()
        self._withdraw()
        if self._recorder is not None:
            self._recorder.cancel()

    async def dropped(self) -> None:
        """Wait, a bounded time, until nothing of it works any more."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_DROP_SECONDS):
                await self._until_done()

    def _withdraw(self) -> None:
        for question, task in list(self._questions.items()):
            question.settle(ElicitResult(action="cancel"))
            task.cancel()

    async def _until_done(self) -> None:
        tasks = {*self._questions.values(), *({self._recorder} if self._recorder else ())}
        if tasks:
            await asyncio.wait(tasks)

    def _task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        return asyncio.get_running_loop().create_task(work, context=self._context)

    # --- work -------------------------------------------------------------------------------------------------------

    async def _record(self) -> None:
        """Record what is new, again and again, until a pause brought nothing."""
        try:
            while (latest := self._latest) is not None:
                said, self._said, self._said_size, self._latest = self._said, [], 0, None
                if said:
                    self._ctx.output("".join(f"{text}\n" for text in said))
                await self._ctx.progress(progress_value(latest))
                with suppress(TimeoutError):
                    async with asyncio.timeout(_PAUSE_SECONDS):
                        await self._ended.wait()
        except Exception:  # noqa: BLE001 - the call itself goes on; its result must not be lost for its progress
            self._log.exception("progress of a call was not recorded")

    async def _ask(self, question: Question) -> None:
        try:
            async with self._one_at_a_time:
                reply = await self._ctx.ask(*hint_and_schema(question))
            result = elicit_result(question, reply)
        except RunCancelled:
            result = ElicitResult(action="cancel")
        except Exception:  # noqa: BLE001 - the server is told that there is no answer; it decides what that means
            self._log.exception("a question of the server could not be put")
            result = ElicitResult(action="decline")
        question.settle(result)


def progress_value(progress: Progress) -> dict[str, Json]:
    """Return what is recorded of a progress notification."""
    value: dict[str, Json] = {"progress": progress.progress}
    if progress.total is not None:
        value["total"] = progress.total
    if progress.message is not None:
        value["message"] = progress.message
    return value


def hint_and_schema(question: Question) -> tuple[str, dict[str, Json] | None]:
    """Return what people are asked: the message and the schema of a form, or the message with the page to visit."""
    params = question.params
    if isinstance(params, ElicitRequestFormParams):
        return params.message, dict(params.requested_schema)
    return f"{params.message}\n{params.url}", None


def elicit_result(question: Question, reply: Reply) -> ElicitResult:
    """Return what the server is told. A value that its form cannot hold counts as declined."""
    if not reply.accepted:
        return ElicitResult(action="decline")
    if not isinstance(question.params, ElicitRequestFormParams):
        return ElicitResult(action="accept")
    try:
        return ElicitResult.model_validate({"action": "accept", "content": {} if reply.value is None else reply.value})
    except ValidationError:
        return ElicitResult(action="decline")
