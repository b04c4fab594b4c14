"""What people and other programs do with single calls of a run: stop one, move one into the background, answer some."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from heaveto.agents.llm import LlmAgent
from heaveto.agents.tool import AgentTool
from heaveto.core.answers import Given, answer_to, check_answers, question_id
from heaveto.core.fold import CallState, SessionState, calls_around
from heaveto.errors import AnswerError, DetachError, GuardTakenError, LogMovedError, UnknownCallError
from heaveto.events.contents import Json
from heaveto.events.records import AgentCheckpoint, Answered, CallSettled, Cause, Message, Record, WaitingKind
from heaveto.runner.application.config import RunConfig
from heaveto.runner.services import Services
from heaveto.runner.session.late import give_up_outside, waking_of
from heaveto.runner.session.log import SessionLog
from heaveto.runner.session.stops import ask_to_stop_call, carried_run
from heaveto.stores.base import Guard
from heaveto.tools.response import to_response


@dataclass(frozen=True, slots=True)
class Question:
    """A call that waits for an answer.

    Attributes:
        question_id: to answer this question and no later one of the same call.
        run_id, call_id, tool, args: the call.
        kind: what it waits for, see `WaitingKind`.
        hint, payload: for whoever answers.
        schema: the JSON schema of the value that it wants, if it has one.
        path: the agents from the root to the one that called.
        deadline: epoch seconds at which its default is taken.
    """

    question_id: str
    run_id: str
    call_id: str
    kind: WaitingKind
    tool: str
    hint: str
    schema: dict[str, Json] | None
    args: dict[str, Json]
    payload: Json
    path: str
    deadline: float | None


def open_questions(state: SessionState) -> list[Question]:
    """Return the questions that nobody has answered, the oldest first."""
    asked = [(call, call.question) for call in state.calls.values() if call.is_waiting]
    return [
        Question(
            question_id(call), call.run_id, call.call.call_id, one.kind, one.name, one.hint, one.schema, one.args,
            one.payload, one.path, one.deadline,
        )
        for call, one in sorted(asked, key=lambda pair: pair[0].question_seq)
        if one is not None
    ]  # fmt: skip


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
        call = self._log.state.calls.get(call_id)
        if call is not None and call.is_outside:
            await give_up_outside(self._services, self._log, call, cause)
        news = asyncio.Event()
        unwatch = self._log.watch(news.set)
        grace = RunConfig.of_settings(self._log.state.run(run_id).settings).cancel_grace_seconds
        if run_id in self._log.state.paused:
            self._services.kick(self._log.key)
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

    async def cancel_all(self, calls: Sequence[CallState], cause: Cause, *, by: str = "", reason: str = "") -> None:
        """Stop calls in the background, and the runs that work for them, and wait for their ends as `cancel` does."""
        children = [call.settled.child_run for call in calls if call.settled is not None and call.settled.child_run]
        await asyncio.gather(
            *(self.cancel(call.run_id, call.call.call_id, cause, by=by, reason=reason) for call in calls),
            *(self._services.children.stop(child, cause, by) for child in children),
        )

    async def cancel_background(self, run_id: str | None, cause: Cause, *, by: str = "", reason: str = "") -> None:
        """Stop what works in the background for one run, or for all, and wait up to the grace for its end.

        That are the calls that are open, and what runs that worked for a call and have ended had begun themselves.
        """
        state = self._log.state
        calls = [call for call in state.background.values() if run_id in (None, call.run_id)]
        runs = state.runs.values() if run_id is None else [state.run(run_id)]
        at_work = {call.settled.child_run for call in calls if call.settled is not None}
        ended = [child for run in runs for child in run.children if child not in at_work]
        await asyncio.gather(
            self.cancel_all(calls, cause, by=by, reason=reason),
            *(self._services.children.stop(child, cause, by) for child in ended),
        )

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

    async def answer(self, given: Sequence[Given]) -> list[Answered]:
        """Record answers to waiting calls, all or none; the first answer of each call counts. Return those that do.

        Raises:
            AnswerError: one of them is not acceptable, see its kinds. Nothing was written.
        """
        while True:
            async with self._log.still():
                fresh = check_answers(self._log.state, given, now=self._services.clock.time())
                answers = [self._answered(answer) for answer in fresh]
                try:
                    if answers:
                        await self._append_answers(answers)
                except (LogMovedError, GuardTakenError):
                    await self._log.refresh()
                    continue
            if self._log.state.paused or self._log.state.queue:
                self._services.kick(self._log.key)
            return [self._standing(answer) for answer in given]

    async def _append_answers(self, answers: Sequence[Answered]) -> None:
        first = self._log.state.calls[answers[0].call_id]
        guard = Guard(f"answer:{answers[0].call_id}:{first.question_seq}", answers[0].id)
        records = [record for answer in answers for record in (answer, *self._brought_home(answer))]
        await self._log.append(records, token=None, expect=self._log.state.last_seq, guard=guard)

    def _answered(self, given: Given) -> Answered:
        record_id, time = self._services.stamp()
        call = self._log.state.calls[given.call_id]
        return Answered(
            id=record_id, time=time, run_id=call.run_id, call_id=given.call_id, decision=given.decision,
            value=given.value, args=given.args, by=given.by, expired=given.expired,
        )  # fmt: skip

    def _standing(self, given: Given) -> Answered:
        if given.question_seq:
            first = answer_to(self._log.state, given.call_id, given.question_seq)
            if first is not None:
                return first
        for record in reversed(self._log.state.records):
            if isinstance(record, Answered) and record.call_id == given.call_id:
                return record
        raise self._unknown("", given.call_id)

    def _brought_home(self, answer: Answered) -> list[Record]:
        """Return the outcome of long-running work that was answered for now: recorded in the same append (P8)."""
        call = self._log.state.calls[answer.call_id]
        if not call.is_in_background or call.question is None or call.question.kind != "long_running":
            return []
        record_id, time = self._services.stamp()
        failed = answer.decision == "deny"
        settled = CallSettled(
            id=record_id, time=time, run_id=call.run_id, call_id=answer.call_id, name=call.call.name,
            status="failed" if failed else "succeeded", late=True,
            response={"error": str(answer.value)} if failed else to_response(answer.value),
            cause="expired" if answer.expired else None,
        )  # fmt: skip
        return [settled, *waking_of(self._services, self._log.state, settled)]

    async def expire(self) -> None:
        """Take the defaults of waiting calls whose time has passed as their answers."""
        now = self._services.clock.time()
        late = [
            Given(
                call.call.call_id, "deny" if call.question.default is None else "value", call.question.default,
                by="deadline", expired=True,
            )
            for call in self._log.state.calls.values()
            if call.is_waiting and call.question is not None and (call.question.deadline or now + 1) <= now
        ]  # fmt: skip
        for given in late:
            with suppress(AnswerError, UnknownCallError):  # it was answered, stopped or closed in this very moment
                await self.answer([given])

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
