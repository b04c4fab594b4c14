"""A started call, from its first attempt to its one settlement, and past it where its outcome comes late.

proposed ──► started ──► settled: succeeded, failed, cancelled
              │   ▲  └──► settled: unknown ───► late: its real outcome
              └───┘  └──► settled: detached ──► late: its outcome
           a further attempt
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal, TypeAlias

from msgspec.structs import replace

from heaveto.agents.context import AgentContext
from heaveto.agents.llm import LlmAgent
from heaveto.core.close import Work, output_response
from heaveto.core.failure import info_of, message_of
from heaveto.core.fold import calls_around, task_branch
from heaveto.errors import (
    CallWaits,
    InDoubtError,
    NotSerializableError,
    RunCancelled,
    SessionErasedError,
    StaleLeaseError,
    StoreClosedError,
    StoreError,
    ToolFatalError,
    ToolTimeoutError,
)
from heaveto.events.contents import FunctionCall, Json
from heaveto.events.records import (
    Answered,
    CallSettled,
    CallStarted,
    CallStatus,
    Cause,
    Message,
    Paused,
    Record,
    StateChanged,
    WaitingCall,
    WaitingKind,
)
from heaveto.runner.run.calls.attempt import Attempt
from heaveto.runner.run.calls.output import CallOutput
from heaveto.runner.run.calls.place import Place
from heaveto.runner.run.calls.results import recorded_result
from heaveto.runner.run.live import LiveRun
from heaveto.runner.services import logger
from heaveto.runner.session.late import PATIENCE, record_late
from heaveto.runner.tasks.insist import insist
from heaveto.tools.base import Confirmation, Tool

_Outcome: TypeAlias = CallSettled | Paused | None
"""How a call leaves its work: settled, waiting for an answer, or, with None, as the stop of its run will say."""


class _LeftBehindError(Exception):
    """The attempt could not be stopped within the grace, and works on."""


class ToolOperation:
    """A call from its start to its settlement.

    Attributes:
        args: the arguments in force; `bound` is what the tool gets of them.
        released: resolved when nothing of the run has to wait for the call any more: it is settled, or in the
            background.
        in_doubt: a dead process had started the call, and what became of that is not known.
        probing: its tool is asked that first.
        fatal: what fails the run once this call is settled: the tool's wish, or the error of a callback behind it.
        stop_cause: why the call was asked to stop, with its run or alone.
    """

    def __init__(
        self,
        live: LiveRun,
        agent: LlmAgent,
        ctx: AgentContext,
        call: FunctionCall,
        tool: Tool,
        bound: dict[str, Any],
        args: dict[str, Json],
        *,
        probe: bool = False,
        confirmation: Confirmation | None = None,
        edited: bool = False,
    ) -> None:
        self.live, self.agent, self.agent_ctx, self.call, self.tool = live, agent, ctx, call, tool
        self.bound, self.args, self.confirmation, self._edited = bound, args, confirmation, edited
        self._known = known = live.session.calls.get(call.call_id)
        done = known.attempt if known is not None else 0
        self.attempt = Attempt(self, done if probe else done + 1, known.progress if known is not None else None)
        self.in_doubt, self.probing = done > 0, probe
        self.task: asyncio.Task[None] | None = None
        self.released: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.fatal: Exception | None = None
        self.saves = itertools.count()
        self.tasks = itertools.count(self._first_task() if self.in_doubt else 1)
        self._place = Place(live, tool, call.call_id, ctx.branch)
        self._stop_cause: Cause | None = None
        self._run_cause: Cause | None = None
        """Why it was asked to stop together with its run, which settles it then."""
        self._news = asyncio.Event()
        self._answer: asyncio.Future[Answered] | None = None
        self._stopped = self._is_asking = False
        self._failed_attempts = 0
        self._last_error: Exception | None = None
        self._left: list[asyncio.Future[Any]] = []
        self._waits_within = False
        self.is_left = False
        """It goes on in the background, as a run that this process does not carry any more."""
        self.child_run = ""
        self._unwatch: Callable[[], None] | None = None

    @property
    def call_id(self) -> str:
        return self.call.call_id

    def _first_task(self) -> int:
        """Return the number of the first task that the attempt of a dead process gave to an agent.

        A further attempt in the same process gives its tasks anew. One behind a crash goes on with those of the
        attempt before, in the order in which they were given.
        """
        tasks = first = 0
        for record in self.live.session.records[self.live.run.started_seq :]:
            if isinstance(record, CallStarted) and record.call_id == self.call_id and record.previous is not None:
                first = tasks
            elif isinstance(record, Message) and record.author == "user":
                tasks += record.branch == task_branch(self.agent_ctx.branch, self.call_id, tasks + 1)
        return first + 1

    # --- its life -------------------------------------------------------------------------------------------------

    def started(self) -> CallStarted:
        """Return the record that must be durable before the attempt begins."""
        record_id, time = self.live.stamp()
        error = self._last_error
        return CallStarted(
            id=record_id, time=time, run_id=self.live.run_id, call_id=self.call_id, name=self.tool.name,
            attempt=self.attempt.number, idempotency_key=self.attempt.ctx.idempotency_key, replay=self.tool.replay,
            args=None if self.args == self.call.args else self.args, owner=self.live.services.store.owner,
            previous=None if error is None else info_of(error),
        )  # fmt: skip

    def start(self) -> None:
        """Begin the work. `released` tells when nothing has to wait for it any more."""
        self.in_doubt = self.probing  # from now on this attempt tells what became of the call
        self.task = asyncio.create_task(self._carry(), name=f"heaveto call {self.tool.name} {self.call_id}")
        # Looked at: after a stop nobody asks any more for the end of what could not be stopped in time.
        self.task.add_done_callback(lambda task: task.cancelled() or task.exception())

    async def _carry(self) -> None:
        try:
            await self._settle()
        finally:
            self.attempt.end()
            self._release()
            if self._unwatch is not None:
                self._unwatch()
                self.live.services.background_calls.pop(self.call_id, None)

    def _release(self) -> None:
        if not self.released.done():
            self.released.set_result(None)
        self.leave_line()

    # --- its place among the calls that run at the same time ------------------------------------------------------

    def enter_at_once(self) -> bool:
        """Take a place if one is free, or none is needed."""
        return self._place.enter_at_once()

    async def enter_line(self) -> None:
        """Wait for a place. Returns without one if the call is stopped meanwhile."""
        entry = self._place.enter()
        if entry is not None:
            try:
                await self._until(entry)
            finally:
                entry.cancel()

    def leave_line(self) -> None:
        """Give the place back, or stop waiting for one. Idempotent."""
        self._place.leave()

    # --- inside ---------------------------------------------------------------------------------------------------

    async def _settle(self) -> None:
        settled = await self._outcome()
        if self.is_in_background and self.is_left:
            return
        if self.live.sealing or self.is_in_background:
            if isinstance(settled, Paused) or self._waits_within:
                settled = self.settlement("failed", {"error": "The run ended before an answer could be waited for."})
            await self._record_late(settled or self.settlement("cancelled", None, self.stop_cause))
        elif isinstance(settled, Paused):
            await self.live.journal.record_fact([settled, *self.state_changes()])
            await self.live.journal.tell()
        elif settled is None:
            self._stopped = not self._waits_within  # the ending of its run settles it
        else:
            cut = [] if self._left else self.live.take_drafts_within(self.call_id)  # what is left behind streams on
            time = self.live.services.clock.time()
            kept = [draft.cut_off(settled.cause or "error", time) for draft in cut]
            records = [*kept, settled, *self._outside_work(settled), *self._consequences()]
            try:
                await self.live.journal.record_fact(records)
            except StaleLeaseError:
                # Another worker has closed the run, with this call as unknown: here is what became of it (P2).
                self.live.services.spawn(self._record_late(settled), f"late result of call {self.call_id}")
                raise
            except StoreError:
                self.live.drafts.update((draft.message_id, draft) for draft in cut)
                raise
            self.live.forget_draft(self.output_key)
            await self.live.journal.tell()

    async def _outcome(self) -> _Outcome:
        """Do the work, as often as it takes; return how it ended, what it waits for, or None if the run's stop counts.

        What a stop did is judged by the stop, not by the kind of exception (F35): a value that comes from an
        interrupted coroutine is kept, but the call counts as stopped.
        """
        try:
            if self.probing and (found := await self._recover()) is not None:
                return found
            settled: _Outcome
            while True:
                try:
                    value = await self._perform()
                except _LeftBehindError:
                    settled = await self._left_behind()
                except KeyboardInterrupt:
                    raise
                except BaseException as error:  # noqa: BLE001 - an edge: the tool's own code
                    settled = await self._raised(error)
                else:
                    return await self._returned(value)
                if settled is not _AGAIN:
                    return settled
        except ToolFatalError as error:
            self.fatal = error
            return self.settlement("failed", {"error": message_of(error)})

    async def _perform(self) -> Any:
        """Let the attempt work to its end, or as long as it may.

        Raises:
            _LeftBehindError: it goes on beyond the grace.
            BaseException: what the tool raised.
        """
        attempt = self.attempt
        work = attempt.probe() if self.probing else attempt.begin()
        work.add_done_callback(lambda _: self._news.set())
        limit = self.tool.timeout_seconds
        timer = asyncio.create_task(self._time_out(attempt, limit)) if limit is not None else None
        try:
            while not work.done() and not self._is_cut:
                self._news.clear()
                try:
                    await self._news.wait()
                except asyncio.CancelledError:  # the event loop shuts down: the tool is told, and waited for
                    attempt.interrupt(self.stop_cause or "shutdown")
            if not work.done():
                await self._cut_short(attempt, work)
        finally:
            if timer is not None:
                timer.cancel()
        if work.done():
            return work.result()
        raise _LeftBehindError

    async def _time_out(self, attempt: Attempt, seconds: float) -> None:
        await self.live.services.clock.sleep(seconds)
        if attempt.stop_cause is None and attempt.work is not None and not attempt.work.done():
            attempt.is_out_of_time = True
            self._news.set()

    @property
    def _is_cut(self) -> bool:
        """Whether this one call is to end, although its run goes on."""
        return self.attempt.is_out_of_time or self._stop_cause is not None

    async def _cut_short(self, attempt: Attempt, work: asyncio.Future[Any]) -> None:
        cause = self._stop_cause or "timeout"
        if self.tool.on_cancel == "abandon":
            attempt.interrupt(cause)
            return
        await insist(
            lambda: attempt.interrupt(cause),
            lambda: [] if work.done() else [work],
            clock=self.live.services.clock,
            seconds=self.live.config.cancel_grace_seconds,
            cancelled=lambda: None,
        )

    # --- how an attempt ended -------------------------------------------------------------------------------------

    async def _returned(self, value: Any) -> CallSettled | Paused:
        if not self.attempt.interrupted:
            question = self.attempt.question
            if question is None and self.tool.long_running and value is None:
                question = self.waiting("long_running", self.tool.description)
            if question is not None:
                return self._paused(question)
        status, response = await self._recorded(value)
        if status == "failed":
            return self.settlement(status, response)
        if self.attempt.interrupted:
            return self.settlement("cancelled", response, self.attempt.stop_cause)
        if self.tool.long_running:
            return self.settlement("detached", response)
        if self._edited:
            response = {**response, "executed_with_arguments": self.args}
        replaced = await self._ask("after_tool", self.agent.after_tool_callbacks, response)
        return self.settlement("succeeded", response if replaced is None else replaced)

    async def _recorded(self, value: Any) -> tuple[CallStatus, dict[str, Json]]:
        """Return what the tool returned as it is recorded; or, as a failure, that it cannot be."""
        try:
            return "succeeded", await recorded_result(value, self.tool, self.call_id, self.live)
        except NotSerializableError as error:
            return "failed", {"error": f"The tool ran, but its result cannot be recorded: {message_of(error)}"}

    async def _raised(self, error: BaseException) -> _Outcome:
        """Say how a call ends whose attempt raised; `_AGAIN` if it has another one."""
        if isinstance(error, ToolFatalError):
            raise error
        if isinstance(error, CallWaits):
            self._waits_within = True
            return None
        if not isinstance(error, Exception):
            # An event loop that shuts down cancels all tasks at once: the supervisor's turn to say so comes first.
            await asyncio.sleep(0)
        in_doubt = isinstance(error, InDoubtError)
        if isinstance(error, InDoubtError) and error.outcome is not None:
            self._await_outcome(error.outcome)
        if self._stops_with_run:
            self.in_doubt = in_doubt
            return None
        if self._stop_cause is not None:
            return self.settlement("unknown" if in_doubt else "cancelled", self._put_out(), self._stop_cause)
        if self.attempt.stop_cause == "timeout":
            return await self._timed_out(in_doubt=in_doubt)
        if not isinstance(error, Exception):
            error = RuntimeError(f"the tool ended itself with {type(error).__name__}")
        if (again := await self._prepare_again(error)) is not None:
            return again
        if self.stop_cause is not None:  # the stop came in a pause: what is known is how the attempt failed
            return self._failure(error)
        return await self.failed(error)

    async def _timed_out(self, *, in_doubt: bool) -> CallSettled | Paused:
        error = ToolTimeoutError(self.tool.name, self.tool.timeout_seconds or 0)
        if (again := await self._prepare_again(error)) is not None:
            return again
        given = await self._ask("on_tool_error", self.agent.on_tool_error_callbacks, error)
        if given is not None:
            return self.settlement("succeeded", given)
        return self.settlement("unknown" if in_doubt else "cancelled", self._put_out(), "timeout")

    async def _left_behind(self) -> CallSettled:
        """The attempt goes on, fenced. What becomes of it counts only if no other attempt comes after it."""
        attempt, cause = self.attempt, self._stop_cause or "timeout"
        assert attempt.work is not None
        self._left.append(attempt.work)
        attempt.end()
        if cause == "timeout":
            error = ToolTimeoutError(self.tool.name, self.tool.timeout_seconds or 0)
            # Where a probe decides, it cannot: the attempt may have its effect after the probe has looked.
            if self.tool.replay != "probe" and await self._prepare_again(error) is not None:
                return _AGAIN
        self.live.services.spawn(self._await_left(attempt, attempt.work), f"call {self.call_id} of {self.tool.name}")
        return self.settlement("unknown", self._put_out(), cause)

    async def _await_left(self, attempt: Attempt, work: asyncio.Future[Any]) -> None:
        """Record what became of the last attempt, which could not be stopped."""
        await asyncio.wait({work})
        if self.task is not None and not self.task.done():
            await asyncio.wait({self.task})
        try:
            status, response = await self._recorded(work.result())
            settled = self.settlement("cancelled" if attempt.interrupted else status, response)
        except BaseException:  # noqa: BLE001 - however it ended: it ended after it was told to stop
            settled = self.settlement("cancelled", None, attempt.stop_cause)
        self.attempt.state.take_delta()  # what it set since it was fenced is not recorded
        await self._record_late(settled)

    def _await_outcome(self, outcome: Callable[[], Awaitable[Any]]) -> None:
        """Record what a tool that does not know now learns later, such as a server's late reply."""
        attempt = self.attempt

        async def record() -> None:
            value = await outcome()
            if self.task is not None and not self.task.done():
                await asyncio.wait({self.task})
            if self.attempt is attempt:
                await self._record_late(self.settlement(*await self._recorded(value)))

        self.live.services.listen(record(), f"outcome of call {self.call_id} of {self.tool.name}")

    async def failed(self, error: Exception) -> _Outcome:
        """Return how a call that failed is settled. A stop that was asked for counts before it is delivered."""
        if self._stops_with_run:
            return None
        given = await self._ask("on_tool_error", self.agent.on_tool_error_callbacks, error)
        if given is not None:
            return self.settlement("succeeded", given)
        logger.info("tool %s raised", self.tool.name, exc_info=error)
        return self._failure(error)

    def _failure(self, error: Exception) -> CallSettled:
        told: dict[str, Json] = {"error": f"{type(error).__name__}: {message_of(error)}"}
        return self.settlement("unknown" if isinstance(error, InDoubtError) else "failed", told)

    async def _ask(
        self, point: Literal["after_tool", "on_tool_error"], own: Sequence[Callable[..., Any]], outcome: object
    ) -> dict[str, Json] | None:
        """Ask the callbacks behind a call for another result.

        Whatever happens to them, the call keeps the outcome that it has (P4): a stop ends the asking, and their error
        fails the run once the call is settled.
        """
        hooks = self.live.services.app.hooks
        if self.stop_cause is not None or not (own or hooks.at(point)):
            return None
        self._is_asking = True
        try:
            given: dict[str, Json] | None = await hooks.first(
                point, own, self.tool, self.args, self.attempt.ctx, outcome
            )
            return given
        except Exception as error:  # noqa: BLE001 - raised again when the call is settled
            self.fatal = error
        except KeyboardInterrupt:
            raise
        except BaseException as signal:  # noqa: BLE001 - whatever it signals, the call keeps its outcome
            if self.stop_cause is None:
                self.fatal = RuntimeError(f"a callback {point} ended itself with {type(signal).__name__}")
        finally:
            self._is_asking = False
        return None

    # --- further attempts -----------------------------------------------------------------------------------------

    async def _prepare_again(self, error: Exception) -> _Outcome:
        """Make a further attempt ready if the tool allows one: after its pause, and never after a stop (F152).

        Return `_AGAIN` if there is one, None if not, and a settlement if the tool's probe has found what is known.
        """
        self._failed_attempts += 1
        retry = self.tool.retry
        pause = retry.pause(self._failed_attempts, error) if retry is not None else None
        if pause is None or self.tool.replay == "never" or self.stop_cause is not None:
            return None
        self._last_error = error
        logger.info("tool %s failed in attempt %d; trying again", self.tool.name, self.attempt.number, exc_info=error)
        if not await self._pause(pause):
            return None
        if self.tool.replay == "probe" and (found := await self._look_into(error)) is not None:
            return found
        return _AGAIN if await self._begin_next() else None

    async def _look_into(self, error: Exception) -> _Outcome:
        """Ask the tool what the attempt did that failed; None if it did nothing (P5)."""
        known = self.live.session.calls.get(self.call_id)
        self.attempt.end()
        self.attempt = Attempt(self, self.attempt.number, known.progress if known is not None else None)
        self.in_doubt = self.probing = True
        cause: Cause | None = "timeout" if isinstance(error, ToolTimeoutError) else None
        return await self._probe({"error": f"{type(error).__name__}: {message_of(error)}"}, cause)

    async def _pause(self, seconds: float) -> bool:
        """Wait; return False if a stop came."""
        timer = asyncio.ensure_future(self.live.services.clock.sleep(seconds))
        try:
            await self._until(timer)
        except asyncio.CancelledError:
            if self.stop_cause is None:
                raise
        finally:
            timer.cancel()
        return self.stop_cause is None

    async def _until(self, future: asyncio.Future[Any]) -> None:
        """Wait for a future, or for a stop of this call."""
        future.add_done_callback(lambda _: self._news.set())
        while not future.done() and self.stop_cause is None:
            self._news.clear()
            await self._news.wait()

    async def _begin_next(self) -> bool:
        known = self.live.session.calls.get(self.call_id)
        self.attempt.end()
        self.attempt = Attempt(self, self.attempt.number + 1, known.progress if known is not None else None)
        try:
            await self.live.journal.commit(self._next_start)
        except RunCancelled:
            return False
        await self.live.journal.tell()
        return self.stop_cause is None

    def _next_start(self) -> list[Record]:
        self.look()
        return [] if self.stop_cause is not None else [self.started()]

    async def _probe(self, told: dict[str, Json], cause: Cause | None) -> _Outcome:
        """Ask the tool what an attempt did; None if it did nothing, and the call may be executed now.

        Where it cannot tell, the call is unknown, for this cause, and with what is told already.
        """
        try:
            found = await self._perform()
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - an edge: the tool's own code, or a stop
            if isinstance(error, Exception) and not isinstance(error, _LeftBehindError):
                logger.warning("tool %s cannot tell what call %s did", self.tool.name, self.call_id, exc_info=error)
                told = {**told, "probe_error": f"{type(error).__name__}: {message_of(error)}"}
            return self.settlement("unknown", told or None, self.stop_cause or cause)
        self.in_doubt = self.probing = False
        return await self._returned(found) if found is not None else None

    async def _recover(self) -> _Outcome:
        """Ask the tool what an attempt of a dead process did; None if it did nothing, and the call is executed now."""
        if (found := await self._probe({}, "crash")) is not None:
            return found
        if await self._begin_next():
            return None
        return self.settlement("not_started", None, self.stop_cause)  # its tool says that it had no effect

    # --- what it waits for ----------------------------------------------------------------------------------------

    def waiting(
        self, kind: WaitingKind, hint: str, schema: dict[str, Json] | None = None, payload: Json = None,
        within_seconds: float | None = None, default: Json = None,
    ) -> WaitingCall:  # fmt: skip
        """Return what the call waits for, as it is recorded."""
        now = self.live.services.clock.time()
        return WaitingCall(
            call_id=self.call_id, kind=kind, name=self.tool.name, hint=hint, schema=schema, args=self.args,
            deadline=None if within_seconds is None else now + within_seconds, default=default, payload=payload,
            path=self._path(),
        )  # fmt: skip

    def _path(self) -> str:
        """The agents from the root to this one, through the calls in which agents work as tools (F162)."""
        around = [self.live.session.calls.get(call_id) for call_id in calls_around(self.agent_ctx.branch)]
        agents = (self.live.services.app.agent_named(call.agent) for call in around if call is not None)
        return "/".join([*(agent.path for agent in agents if agent is not None), self.agent.path])

    def _paused(self, question: WaitingCall) -> Paused:
        record_id, time = self.live.stamp()
        return Paused(id=record_id, time=time, run_id=self.live.run_id, waiting=(question,), held=True)

    def _outside_work(self, settled: CallSettled) -> list[Record]:
        """Of a long-running call that was answered for now: that its outcome is waited for."""
        if settled.status != "detached" or not self.tool.long_running:
            return []
        return [self._paused(self.waiting("long_running", self.tool.description))]

    # --- its records ----------------------------------------------------------------------------------------------

    def settlement(
        self, status: CallStatus, response: dict[str, Json] | None, cause: Cause | None = None
    ) -> CallSettled:
        """Return the record that settles the call."""
        record_id, time = self.live.stamp()
        ctx = self.attempt.ctx
        return CallSettled(
            id=record_id, time=time, run_id=self.live.run_id, call_id=self.call_id, name=self.tool.name,
            status=status, response=response, cause=cause, late=self.live.sealing or self.is_in_background,
            end_turn=bool(ctx.end_turn), escalate=bool(ctx.escalate),
        )  # fmt: skip

    def _put_out(self) -> dict[str, Json] | None:
        draft = self.live.drafts.get(self.output_key)
        return output_response(draft.text) if isinstance(draft, CallOutput) else None

    def _consequences(self) -> list[Record]:
        """What is recorded together with the result: the state that the tool set, the agent it hands over to."""
        records = self.state_changes()
        # An agent that works as a tool has its own tree.
        target = self.agent.root.find(self.attempt.ctx.transfer_to_agent or "")
        if target is not None:
            records.append(self.agent_ctx.transferred(target))
        return records

    def state_changes(self) -> list[Record]:
        """Take what was set through the context of the current attempt."""
        delta = self.attempt.state.take_delta()
        if not delta:
            return []
        record_id, time = self.live.stamp()
        return [StateChanged(id=record_id, time=time, run_id=self.live.run_id, delta=delta, author=self.agent.name)]

    async def _record_late(self, settled: CallSettled) -> None:
        """Record from the side what became of the call, which was settled before; it is told at the next chance."""
        if self.live.sealing:
            await self.live.finished.wait()
        late = replace(settled, late=True)
        try:
            changes = self.state_changes()
            if await record_late(self.live.services, self.live.log, late, changes, pauses=PATIENCE):
                self.live.services.kick(self.live.key)
        except StoreClosedError:
            told = "call %s of %s ended after its runner was closed: what became of it is not recorded"
            logger.warning(told, self.call_id, self.tool.name)
        except SessionErasedError:
            pass  # there is nothing left that it could stand in
        except StoreError:
            logger.exception("what became of call %s of %s could not be recorded", self.call_id, self.tool.name)

    async def replaced(self, response: dict[str, Json]) -> list[Record]:
        """Return the records of a call whose result a callback gave: the tool is not executed."""
        replaced = await self._ask("after_tool", self.agent.after_tool_callbacks, response)
        return [self.settlement("succeeded", response if replaced is None else replaced), *self._consequences()]

    async def refused(self, error: Exception) -> list[Record]:
        """Return the settlement of a call whose before-tool callback raised: the tool is not executed."""
        if isinstance(error, ToolFatalError):
            self.fatal = error
            return [self.settlement("failed", {"error": message_of(error)})]
        settled = await self.failed(error)
        return [settled] if settled is not None else []

    async def record_aside(self, record: Record) -> None:
        """Record something that the tool says while it works.

        Raises:
            RunCancelled: the run has ended: nothing but late results may follow.
        """
        if self.is_in_background and self.live.sealing:
            await self.live.finished.wait()
            await self.live.log.append([record], token=None)
        elif self.live.sealing:
            raise RunCancelled(self.live.run_id, self.stop_cause or "lease_lost")
        else:
            await self.live.journal.record_fact([record])

    # --- what it puts out -----------------------------------------------------------------------------------------

    @property
    def output_key(self) -> str:
        return f"output:{self.call_id}"

    def put_out(self, text: str) -> None:
        """Show a piece of its output, and keep it."""
        draft = self.live.drafts.get(self.output_key)
        if draft is None:
            draft = self.live.drafts[self.output_key] = CallOutput(
                run_id=self.live.run_id, call_id=self.call_id, author=self.agent.name, branch=self.agent_ctx.branch
            )
        assert isinstance(draft, CallOutput)
        draft.put(text)
        self.live.draft_grew(draft)

    # --- questions, and going into the background -----------------------------------------------------------------

    async def answer(self) -> Answered:
        """Wait for the answer to the question that was recorded."""
        known = self.live.session.calls.get(self.call_id)
        if known is not None and known.answer is not None:
            return known.answer
        self._answer = asyncio.get_running_loop().create_future()
        return await self._answer

    async def detach(self, response: dict[str, Json] | None, *, child_run: str = "") -> None:
        """Answer the call now, and let it work on; a call in the background already stays there."""
        if not self.is_in_background:
            self.child_run = child_run
            await self.record_aside(replace(self.settlement("detached", response), child_run=child_run))
            self.look()

    @property
    def is_in_background(self) -> bool:
        return self._unwatch is not None

    def look(self) -> None:
        """Take note of what came for this call: a stop, an answer, its move into the background."""
        known = self.live.session.calls.get(self.call_id) or self._known
        self._known = known
        if known is None or (self.task is not None and self.task.done()):
            return
        if known.is_in_background and not self.is_in_background:
            self._unwatch = self.live.log.watch(self.look)
            self.live.services.background_calls[self.call_id] = self
            if self.task is not None:  # the closing runner waits for its end, which is recorded late
                self.live.services.background.add(self.task)
                self.task.add_done_callback(self.live.services.background.discard)
            self._release()
        if known.cancel is not None:
            self.cut(known.cancel.cause)
        if known.answer is not None and self._answer is not None and not self._answer.done():
            self._answer.set_result(known.answer)

    # --- stops ----------------------------------------------------------------------------------------------------

    @property
    def stop_cause(self) -> Cause | None:
        stop = self.live.stop_asked if not self.is_in_background else None
        return self._stop_cause or self._run_cause or (stop.cause if stop is not None else None)

    @property
    def _stops_with_run(self) -> bool:
        """Whether the ending of its run says what became of it; a stop that was asked for counts before it comes."""
        return not self.is_in_background and (self._run_cause is not None or self.live.stop_asked is not None)

    @property
    def is_awaited(self) -> bool:
        """Whether a stop of the run waits for it."""
        return self.task is not None and not self.task.done() and self.tool.on_cancel != "abandon"

    @property
    def work(self) -> Work | None:
        """What became of it, for the stop report; None if nobody knows."""
        if self.task is None:
            return None if self.in_doubt else "not_started"
        if any(not left.done() for left in self._left) or not self.task.done():
            return "still_running"
        if self.in_doubt:
            return None
        return "stopped" if self._stopped or self.task.cancelled() else None

    def cut(self, cause: Cause) -> None:
        """Stop this one call; its run goes on."""
        if self._stop_cause is None:
            self._stop_cause = cause
            self._news.set()
            if self._is_asking and self.task is not None:
                self.task.cancel()  # a callback behind the tool does not hold up a stop

    def ask_to_stop(self, cause: Cause) -> None:
        """Stop it together with its run. Called again, it interrupts again."""
        if self.is_in_background:
            self.cut(cause)  # that insists by itself
            return
        self._run_cause = self._run_cause or cause
        self._news.set()
        if self.task is None or self.task.done():
            return
        if self.attempt.work is None or self.attempt.work.done():
            self.task.cancel()  # callbacks behind the tool do not hold up a stop, whatever the tool's own way
        else:
            self.attempt.interrupt(cause)


_AGAIN = CallSettled(id="", time=0, call_id="", status="unknown")
"""Stands for: not settled, there is another attempt."""
