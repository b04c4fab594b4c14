"""One started tool call: its work, what a stop does to it, and its one settlement."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Literal, NoReturn

from msgspec.structs import replace

from heaveto.agents.base import BaseAgent
from heaveto.agents.context import AgentContext
from heaveto.agents.llm import LlmAgent
from heaveto.core.close import Work
from heaveto.errors import GuardTakenError, NotSerializableError, RunCancelled, StaleLeaseError, ToolFatalError
from heaveto.events.contents import FunctionCall, Json
from heaveto.events.records import CallProgress, CallSettled, CallStarted, CallStatus, Cause, Record, StateChanged
from heaveto.runner.blocking import run_in_thread
from heaveto.runner.failure import message_of
from heaveto.runner.live import LiveRun
from heaveto.runner.services import logger
from heaveto.stores.base import Guard
from heaveto.tools.base import Tool, ToolContext, end_context
from heaveto.tools.response import to_response


class EndedCall:
    """What is behind the context of a call that has ended: it knows whether the call was stopped, and does nothing."""

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

    async def cancel_run(self, by: str, reason: str) -> None:
        self._refuse()

    async def run_agent(self, agent: BaseAgent, task: str) -> str:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise RunCancelled(self._run_id, self.cancelled or "lease_lost")


class ToolOperation:
    """A call from its start to its settlement. Implements the run's side of `ToolContext`."""

    def __init__(
        self, live: LiveRun, agent: LlmAgent, ctx: AgentContext, call: FunctionCall, tool: Tool, bound: dict[str, Any]
    ) -> None:
        self.live, self.agent, self.agent_ctx, self.call, self.tool, self._bound = live, agent, ctx, call, tool, bound
        known = live.session.calls.get(call.call_id)
        self.attempt = (known.attempt if known is not None else 0) + 1
        self._state = live.state_view()
        self._loop = asyncio.get_running_loop()
        self.ctx = ToolContext(
            host=self,
            call_id=call.call_id,
            idempotency_key=f"{live.run_id}:{call.call_id}",
            attempt=self.attempt,
            state=self._state,
            agent=agent.name,
            branch=ctx.branch,
            run_id=live.run_id,
            session=live.key,
            last_progress=known.progress if known is not None else None,
        )
        self.task: asyncio.Task[None] | None = None
        self.fatal: Exception | None = None
        """What fails the run once this call is settled: the tool's wish, or the error of a callback behind it."""
        self._stop_cause: Cause | None = None
        self._worked = False
        self._interrupted = False
        self._stopped = False
        self._cancel_hooks: list[Callable[[], None]] = []

    # --- its life -------------------------------------------------------------------------------------------------

    def started(self) -> CallStarted:
        """Return the record that must be durable before `start`."""
        record_id, time = self.live.stamp()
        return CallStarted(
            id=record_id, time=time, run_id=self.live.run_id, call_id=self.call.call_id, name=self.tool.name,
            attempt=self.attempt, idempotency_key=self.ctx.idempotency_key, replay=self.tool.replay,
        )  # fmt: skip

    def start(self) -> asyncio.Task[None]:
        """Begin the work; the task ends when the call is settled, or was stopped."""
        self.task = asyncio.create_task(self._carry(), name=f"heaveto call {self.tool.name} {self.call.call_id}")
        # Looked at: after a stop nobody asks any more for the end of what could not be stopped in time.
        self.task.add_done_callback(lambda task: task.cancelled() or task.exception())
        return self.task

    async def _carry(self) -> None:
        try:
            await self._settle()
        finally:
            # A context that a tool keeps must not keep the run alive.
            end_context(self.ctx, EndedCall(self.live.run_id, self.cancelled))

    async def _settle(self) -> None:
        settled = await self._outcome()
        if self.live.sealing:
            await self._record_late(settled or self._settlement("cancelled", None, self.cancelled))
        elif settled is None:
            self._stopped = True
        else:
            try:
                await self.live.journal.record_fact([settled, *self._consequences()])
            except StaleLeaseError:
                # Another worker has closed the run, with this call as unknown: here is what became of it (P2).
                self.live.services.spawn(self._record_late(settled), f"late result of call {self.call.call_id}")
                raise
            await self.live.journal.tell()

    async def _outcome(self) -> CallSettled | None:
        """Do the work; return how it ended, or None if the stop ended it.

        What a stop did is judged by the stop, not by the kind of exception (F35): a value that comes from an
        interrupted coroutine is kept, but the call counts as cancelled.
        """
        try:
            response = to_response(await self._work())
        except ToolFatalError as error:
            self.fatal = error
            return self._settlement("failed", {"error": message_of(error)})
        except NotSerializableError as error:
            return self._settlement(
                "failed", {"error": f"The tool ran, but its result cannot be recorded: {message_of(error)}"}
            )
        except Exception as error:  # noqa: BLE001 - an edge: the tool's own code
            return await self._failed(error)
        except KeyboardInterrupt:
            raise
        except BaseException as signal:  # noqa: BLE001 - a signal of any kind ends this call, never the run
            # An event loop that shuts down cancels all tasks at once: the supervisor's turn to say so comes first.
            await asyncio.sleep(0)
            return await self._failed(RuntimeError(f"the tool ended itself with {type(signal).__name__}"))
        if self._interrupted:
            return self._settlement("cancelled", response, cause=self._stop_cause)
        replaced = await self._ask("after_tool", self.agent.after_tool_callbacks, response)
        return self._settlement("succeeded", response if replaced is None else replaced)

    async def _work(self) -> Any:
        try:
            if self.tool.blocking:
                return await run_in_thread(
                    lambda: self.tool.run_blocking(self._bound, self.ctx), name=f"heaveto tool {self.tool.name}"
                )
            return await self.tool.run(self._bound, self.ctx)
        finally:
            self._worked = True

    async def _failed(self, error: Exception) -> CallSettled | None:
        """Return how a call that raised is settled. A stop that was asked for counts before it is delivered."""
        if self.cancelled is not None:
            return None
        given = await self._ask("on_tool_error", self.agent.on_tool_error_callbacks, error)
        if given is not None:
            return self._settlement("succeeded", given)
        logger.info("tool %s raised", self.tool.name, exc_info=error)
        return self._settlement("failed", {"error": f"{type(error).__name__}: {message_of(error)}"})

    async def _ask(
        self, point: Literal["after_tool", "on_tool_error"], own: Sequence[Callable[..., Any]], outcome: object
    ) -> dict[str, Json] | None:
        """Ask the callbacks behind a call for another result.

        Whatever happens to them, the call keeps the outcome that it has (P4): a stop ends the asking, and their error
        fails the run once the call is settled.
        """
        hooks = self.live.services.app.hooks
        if self.cancelled is not None or not (own or hooks.at(point)):
            return None
        try:
            given: dict[str, Json] | None = await hooks.first(point, own, self.tool, self.call.args, self.ctx, outcome)
            return given
        except Exception as error:  # noqa: BLE001 - raised again when the call is settled
            self.fatal = error
        except KeyboardInterrupt:
            raise
        except BaseException as signal:  # noqa: BLE001 - whatever it signals, the call keeps its outcome
            if self.cancelled is None:
                self.fatal = RuntimeError(f"a callback {point} ended itself with {type(signal).__name__}")
        return None

    def _settlement(
        self, status: CallStatus, response: dict[str, Json] | None, cause: Cause | None = None
    ) -> CallSettled:
        record_id, time = self.live.stamp()
        return CallSettled(
            id=record_id, time=time, run_id=self.live.run_id, call_id=self.call.call_id, name=self.tool.name,
            status=status, response=response, cause=cause, late=self.live.sealing, end_turn=self.ctx.end_turn,
            escalate=self.ctx.escalate,
        )  # fmt: skip

    def _consequences(self) -> list[Record]:
        """What is recorded together with the result: the state that the tool set, the agent it hands over to."""
        records = self._state_changes()
        target = self.agent.root.find(
            self.ctx.transfer_to_agent or ""
        )  # an agent that works as a tool has its own tree
        if target is not None:
            records.append(self.agent_ctx.transferred(target))
        return records

    def _state_changes(self) -> list[Record]:
        delta = self._state.take_delta()
        if not delta:
            return []
        record_id, time = self.live.stamp()
        return [StateChanged(id=record_id, time=time, run_id=self.live.run_id, delta=delta, author=self.agent.name)]

    async def _record_late(self, settled: CallSettled) -> None:
        """The run has ended: the result is recorded from the side, and told to the model at the next turn."""
        await self.live.finished.wait()
        late = replace(self._settlement(settled.status, settled.response, settled.cause), late=True)
        try:
            await self.live.log.append(
                [late, *self._state_changes()], token=None, guard=Guard(f"late:{self.call.call_id}", late.id)
            )
        except GuardTakenError:
            logger.warning("call %s was settled late before", self.call.call_id)

    async def replaced(self, response: dict[str, Json]) -> list[Record]:
        """Return the records of a call whose result a callback gave: the tool is not executed."""
        replaced = await self._ask("after_tool", self.agent.after_tool_callbacks, response)
        return [self._settlement("succeeded", response if replaced is None else replaced), *self._consequences()]

    async def refused(self, error: Exception) -> list[Record]:
        """Return the settlement of a call whose before-tool callback raised: the tool is not executed."""
        if isinstance(error, ToolFatalError):
            self.fatal = error
            return [self._settlement("failed", {"error": message_of(error)})]
        settled = await self._failed(error)
        return [settled] if settled is not None else []

    # --- stops ----------------------------------------------------------------------------------------------------

    @property
    def is_awaited(self) -> bool:
        """Whether a stop waits for it."""
        return self.task is not None and not self.task.done() and self.tool.on_cancel != "abandon"

    @property
    def work(self) -> Work | None:
        """What became of it, for the stop report; None if nobody knows."""
        if self.task is None:
            return "not_started"
        if self._stopped or self.task.cancelled():
            return "stopped"
        return None if self.task.done() else "still_running"

    def ask_to_stop(self, cause: Cause) -> None:
        """Tell the tool, and interrupt it if that is its way. Called again, it interrupts again."""
        if self._stop_cause is None:
            self._stop_cause = cause
            hooks, self._cancel_hooks = self._cancel_hooks, []
            for hook in hooks:
                self._call_hook(hook)
        if self.task is None:
            return
        if self._worked:
            self.task.cancel()  # callbacks behind the tool do not hold up a stop, whatever the tool's own way
        elif not self.tool.blocking and self.tool.on_cancel == "cancel":
            self._interrupted = self.task.cancel() or self._interrupted

    def _call_hook(self, hook: Callable[[], None]) -> None:
        try:
            hook()
        except KeyboardInterrupt:
            raise
        except BaseException:  # noqa: BLE001 - a hook's fault, or its own `raise_if_cancelled`, must not hold up the stop
            logger.exception("an on_cancel hook of tool %s failed", self.tool.name)

    # --- what the tool asks for -----------------------------------------------------------------------------------

    @property
    def cancelled(self) -> Cause | None:
        stop = self.live.stop_asked
        return self._stop_cause or (stop.cause if stop is not None else None)

    def on_cancel(self, hook: Callable[[], None]) -> None:
        if self._stop_cause is not None:
            self._call_hook(hook)
        else:
            self._cancel_hooks.append(hook)

    async def progress(self, value: Json) -> None:
        if self.live.sealing:
            raise RunCancelled(self.live.run_id, self.cancelled or "lease_lost")  # nothing but late results may follow
        record_id, time = self.live.stamp()
        await self.live.journal.record_fact(
            [CallProgress(id=record_id, time=time, run_id=self.live.run_id, call_id=self.call.call_id, value=value)]
        )

    def progress_from_thread(self, value: Json) -> None:
        asyncio.run_coroutine_threadsafe(self.progress(value), self._loop).result()

    async def cancel_run(self, by: str, reason: str) -> None:
        await self.live.request_stop("user", by, reason)

    async def run_agent(self, agent: BaseAgent, task: str) -> str:
        return await self.agent_ctx.host.run_task(agent, f"{self.agent_ctx.branch}@{self.call.call_id}", task)
