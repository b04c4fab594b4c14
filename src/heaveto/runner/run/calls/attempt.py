"""One attempt of a call: the tool at work, with everything that it may ask of its run, until it is over.

What is over is fenced: a thread that could not be stopped can write nothing any more (F57, F158).
"""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn

from msgspec.structs import replace

from heaveto.agents.base import BaseAgent
from heaveto.core.fold import task_branch
from heaveto.errors import DetachError, RunCancelled, RunnerClosedError
from heaveto.events.contents import ArtifactInfo, Blob, Json
from heaveto.events.records import (
    Answered,
    CallProgress,
    CallSettled,
    CallStatus,
    Cause,
    ParentCall,
    Record,
    StateChanged,
    WaitingCall,
)
from heaveto.runner.run.calls.open_call import OpenCall
from heaveto.runner.run.calls.output import piece_text
from heaveto.runner.services import ChildRun, logger
from heaveto.runner.tasks.blocking import run_in_thread
from heaveto.runner.tasks.detached import to_its_end
from heaveto.tools.base import Reply, ToolContext, end_context


class EndedAttempt:
    """What is behind the context of an attempt that is over: it knows whether it was stopped, and does nothing."""

    def __init__(self, run_id: str, cause: Cause | None) -> None:
        self._run_id = run_id
        self.cancelled: Cause | None = cause

    def on_cancel(self, hook: Callable[[], None]) -> None:
        if self.cancelled is not None:
            hook()

    async def progress(self, value: Json) -> None:
        self._refuse()

    def progress_from_thread(self, value: Json) -> None:
        self._refuse()

    def output(self, piece: Json) -> None:
        """Nobody is shown it any more."""

    async def ask(self, hint: str, schema: dict[str, Json] | None) -> Reply:
        self._refuse()

    async def detach(self, response: dict[str, Json] | None) -> None:
        self._refuse()

    def request_confirmation(self, hint: str, payload: Json, within_seconds: float | None) -> None:
        self._refuse()

    async def save_artifact(self, name: str, content: Blob) -> int:
        self._refuse()

    async def load_artifact(self, name: str, version: int | None) -> Blob | None:
        self._refuse()

    async def list_artifacts(self) -> list[ArtifactInfo]:
        self._refuse()

    async def cancel_run(self, by: str, reason: str) -> None:
        self._refuse()

    async def run_agent(self, agent: BaseAgent, task: str) -> str:
        self._refuse()

    async def run_in_background(self, agent: BaseAgent, task: str) -> None:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise RunCancelled(self._run_id, self.cancelled or "lease_lost")


