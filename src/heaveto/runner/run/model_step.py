"""One model call: budgets, callbacks, the request, the stream, retries."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import cast

from msgspec.structs import replace

from heaveto.agents.context import AgentContext
from heaveto.agents.llm import LlmAgent
from heaveto.core.limits import exceeded_limit
from heaveto.core.request import ModelRequest
from heaveto.errors import LimitExceededError, ModelError
from heaveto.events.contents import Content, FunctionCall, Part
from heaveto.events.records import Message
from heaveto.models.base import Chunk, PauseChunk
from heaveto.runner.run.draft import LiveDraft
from heaveto.runner.run.live import LiveRun

_MAX_BACKOFF_SECONDS = 60.0


async def ask_model(live: LiveRun, agent: LlmAgent, ctx: AgentContext) -> Message:
    """Ask an agent's model and stage its answer; the answer is durable before the run's next effect.

    Raises:
        LimitExceededError: a budget is used up.
        ModelError: the request failed for good.
        RunCancelled: the run was stopped.
    """
    ctx.stage()
    await live.flush()
    hooks = live.services.app.hooks
    request = await _request(live, agent, ctx)
    if agent.before_model_callbacks or hooks.at("before_model"):
        given = await hooks.first("before_model", agent.before_model_callbacks, ctx, request)
        live.check()
        if isinstance(given, ModelRequest):
            request = given
        elif given is not None:
            return _stage_answer(live, ctx, _said(live, ctx, given))
    try:
        message = await _ask_with_retries(live, agent, ctx, request)
    except LimitExceededError:
        raise
    except Exception as error:
        if not (agent.on_model_error_callbacks or hooks.at("on_model_error")):
            raise
        given = await hooks.first("on_model_error", agent.on_model_error_callbacks, ctx, request, error)
        live.check()
        if given is None:
            raise
        live.keep_cut_drafts(agent.name, ctx.branch)
        return _stage_answer(live, ctx, _said(live, ctx, given))
    if agent.after_model_callbacks or hooks.at("after_model"):
        given = await hooks.first("after_model", agent.after_model_callbacks, ctx, Content(message.parts))
        live.check()
        if given is not None:
            message = replace(message, parts=_with_own_ids(live, given.parts, message.parts), data=None)
    return _stage_answer(live, ctx, message)


def _spend_call(live: LiveRun) -> None:
    """Count a model call against the budgets, at the moment of its request: agents may ask at the same time."""
    error = exceeded_limit(live.run, failed_calls=live.unrecorded_model_calls)
    if error is not None:
        raise error
    live.model_calls += 1


async def _request(live: LiveRun, agent: LlmAgent, ctx: AgentContext) -> ModelRequest:
    seen = live.session.last_seq
    return ModelRequest(
        turns=live.log.turns(agent.name, ctx.branch, agent.model.profile),
        instruction=await agent.instruct(ctx),
        tools=agent.declarations,
        generation=agent.generation,
        agent=agent.name,
        run_id=live.run_id,
        seen=seen,
    )


def _stage_answer(live: LiveRun, ctx: AgentContext, message: Message) -> Message:
    ctx.stage(message)
    live.drafts.pop(message.id, None)
    return message


def _said(live: LiveRun, ctx: AgentContext, content: Content) -> Message:
    """A callback's content, as the agent's own message. No model was asked, so nothing is counted."""
    record_id, time = live.stamp()
    return Message(
        id=record_id, time=time, run_id=live.run_id, author=ctx.agent.name, branch=ctx.branch,
        parts=_with_own_ids(live, content.parts),
    )  # fmt: skip


def _with_own_ids(live: LiveRun, parts: Sequence[Part], asked: Sequence[Part] = ()) -> tuple[Part, ...]:
    """Give calls that a callback made up an id of ours; those of the model's message `asked` keep theirs, once.

    A call's id, and with it its idempotency key, is unique (P5), whatever a callback writes there.
    """
    free = {part.call_id for part in asked if isinstance(part, FunctionCall)}
    own: list[Part] = []
    for part in parts:
        if isinstance(part, FunctionCall) and part.call_id not in free:
            own.append(replace(part, call_id=live.services.ids.call_id()))
        else:
            own.append(part)
            free.discard(part.call_id if isinstance(part, FunctionCall) else "")
    return tuple(own)


@dataclass(slots=True)
class _Retries:
    """What is left of the retries of one answer, all its requests together."""

    live: LiveRun
    left: int
    pause: float

    async def granted(self, error: ModelError) -> bool:
        """Whether to ask again after an error that may pass; waits as long as the server wants before it says yes."""
        if not error.retryable or self.left <= 0:
            return False
        self.left -= 1
        wanted = error.retry_after_seconds
        await self.live.services.clock.sleep(min(_MAX_BACKOFF_SECONDS, self.pause if wanted is None else wanted))
        self.pause *= 2
        return True


async def _ask_with_retries(live: LiveRun, agent: LlmAgent, ctx: AgentContext, request: ModelRequest) -> Message:
    """Ask again after an error that may pass, as long as no answer was seen (F63) and no stop came (F159)."""
    retries = _Retries(live, live.config.model_retries, live.config.retry_backoff_seconds)
    while True:
        live.check()
        _spend_call(live)
        draft = LiveDraft(
            live.services.ids.record_id(), author=agent.name, branch=ctx.branch, model=agent.model, request=request,
            ids=live.services.ids,
        )  # fmt: skip
        try:
            return await _stream(live, agent, draft, retries)
        except ModelError as error:
            live.check()
            if draft.is_empty:
                live.forget_draft(draft.message_id)
            if not (draft.is_empty and await retries.granted(error)):
                raise


async def _stream(live: LiveRun, agent: LlmAgent, draft: LiveDraft, retries: _Retries) -> Message:
    """Stream one answer. A draft with something in it stays with the run on every way out, so that it is kept."""
    live.check()
    live.drafts[draft.message_id] = draft
    # Closed in this task on every path, which closes the connection inside the generator (F51).
    chunks = cast("AsyncGenerator[Chunk, bool]", agent.model.generate(draft.request))
    async with aclosing(chunks):
        is_repeated: bool | None = None
        while (chunk := await _next(chunks, is_repeated)) is not None:
            is_repeated = await _go_on(live, chunk, retries) if isinstance(chunk, PauseChunk) else None
            if draft.feed(chunk):
                live.draft_grew(draft)
    live.check()
    answer = draft.assembler.finish()
    if (
        answer.end is None and not answer.parts
    ):  # a proxy's page behind a status of 200, say: no answer that said nothing
        raise ModelError(f"{agent.model.name} gave no answer: its stream ended before it began", retryable=True)
    live.forget_draft(draft.message_id)
    live.drafts[draft.message_id] = draft  # until it is staged: a stop in a callback must not lose it
    end = answer.end
    return Message(
        id=draft.message_id, time=live.services.clock.time(), run_id=live.run_id, author=draft.author,
        branch=draft.branch, parts=answer.parts, finish_reason=end.reason if end is not None else "incomplete",
        usage=answer.usage if end is not None else draft.snapshot(last=True).usage, provider=agent.model.profile.name,
        model=(end.model if end is not None else "") or agent.model.name, seen=draft.request.seen,
        data=end.data if end is not None else None,
    )  # fmt: skip


async def _next(chunks: AsyncGenerator[Chunk, bool], is_repeated: bool | None) -> Chunk | None:
    try:
        return await (anext(chunks) if is_repeated is None else chunks.asend(is_repeated))
    except StopAsyncIteration:
        return None


async def _go_on(live: LiveRun, pause: PauseChunk, retries: _Retries) -> bool | None:
    """Count the further request that an answer takes; where the last one failed, return whether it is repeated."""
    live.check()
    if pause.failed is None:
        _spend_call(live)
        return None
    if not await retries.granted(pause.failed):
        return False
    live.check()
    _spend_call(live)
    return True
