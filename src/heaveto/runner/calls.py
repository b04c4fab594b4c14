"""What people and other programs do with single calls of a run: stop one, move one into the background, answer one."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass

from msgspec.structs import replace

from heaveto.agents.llm import LlmAgent
from heaveto.agents.tool import AgentTool
from heaveto.core.answers import check_answer
from heaveto.core.fold import CallState, SessionState, calls_around
from heaveto.errors import (
    AnswerConflictError,
    DetachError,
    GuardTakenError,
    LogMovedError,
    NotWaitingError,
    UnknownCallError,
)
from heaveto.events.contents import Json
from heaveto.events.records import AgentCheckpoint, Answered, CallSettled, Cause, Message, WaitingCall
from heaveto.runner.config import RunConfig
from heaveto.runner.log import SessionLog
from heaveto.runner.services import Services
from heaveto.runner.stops import ask_to_stop_call, carried_run
from heaveto.stores.base import Guard


@dataclass(frozen=True, slots=True)
class Question:
    """A call that asks something: its run, what it asks, and the JSON schema of the value that it wants, if any."""

    run_id: str
    call_id: str
    tool: str
    hint: str
    schema: dict[str, Json] | None
    args: dict[str, Json]


def open_questions(state: SessionState) -> list[Question]:
    """Return the questions that nobody has answered."""
    return [
        _question(call, call.question)
        for call in state.calls.values()
        if call.question is not None and call.answer is None and (call.settled is None or call.is_in_background)
    ]


def _question(call: CallState, asked: WaitingCall) -> Question:
    return Question(call.run_id, asked.call_id, asked.name, asked.hint, asked.schema, asked.args)


class CallDesk:
    """The calls of one session, seen from outside. Everything it does is a durable record from the side."""

    def __init__(self, services: Services, log: SessionLog) -> None:
        self._services, self._log = services, log

    async def cancel(
        self, run_id: str, call_id: str, cause: Cause, *, by: str = "", reason: str = ""
    ) -> CallSettled | None:
        """Ask a call to stop, and wait for its end as long as its tool has to end."""
        if not await ask_to_stop_call(self._services, self._log, run_id, call_id, cause, by=by, reason=reason):
            return self._settled(run_id, call_id)
        if carried_run.get() == run_id:
            return None  # asked by code of the run itself, which does not wait for itself
        news = asyncio.Event()
        unwatch = self._log.watch(news.set)
        grace = RunConfig.of_settings(self._log.state.run(run_id).settings).cancel_grace_seconds
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(2 * grace + 1):
                    while (call := self._log.state.calls.get(call_id)) is not None and _goes_on(call):
                        news.clear()
                        await news.wait()
        finally:
            unwatch()
        call = self._log.state.calls.get(call_id)
        return None if call is not None and _goes_on(call) else self._settled(run_id, call_id)

    def _settled(self, run_id: str, call_id: str) -> CallSettled:
        for record in reversed(self._log.state.records):
            if isinstance(record, CallSettled) and record.call_id == call_id and record.run_id == run_id:
                return record
        raise self._unknown(run_id, call_id)

    async def detach(self, run_id: str, call_id: str) -> str:
        """Settle a running call as detached. Its process takes note, and lets it work on."""
        while True:
            async with self._log.still():
                call = self._call(run_id, call_id)
                if call.is_in_background:
                    return call_id
                if call.phase != "started":
                    raise self._unknown(run_id, call_id)
                if self._has_agent_within(call):
                    raise DetachError(call_id)
                record_id, time = self._services.stamp()
                detached = CallSettled(
                    id=record_id, time=time, run_id=run_id, call_id=call_id, name=call.call.name, status="detached"
                )
                try:
                    await self._log.append([detached], token=None, expect=self._log.state.last_seq)
                except LogMovedError:
                    await self._log.refresh()

    async def answer(self, run_id: str, call_id: str, value: Json, *, accept: bool, by: str) -> Answered:
        """Record the answer to a call's question, unless there is one."""
        while True:
            async with self._log.still():
                record_id, time = self._services.stamp()
                answered = Answered(
                    id=record_id, time=time, run_id=run_id, call_id=call_id, decision="value" if accept else "deny",
                    value=value, by=by,
                )  # fmt: skip
                call = self._log.state.calls.get(call_id)
                if call is None or call.run_id != run_id or call.question is None:
                    # It has gone on since it was answered: the same answer again is harmless (P8).
                    if (first := self._answer(run_id, call_id)) is not None:
                        return _same(call_id, first, answered)
                    raise NotWaitingError(call_id, f"it is {self._call(run_id, call_id).phase}, and asks nothing")
                if call.answer is not None:
                    return _same(call_id, call.answer, answered)
                if accept:
                    check_answer(call_id, value, call.question.schema)
                guard = Guard(f"answer:{call_id}:{call.question_seq}", record_id)
                with suppress(LogMovedError, GuardTakenError):
                    seq = await self._log.append([answered], token=None, expect=self._log.state.last_seq, guard=guard)
                    return replace(answered, seq=seq)
                await self._log.refresh()

    def _answer(self, run_id: str, call_id: str) -> Answered | None:
        """Return the last answer that a call got."""
        for record in reversed(self._log.state.records):
            if isinstance(record, Answered) and record.call_id == call_id and record.run_id == run_id:
                return record
        return None

    def _has_agent_within(self, call: CallState) -> bool:
        """Whether an agent works in the call, as a part of its run: that ends with the run."""
        agent = self._services.app.agents.get(call.agent)
        tool = agent.toolbox.get(call.call.name) if isinstance(agent, LlmAgent) else None
        threads = self._log.state.run(call.run_id).threads
        began = any(call.call.call_id in calls_around(branch) for branch, _ in threads)
        return began or self._has_open_task(call) or (isinstance(tool, AgentTool) and not tool.background)

    def _has_open_task(self, call: CallState) -> bool:
        """Whether the call has given an agent a task behind which none has ended: it may not have said anything yet."""
        ended, tasks = set[str](), list[str]()
        for record in reversed(self._log.state.records[call.seq :]):
            if isinstance(record, AgentCheckpoint) and record.end_of_agent:
                ended.add(record.branch)
            elif isinstance(record, Message) and record.author == "user" and record.branch not in ended:
                tasks.append(record.branch)
        return any(call.call.call_id in calls_around(branch) for branch in tasks)

    def _call(self, run_id: str, call_id: str) -> CallState:
        call = self._log.state.calls.get(call_id)
        if call is None or call.run_id != run_id:
            raise self._unknown(run_id, call_id)
        return call

    def _unknown(self, run_id: str, call_id: str) -> UnknownCallError:
        calls = self._log.state.calls.values()
        known = (call.call.call_id for call in calls if call.run_id == run_id and _goes_on(call))
        return UnknownCallError(run_id, call_id, tuple(known))


def _goes_on(call: CallState) -> bool:
    return call.settled is None or call.is_in_background


def _same(call_id: str, first: Answered, again: Answered) -> Answered:
    if (first.decision, first.value) != (again.decision, again.value):
        raise AnswerConflictError(call_id, first)
    return first