class Attempt:
    """One attempt. Implements the run's side of `ToolContext`.

    Attributes:
        number: from 1.
        work: the tool's own code, once it has begun.
        question: what it wants a yes for before it goes on, in another attempt.
        stop_cause: why it was asked to stop.
        is_out_of_time: its time limit has passed, and it shall end.
        interrupted: its code was interrupted: what comes of it counts as stopped, whatever it returns.
    """

    def __init__(self, call: OpenCall, number: int) -> None:
        self._call, self.number = call, number
        live, known = call.live, call.live.session.calls.get(call.call_id)
        self.state = live.state_view()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self.ctx = ToolContext(
            host=self,
            call_id=call.call_id,
            idempotency_key=f"{live.run_id}:{call.call_id}",
            attempt=number,
            state=self.state,
            agent=call.agent.name,
            branch=call.agent_ctx.branch,
            run_id=live.run_id,
            session=live.key,
            last_progress=known.progress if known is not None else None,
            confirmation=call.confirmation,
        )
        self.question: WaitingCall | None = None
        self.work: asyncio.Future[Any] | None = None
        self.stop_cause: Cause | None = None
        self.is_out_of_time = self.interrupted = self._is_over = False
        self._hooks: list[Callable[[], None]] = []
        self._asking = asyncio.Lock()
        self._agents_at_work = 0

    # --- its work -------------------------------------------------------------------------------------------------

    def begin(self) -> asyncio.Future[Any]:
        """Begin the tool's work."""
        tool, bound = self._call.tool, self._call.bound
        if tool.blocking:
            self.work = run_in_thread(lambda: tool.run_blocking(bound, self.ctx), name=f"heaveto tool {tool.name}")
        else:
            work = _contained(lambda: tool.run(bound, self.ctx))
            self.work = asyncio.create_task(work, name=f"heaveto tool {tool.name} {self.ctx.call_id}")
        return self._watched(self.work)

    def probe(self) -> asyncio.Future[Any]:
        """Begin to ask the tool what became of this attempt, which a dead process had begun."""
        tool, bound = self._call.tool, self._call.bound
        work = _contained(lambda: tool.probe(bound, self.ctx))
        self.work = asyncio.create_task(work, name=f"heaveto probe {tool.name}")
        return self._watched(self.work)

    def _watched(self, work: asyncio.Future[Any]) -> asyncio.Future[Any]:
        work.add_done_callback(lambda done: done.cancelled() or done.exception())  # looked at
        return work

    def interrupt(self, cause: Cause) -> None:
        """Tell the tool, and interrupt it if that is its way. Called again, it interrupts again."""
        if self.stop_cause is None:
            self.stop_cause = cause
            hooks, self._hooks = self._hooks, []
            for hook in hooks:
                self._call_hook(hook)
        if isinstance(self.work, asyncio.Task) and self._call.tool.on_cancel == "cancel":
            self.interrupted = self.work.cancel() or self.interrupted

    def _call_hook(self, hook: Callable[[], None]) -> None:
        try:
            hook()
        except KeyboardInterrupt:
            raise
        except BaseException:  # noqa: BLE001 - a hook's fault, or its own `raise_if_cancelled`, must not hold up the stop
            logger.exception("an on_cancel hook of tool %s failed", self._call.tool.name)

    def end(self) -> None:
        """Fence it: a context that a tool keeps can do nothing any more, and does not keep the run alive."""
        self._is_over = True
        end_context(self.ctx, EndedAttempt(self.ctx.run_id, self.cancelled))

    # --- its records ----------------------------------------------------------------------------------------------

    def settlement(
        self, status: CallStatus, response: dict[str, Json] | None, cause: Cause | None = None
    ) -> CallSettled:
        """Return the record that settles the call with what this attempt came to."""
        call, ctx = self._call, self.ctx
        record_id, time = call.live.stamp()
        return CallSettled(
            id=record_id, time=time, run_id=ctx.run_id, call_id=ctx.call_id, name=call.tool.name, status=status,
            response=response, cause=cause, late=call.live.sealing or call.is_in_background,
            end_turn=bool(ctx.end_turn), escalate=bool(ctx.escalate),
        )  # fmt: skip

    def state_changes(self) -> list[Record]:
        """Take what was set through its context."""
        delta = self.state.take_delta()
        if not delta:
            return []
        record_id, time = self._call.live.stamp()
        author = self._call.agent.name
        return [StateChanged(id=record_id, time=time, run_id=self.ctx.run_id, delta=delta, author=author)]

    def consequences(self) -> list[Record]:
        """What is recorded together with the result: the state that the tool set, the agent it hands over to."""
        records = self.state_changes()
        # An agent that works as a tool has its own tree.
        target = self._call.agent.root.find(self.ctx.transfer_to_agent or "")
        if target is not None:
            records.append(self._call.agent_ctx.transferred(target))
        return records

    # --- what the tool asks for -----------------------------------------------------------------------------------

    @property
    def cancelled(self) -> Cause | None:
        return self.stop_cause or self._call.stop_cause

    def on_cancel(self, hook: Callable[[], None]) -> None:
        if self.stop_cause is not None:
            self._call_hook(hook)
        else:
            self._hooks.append(hook)

    async def progress(self, value: Json) -> None:
        if self._is_over:  # a thread asked for it before it was fenced
            raise RunCancelled(self.ctx.run_id, self.cancelled or "lease_lost")
        record_id, time = self._call.live.stamp()
        await self._call.record_aside(
            CallProgress(id=record_id, time=time, run_id=self.ctx.run_id, call_id=self.ctx.call_id, value=value)
        )

    def progress_from_thread(self, value: Json) -> None:
        asyncio.run_coroutine_threadsafe(self.progress(value), self._loop).result()

    def output(self, piece: Json) -> None:
        text = piece_text(piece)
        if threading.get_ident() == self._thread:
            self._put_out(text)
        else:
            self._loop.call_soon_threadsafe(self._put_out, text)

    def _put_out(self, text: str) -> None:
        if not self._is_over:
            self._call.put_out(text)

    async def ask(self, hint: str, schema: dict[str, Json] | None) -> Reply:
        async with self._asking:
            return await self._ask(hint, schema)

    async def _ask(self, hint: str, schema: dict[str, Json] | None) -> Reply:
        await self._call.record_aside(self._call.asked(self._call.waiting("input", hint, schema)))
        try:
            return _reply(await self._call.answer())
        except asyncio.CancelledError:
            if self.cancelled is None:  # only the question is given up, and the call goes on
                withdrawn = self._call.record_aside(self._withdrawal())
                self._call.live.services.spawn(withdrawn, f"withdrawal of a question of call {self.ctx.call_id}")
            raise

    def _withdrawal(self) -> Answered:
        record_id, time = self._call.live.stamp()
        return Answered(
            id=record_id, time=time, run_id=self.ctx.run_id, call_id=self.ctx.call_id, decision="deny",
            by=f"tool {self._call.tool.name}",
        )  # fmt: skip

    async def detach(self, response: dict[str, Json] | None) -> None:
        if self._agents_at_work:
            raise DetachError(self.ctx.call_id)
        await self._detach(response)

    async def _detach(self, response: dict[str, Json] | None, *, child_run: str = "") -> None:
        if not self._call.is_in_background:  # else it stays there
            await self._call.detach(replace(self.settlement("detached", response), child_run=child_run))

    def request_confirmation(self, hint: str, payload: Json, within_seconds: float | None) -> None:
        self.question = self._call.waiting("confirmation", hint, None, payload, within_seconds)

    async def save_artifact(self, name: str, content: Blob) -> int:
        services = self._call.live.services
        return await services.artifacts.save(
            self.ctx.session, name, content, id=f"{self.ctx.call_id}:{self.number}:{next(self._call.saves)}"
        )

    async def load_artifact(self, name: str, version: int | None) -> Blob | None:
        return await self._call.live.services.artifacts.load(self.ctx.session, name, version)

    async def list_artifacts(self) -> list[ArtifactInfo]:
        return await self._call.live.services.artifacts.list(self.ctx.session)

    async def cancel_run(self, by: str, reason: str) -> None:
        await self._call.live.request_stop("user", by, reason)

    async def run_agent(self, agent: BaseAgent, task: str) -> str:
        if self._call.is_in_background:
            raise DetachError(self.ctx.call_id)
        ctx = self._call.agent_ctx
        branch = task_branch(ctx.branch, self.ctx.call_id, next(self._call.tasks))
        self._agents_at_work += 1
        try:
            return await ctx.host.run_task(agent, branch, task)
        finally:
            self._agents_at_work -= 1

    async def run_in_background(self, agent: BaseAgent, task: str) -> None:
        call, ctx = self._call, self.ctx
        parent = ParentCall(ctx.session, ctx.run_id, ctx.call_id, call.tool.name)
        children = call.live.services.children
        config = dataclasses.replace(call.live.config, busy_policy="queue")
        starting = asyncio.ensure_future(children.start(parent, agent, task, config))
        try:
            child = await asyncio.shield(starting)
            await self._detach({"run_id": child.run_id}, child_run=child.run_id)
        except BaseException:  # also the moment in which it has begun, and nobody else knows of it yet
            await to_its_end(self._stop_child(starting))
            raise
        try:
            await child.wait()
        except asyncio.CancelledError:
            await to_its_end(self._stop_child(starting))
            raise
        except RunnerClosedError:
            call.is_left = True  # another process goes on with it, and brings its outcome home
            raise
        finally:
            await children.deliver(child.state, child.run_id)

    async def _stop_child(self, starting: asyncio.Future[ChildRun]) -> None:
        await asyncio.wait({starting})
        if not starting.cancelled() and starting.exception() is None:
            await starting.result().cancel(cause=self.cancelled or "user", by=f"run {self.ctx.run_id}")


async def _contained(work: Callable[[], Awaitable[Any]]) -> Any:
    """Do a tool's work. A task that ended with SystemExit would take the event loop with it.

    Its coroutine is made here: one that was made for a task that is cancelled before it begins would never be awaited.
    """
    try:
        return await work()
    except SystemExit as signal:
        raise RuntimeError("the tool ended itself with SystemExit") from signal


def _reply(answered: Answered) -> Reply:
    return Reply(answered.decision in ("approve", "value"), answered.value, answered.by)
