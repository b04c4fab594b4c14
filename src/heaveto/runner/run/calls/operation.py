"""A started call, from its first attempt to its one settlement, and past it where its outcome comes late.

proposed ──► started ──► settled: succeeded, failed, cancelled
              │   ▲  └──► settled: unknown ───► late: its real outcome
              └───┘  └──► settled: detached ──► late: its outcome
           a further attempt
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from heaveto.core.close import Work
from heaveto.core.failure import info_of, message_of
from heaveto.errors import (
    CallWaits,
    InDoubtError,
    NotSerializableError,
    RunCancelled,
    StaleLeaseError,
    StoreError,
    ToolFatalError,
    ToolTimeoutError,
)
from heaveto.events.contents import Json
from heaveto.events.records import CallSettled, CallStarted, CallStatus, Cause, Paused, Record
from heaveto.runner.run.calls.attempt import Attempt
from heaveto.runner.run.calls.open_call import OpenCall
from heaveto.runner.run.calls.perform import LeftBehindError, perform
from heaveto.runner.run.calls.results import record_aftermath, recorded_result
from heaveto.runner.services import logger

_Outcome: TypeAlias = CallSettled | Paused | None
"""How a call leaves its work: settled, waiting for an answer, or, with None, as the stop of its run will say."""


class ToolOperation:
    """Carries a call from its first attempt to its settlement.

    Attributes:
        call: the call as its run and the outside see it.
        attempt: the one in force.
        in_doubt: a dead process had started the call, and what became of that is not known.
        probing: its tool is asked that first.
    """

    def __init__(self, call: OpenCall, *, probe: bool = False) -> None:
        self.call, self.live, self.tool = call, call.live, call.tool
        done = call.known.attempt if call.known is not None else 0
        self.attempt = Attempt(call, done if probe else done + 1)
        self.in_doubt, self.probing = done > 0, probe
        self._stopped = self._waits_within = False
        self._failed_attempts = 0
        self._last_error: Exception | None = None
        self._left: list[asyncio.Future[Any]] = []
        """What works on of attempts that could not be stopped."""

    @property
    def call_id(self) -> str:
        return self.call.call_id

    # --- its life -------------------------------------------------------------------------------------------------

    def started(self) -> CallStarted:
        """Return the record that must be durable before the attempt begins."""
        record_id, time = self.live.stamp()
        error = self._last_error
        return CallStarted(
            id=record_id, time=time, run_id=self.live.run_id, call_id=self.call_id, name=self.tool.name,
            attempt=self.attempt.number, idempotency_key=self.attempt.ctx.idempotency_key, replay=self.tool.replay,
            args=None if self.call.args == self.call.call.args else self.call.args,
            owner=self.live.services.store.owner, previous=None if error is None else info_of(error),
        )  # fmt: skip

    def start(self) -> None:
        """Begin the work. `released` tells when nothing has to wait for it any more."""
        self.in_doubt = self.probing  # from now on this attempt tells what became of the call
        work = self._carry()
        self.call.task = task = asyncio.create_task(work, name=f"heaveto call {self.tool.name} {self.call_id}")
        # Looked at: after a stop nobody asks any more for the end of what could not be stopped in time.
        task.add_done_callback(lambda task: task.cancelled() or task.exception())

    async def _carry(self) -> None:
        try:
            await self._settle()
        finally:
            self.attempt.end()
            self.call.end()

    # --- inside ---------------------------------------------------------------------------------------------------

    async def _settle(self) -> None:
        settled = await self._outcome()
        if self.call.is_in_background and self.call.is_left:
            return
        if self.live.sealing or self.is_in_background:
            if isinstance(settled, Paused) or self._waits_within:
                told: dict[str, Json] = {"error": "The run ended before an answer could be waited for."}
                settled = self.attempt.settlement("failed", told)
            settled = settled or self.attempt.settlement("cancelled", None, self.call.stop_cause)
            await record_aftermath(self.live, self.attempt, settled)
        elif isinstance(settled, Paused):
            await self.live.journal.record_fact([settled, *self.attempt.state_changes()])
            await self.live.journal.tell()
        elif settled is None:
            self._stopped = not self._waits_within  # the ending of its run settles it
        else:
            await self._record(settled)

    async def _record(self, settled: CallSettled) -> None:
        """Record what became of the call, behind what agents that worked for it had said."""
        cut = [] if self._left else self.live.take_drafts_within(self.call_id)  # what is left behind streams on
        time = self.live.services.clock.time()
        kept = [draft.cut_off(settled.cause or "error", time) for draft in cut]
        records = [*kept, settled, *self._outside_work(settled), *self.attempt.consequences()]
        try:
            await self.live.journal.record_fact(records)
        except StaleLeaseError:
            # Another worker has closed the run, with this call as unknown: here is what became of it (P2).
            late = record_aftermath(self.live, self.attempt, settled)
            self.live.services.spawn(late, f"late result of call {self.call_id}")
            raise
        except StoreError:
            self.live.drafts.update((draft.message_id, draft) for draft in cut)
            raise
        self.live.forget_draft(self.call.output_key)
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
                    value = await perform(self.call, self.attempt, probing=self.probing)
                except LeftBehindError:
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
            self.call.fatal = error
            return self.attempt.settlement("failed", {"error": message_of(error)})

    # --- how an attempt ended -------------------------------------------------------------------------------------

    async def _returned(self, value: Any) -> CallSettled | Paused:
        if not self.attempt.interrupted:
            question = self.attempt.question
            if question is None and self.tool.long_running and value is None:
                question = self.call.waiting("long_running", self.tool.description)
            if question is not None:
                return self.call.asked(question)
        status, response = await self._recorded(value)
        if status == "failed":
            return self.attempt.settlement(status, response)
        if self.attempt.interrupted:
            return self.attempt.settlement("cancelled", response, self.attempt.stop_cause)
        if self.tool.long_running:
            return self.attempt.settlement("detached", response)
        if self.call.edited:
            response = {**response, "executed_with_arguments": self.call.args}
        replaced = await self.call.ask_behind("after_tool", self.attempt.ctx, response)
        return self.attempt.settlement("succeeded", response if replaced is None else replaced)

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
        if self.call.stops_with_run:
            self.in_doubt = in_doubt
            return None
        if self.call.own_stop is not None:
            status: CallStatus = "unknown" if in_doubt else "cancelled"
            return self.attempt.settlement(status, self.call.kept_output(), self.call.own_stop)
        if self.attempt.stop_cause == "timeout":
            return await self._timed_out(in_doubt=in_doubt)
        if not isinstance(error, Exception):
            error = RuntimeError(f"the tool ended itself with {type(error).__name__}")
        if (again := await self._prepare_again(error)) is not None:
            return again
        if self.call.stop_cause is not None:  # the stop came in a pause: what is known is how the attempt failed
            return self._failure(error)
        return await self.failed(error)

    async def _timed_out(self, *, in_doubt: bool) -> CallSettled | Paused:
        error = ToolTimeoutError(self.tool.name, self.tool.timeout_seconds or 0)
        if (again := await self._prepare_again(error)) is not None:
            return again
        given = await self.call.ask_behind("on_tool_error", self.attempt.ctx, error)
        if given is not None:
            return self.attempt.settlement("succeeded", given)
        return self.attempt.settlement("unknown" if in_doubt else "cancelled", self.call.kept_output(), "timeout")

    async def _left_behind(self) -> CallSettled:
        """The attempt goes on, fenced. What becomes of it counts only if no other attempt comes after it."""
        attempt, cause = self.attempt, self.call.own_stop or "timeout"
        assert attempt.work is not None
        self._left.append(attempt.work)
        attempt.end()
        if cause == "timeout":
            error = ToolTimeoutError(self.tool.name, self.tool.timeout_seconds or 0)
            # Where a probe decides, it cannot: the attempt may have its effect after the probe has looked.
            if self.tool.replay != "probe" and await self._prepare_again(error) is not None:
                return _AGAIN
        self.live.services.spawn(self._await_left(attempt, attempt.work), f"call {self.call_id} of {self.tool.name}")
        return self.attempt.settlement("unknown", self.call.kept_output(), cause)

    async def _await_left(self, attempt: Attempt, work: asyncio.Future[Any]) -> None:
        """Record what became of the last attempt, which could not be stopped."""
        await asyncio.wait({work})
        if self.task is not None and not self.task.done():
            await asyncio.wait({self.task})
        try:
            status, response = await self._recorded(work.result())
            settled = self.attempt.settlement("cancelled" if attempt.interrupted else status, response)
        except BaseException:  # noqa: BLE001 - however it ended: it ended after it was told to stop
            settled = self.attempt.settlement("cancelled", None, attempt.stop_cause)
        self.attempt.state.take_delta()  # what it set since it was fenced is not recorded
        await record_aftermath(self.live, self.attempt, settled)

    def _await_outcome(self, outcome: Callable[[], Awaitable[Any]]) -> None:
        """Record what a tool that does not know now learns later, such as a server's late reply."""
        attempt = self.attempt

        async def record() -> None:
            value = await outcome()
            if self.task is not None and not self.task.done():
                await asyncio.wait({self.task})
            if self.attempt is attempt:
                await record_aftermath(self.live, self.attempt, self.attempt.settlement(*await self._recorded(value)))

        self.live.services.listen(record(), f"outcome of call {self.call_id} of {self.tool.name}")

    async def failed(self, error: Exception) -> _Outcome:
        """Return how a call that failed is settled. A stop that was asked for counts before it is delivered."""
        if self.call.stops_with_run:
            return None
        given = await self.call.ask_behind("on_tool_error", self.attempt.ctx, error)
        if given is not None:
            return self.attempt.settlement("succeeded", given)
        logger.info("tool %s raised", self.tool.name, exc_info=error)
        return self._failure(error)

    def _failure(self, error: Exception) -> CallSettled:
        told: dict[str, Json] = {"error": f"{type(error).__name__}: {message_of(error)}"}
        return self.attempt.settlement("unknown" if isinstance(error, InDoubtError) else "failed", told)

    # --- further attempts -----------------------------------------------------------------------------------------

    async def _prepare_again(self, error: Exception) -> _Outcome:
        """Make a further attempt ready if the tool allows one: after its pause, and never after a stop (F152).

        Return `_AGAIN` if there is one, None if not, and a settlement if the tool's probe has found what is known.
        """
        self._failed_attempts += 1
        retry = self.tool.retry
        pause = retry.pause(self._failed_attempts, error) if retry is not None else None
        if pause is None or self.tool.replay == "never" or self.call.stop_cause is not None:
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
        self.attempt.end()
        self.attempt = Attempt(self.call, self.attempt.number)
        self.in_doubt = self.probing = True
        cause: Cause | None = "timeout" if isinstance(error, ToolTimeoutError) else None
        return await self._probe({"error": f"{type(error).__name__}: {message_of(error)}"}, cause)

    async def _pause(self, seconds: float) -> bool:
        """Wait; return False if a stop came."""
        timer = asyncio.ensure_future(self.live.services.clock.sleep(seconds))
        try:
            await self.call.until(timer)
        except asyncio.CancelledError:
            if self.call.stop_cause is None:
                raise
        finally:
            timer.cancel()
        return self.call.stop_cause is None

    async def _begin_next(self) -> bool:
        self.attempt.end()
        self.attempt = Attempt(self.call, self.attempt.number + 1)
        try:
            await self.live.journal.commit(self._next_start)
        except RunCancelled:
            return False
        await self.live.journal.tell()
        return self.call.stop_cause is None

    def _next_start(self) -> list[Record]:
        self.look()
        return [] if self.call.stop_cause is not None else [self.started()]

    async def _probe(self, told: dict[str, Json], cause: Cause | None) -> _Outcome:
        """Ask the tool what an attempt did; None if it did nothing, and the call may be executed now.

        Where it cannot tell, the call is unknown, for this cause, and with what is told already.
        """
        try:
            found = await perform(self.call, self.attempt, probing=self.probing)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - an edge: the tool's own code, or a stop
            if isinstance(error, Exception) and not isinstance(error, LeftBehindError):
                logger.warning("tool %s cannot tell what call %s did", self.tool.name, self.call_id, exc_info=error)
                told = {**told, "probe_error": f"{type(error).__name__}: {message_of(error)}"}
            return self.attempt.settlement("unknown", told or None, self.call.stop_cause or cause)
        self.in_doubt = self.probing = False
        return await self._returned(found) if found is not None else None

    async def _recover(self) -> _Outcome:
        """Ask the tool what an attempt of a dead process did; None if it did nothing, and the call is executed now."""
        if (found := await self._probe({}, "crash")) is not None:
            return found
        if await self._begin_next():
            return None
        return self.attempt.settlement("not_started", None, self.call.stop_cause)  # its tool says that it had no effect

    # --- its records ----------------------------------------------------------------------------------------------

    def _outside_work(self, settled: CallSettled) -> list[Record]:
        """Of a long-running call that was answered for now: that its outcome is waited for."""
        if settled.status != "detached" or not self.tool.long_running:
            return []
        return [self.call.asked(self.call.waiting("long_running", self.tool.description))]

    async def replaced(self, response: dict[str, Json]) -> list[Record]:
        """Return the records of a call whose result a callback gave: the tool is not executed."""
        replaced = await self.call.ask_behind("after_tool", self.attempt.ctx, response)
        settled = self.attempt.settlement("succeeded", response if replaced is None else replaced)
        return [settled, *self.attempt.consequences()]

    async def refused(self, error: Exception) -> list[Record]:
        """Return the settlement of a call whose before-tool callback raised: the tool is not executed."""
        if isinstance(error, ToolFatalError):
            self.call.fatal = error
            return [self.attempt.settlement("failed", {"error": message_of(error)})]
        settled = await self.failed(error)
        return [settled] if settled is not None else []

    # --- stops ----------------------------------------------------------------------------------------------------

    @property
    def task(self) -> asyncio.Task[None] | None:
        return self.call.task

    @property
    def is_in_background(self) -> bool:
        return self.call.is_in_background

    def look(self) -> None:
        self.call.look()

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

    def ask_to_stop(self, cause: Cause) -> None:
        """Stop it together with its run. Called again, it interrupts again."""
        if self.is_in_background:
            self.call.cut(cause)  # that insists by itself
            return
        self.call.stop_with_run(cause)
        if self.task is None or self.task.done():
            return
        if self.attempt.work is None or self.attempt.work.done():
            self.task.cancel()  # callbacks behind the tool do not hold up a stop, whatever the tool's own way
        else:
            self.attempt.interrupt(cause)


_AGAIN = CallSettled(id="", time=0, call_id="", status="unknown")
"""Stands for: not settled, there is another attempt."""
