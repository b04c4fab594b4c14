"""A session's lane in this process: one run at a time, in order, whoever asked for it and wherever it was queued.

The lane's pump is the only place that claims a session, closes what a dead holder left, and starts runs. The order of
waiting runs is durable, so any process may carry out any of them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from math import inf
from typing import Any, TypeVar

from heaveto.core.close import Ending
from heaveto.core.fold import CallState, RunState
from heaveto.core.replay import may_resume
from heaveto.errors import (
    LeaseHeldError,
    LogMovedError,
    RunIdTakenError,
    RunnerClosedError,
    SessionExistsError,
    StaleLeaseError,
    StoreClosedError,
    UnknownSessionError,
)
from heaveto.events.records import CallSettled, Record, SessionKey, Trigger
from heaveto.runner.application.compaction import summarise
from heaveto.runner.application.config import RunConfig
from heaveto.runner.lane.endings import close_stopped_pause, seal_run, tell_end
from heaveto.runner.lane.inbox import Inbox
from heaveto.runner.lane.opening import open_run
from heaveto.runner.lane.ticket import Ticket
from heaveto.runner.run.host import AgentHost
from heaveto.runner.run.supervise import carry
from heaveto.runner.services import Services, logger
from heaveto.runner.session.desk import CallDesk
from heaveto.runner.session.late import give_up_outside
from heaveto.runner.session.log import SessionLog
from heaveto.stores.base import Lease

_T = TypeVar("_T")
_RETRY_CLAIM_SECONDS = 0.5
_RETRY_RELEASE_SECONDS = 1.0


class Lane:
    """One session's runs, one at a time."""

    def __init__(self, services: Services, key: SessionKey, *, create_session: bool) -> None:
        self._services, self._create_session = services, create_session
        self.log = SessionLog(services.store, key)
        self.live: AgentHost | None = None
        self.closed = False
        self._door = asyncio.Lock()
        self._entering: Ticket | None = None
        """The message that starts at once, until it is durable. Nobody passes it."""
        self._carried: Ticket | None = None
        self._inbox = Inbox(services, self.log)
        self.calls = CallDesk(services, self.log)
        self._pump: asyncio.Task[None] | None = None
        self._reap = True
        """Whether a dead process may have left something in this session: a run to close, an end hook to call."""
        self._telling_end = False
        self._wanted: set[str] = set()
        """Runs that someone wants to go on, whatever becomes of others whose process died."""
        self._jobs: deque[tuple[Callable[[Lease], Awaitable[None]], asyncio.Future[Any]]] = deque()
        self._summary: tuple[asyncio.Task[bool], asyncio.Event] | None = None
        """A conversation that is being summarised, and whether it is waited for no more: what comes to the session
        meanwhile is more urgent."""
        self._declined: list[str] = []
        """Paused runs that the message declined with which the current run began."""
        self._owed: tuple[Lease, list[str]] | None = None
        """A lease that the store could not take back, with the runs that are settled: nobody else can claim it."""
        self._stragglers: set[asyncio.Task[None]] = set()
        self._stop_alarm: Callable[[], bool] | None = None
        """Ends the wait for the next deadline of an answer."""

    @property
    def key(self) -> SessionKey:
        return self.log.key

    @property
    def is_idle(self) -> bool:
        return self._pump is None

    @property
    def _is_free(self) -> bool:
        """Nothing runs and nothing waits here, as far as this process knows.

        A run whose ending is in the log has only its end hook before it; the next message waits in line for that.
        """
        if self._entering or self.log.state.queue or self._telling_end:
            return False
        if self.live is None or self.is_paused(self.live.run_id):
            return True
        return self.live.run.ended is not None and not self._services.app.hooks.at("on_run_end")

    @property
    def _only_tells_end(self) -> bool:
        """Nothing but the last run's end hook is before the next message: no run that its sender could wait for."""
        if self._entering or self.log.state.queue:
            return False
        return self._telling_end or (self.live is not None and self.live.run.ended is not None)

    @property
    def is_forgettable(self) -> bool:
        """Nothing goes on in it and nobody follows it: what it knows can be read again."""
        return self.is_idle and self._owed is None and not self._stragglers and not self.log.is_watched

    async def admit(self, ticket: Ticket) -> None:
        """Make a message durable: as a run if the session is free, else as the busy policy says. In order of calls.

        Cancelling the caller does not take the message back.

        Raises:
            SessionBusyError: it is busy, and the policy is ``reject``.
            GuardTakenError: the ticket's idempotency key was used before.
            RunIdTakenError: its run id was used before, except by a stop that came too early.
            UnknownSessionError, StoreError
        """
        async with self._door:
            while self._entering is not None:
                await asyncio.wait({self._entering.admitted})
            if self._is_taken(ticket.run_id):
                raise RunIdTakenError(ticket.run_id)
            if self._is_free:
                self._entering = ticket
                self.kick()
                self.log.notify()
            else:
                self._services.spawn(self._stand_in_line(ticket), f"message {ticket.run_id} to {self.key}")
        await asyncio.shield(ticket.admitted)

    def _is_taken(self, run_id: str) -> bool:
        """Whether a run of this id runs, waits or has ended. A stop that came before its run takes nothing."""
        state = self.log.state
        run = state.runs.get(run_id)
        if run_id in self._inbox.tickets or run_id in state.queue:
            return True
        return run is not None and (run.started_seq > 0 or run.ended is not None)

    def ticket_of(self, run_id: str) -> Ticket | None:
        """Return the ticket of a run that this process carries, or that waits here."""
        if self._carried is not None and self._carried.run_id == run_id:
            return self._carried
        return self._inbox.tickets.get(run_id)

    async def end_idle_run(self, run_id: str, ending: Ending) -> None:
        """End a run that nobody carries, from the side: one that has not begun, or that is paused and stopped."""
        await self._inbox.withdraw(run_id, ending)
        if await close_stopped_pause(self._services, self.log, run_id):
            self._inbox.withdrawn.add(run_id)

    async def exclusively(self, job: Callable[[Lease], Awaitable[_T]]) -> _T:
        """Do something to the session's log while nothing runs in it: behind the run that runs, before those that wait.

        Raises:
            RunnerClosedError: the runner was closed before.
        """
        outcome: asyncio.Future[_T] = asyncio.get_running_loop().create_future()

        async def do(lease: Lease) -> None:
            try:
                result = await job(lease)
            except BaseException as error:
                is_ours = isinstance(error, Exception)  # else the loop is shutting down
                outcome.set_exception(error if is_ours else RunnerClosedError())
                outcome.exception()  # looked at: who asked may have gone away
                if not is_ours:
                    raise
            else:
                outcome.set_result(result)

        self._jobs.append((do, outcome))
        self.kick()
        return await asyncio.shield(outcome)

    def spawn(self, work: Coroutine[Any, Any, object], name: str) -> None:
        """Start background work that the closing runner waits for."""
        self._services.spawn(work, name)

    def kick(self, *, reap: bool = False) -> None:
        """See to it that the pump looks for work."""
        self._reap = self._reap or reap
        self._give_up_summary()
        if self._pump is None:
            self._pump = asyncio.create_task(self._pump_runs(), name=f"heaveto lane {self.key}")
            self._services.background.add(self._pump)
            self._pump.add_done_callback(self._services.background.discard)

    def resume(self, run_id: str) -> None:
        """See to it that a run goes on, if it can."""
        self._wanted.add(run_id)
        self.kick(reap=True)

    def is_paused(self, run_id: str) -> bool:
        """Whether a run waits for answers, as far as this process knows."""
        return run_id in self.log.state.paused

    async def drained(self) -> None:
        """Wait until the pump has nothing to do."""
        while self._pump is not None:
            await asyncio.wait({self._pump})

    async def _stand_in_line(self, ticket: Ticket) -> None:
        """Let a message that cannot start at once do as its policy says."""
        try:
            await self._inbox.take_in(ticket, only_tells_end=self._only_tells_end)
        except Exception as error:  # noqa: BLE001 - handed to the one who waits
            self._refuse(ticket, error)
        else:
            self._admit(ticket)
            self.kick()

    def _may_yet_start(self, ticket: Ticket) -> bool:
        """Whether a message that does not want to wait for a run has none before it: the holder just begins or ends."""
        state = self.log.state
        return ticket.config.busy_policy == "reject" and state.current is None and not state.queue

    # --- the pump -------------------------------------------------------------------------------------------------

    async def _pump_runs(self) -> None:
        pause = _RETRY_CLAIM_SECONDS  # after store trouble
        try:
            while not self._must_end() and self._has_work:
                await self._take_turn()
            pause = 0
        except asyncio.CancelledError:
            self._refuse_all(RunnerClosedError())
            raise
        except BaseException as error:
            if not self._refuse_all(error):  # handed to those who wait
                logger.warning("session %s could not be worked on; whoever next looks will", self.key, exc_info=error)
            if not isinstance(error, Exception):
                raise
        finally:
            self._pump = None
            if self._must_end():
                self._refuse_all(RunnerClosedError())
            else:
                self._set_alarm(pause)
            self.log.notify()

    @property
    def _has_work(self) -> bool:
        waits = self._entering or self.log.state.queue or self._reap or self._jobs
        return bool(waits or self._answered_run or self._stopped_pauses or self._stopped_questions)

    @property
    def _stopped_questions(self) -> list[CallState]:
        """Calls that were stopped alone while their run waits for others: whoever has the lane settles them."""
        waiting = [run for run in self.log.state.paused.values() if run.cancel is None and run.waiting]
        calls = (call for run in waiting for call in run.calls.values())
        return [call for call in calls if call.cancel is not None and call.phase == "waiting"]

    @property
    def _stopped_pauses(self) -> list[RunState]:
        """Paused runs that were asked to stop: whoever has the lane closes them."""
        return [run for run in self.log.state.paused.values() if run.cancel is not None]

    def _must_end(self) -> bool:
        """Whether the runner closes, or the event loop: the run before may have used up the pump's cancellation."""
        task = asyncio.current_task()
        return self.closed or (task is not None and task.cancelling() > 0)

    def _refuse_all(self, error: BaseException) -> bool:
        """Tell all who wait here. Return whether anybody did."""
        waiting = [ticket for ticket in (self._entering, *self._inbox.tickets.values()) if ticket is not None]
        is_heard = bool(waiting or self._jobs)
        for ticket in waiting:
            self._refuse(ticket, error)
        self._inbox.tickets.clear()
        for _, outcome in self._jobs:
            outcome.set_exception(error)
            outcome.exception()  # looked at: who asked may have gone away
        self._jobs.clear()
        return is_heard

    def _admit(self, ticket: Ticket) -> None:
        if self._entering is ticket:
            self._entering = None
        ticket.admit()

    def _refuse(self, ticket: Ticket, error: BaseException) -> None:
        if self._entering is ticket:
            self._entering = None
        ticket.refuse(error)

    async def _take_turn(self) -> None:
        """Claim the session, close what is left over, carry out one run, give the session back."""
        lease = await self._claim()
        if lease is None:
            return
        settled: list[str] = []
        try:
            if lease.last_seq != self.log.state.last_seq:
                await self.log.refresh()
            self.log.state.shared = dict(lease.shared)
            if self._entering is not None and (self.log.state.queue or self._resumable or self._answered_run):
                await self._stand_in_line(self._entering)  # others were here before
            if self._reap or self.log.state.current is not None or self._stopped_pauses:
                settled.extend(await self._close_leftovers(lease))
            if self.log.state.background:
                await self._settle_lost_calls()
            if self._stopped_questions:
                await self._settle_stopped_questions(lease)
            if self.log.state.paused:
                await self.calls.expire()
            while self._jobs and self.log.state.current is None:
                settled.extend(await self._do_job(lease))
            ticket = None if self.closed else self._resumed() or self._next()
            if ticket is not None:
                settled.extend(await self._carry_out(lease, ticket))
                await self._compact(lease)
        except StaleLeaseError:
            logger.warning("session %s was taken over by another worker", self.key)
            self._reap = True
        finally:
            self._owed = lease, settled
            await self._give_back()

    async def _do_job(self, lease: Lease) -> list[str]:
        """Do what somebody wants to do to the log. Return the runs that ended with it, their end hooks told."""
        paused = tuple(self.log.state.paused)
        await self._jobs.popleft()[0](lease)
        ended = [run_id for run_id in paused if self.log.state.run(run_id).ended is not None]
        for run_id in ended:
            await self._tell_end(self.log.state.run(run_id))
            await self._deliver(self.log.state.run(run_id))
        return ended

    async def _compact(self, lease: Lease) -> None:
        """Summarise the conversation if it has become long, as long as nobody wants anything of the session."""
        config, agent = self._services.app.compaction, self._services.app.root_agent
        if config is None or self._must_end() or self._has_work:
            return
        point = config.point(self.log)
        if point is None:
            return
        work = summarise(config, agent, self._services, self.log, lease, point)
        task = asyncio.create_task(work, name=f"heaveto summary of {self.key}")
        self._services.background.add(task)
        task.add_done_callback(self._services.background.discard)
        task.add_done_callback(self._summary_is_over)
        self._summary = task, asyncio.Event()
        unwatch = self.log.watch(self._look_up_from_summary)
        try:
            await self._summary[1].wait()
        finally:
            unwatch()
            self._summary = None
            task.cancel()

    def _summary_is_over(self, task: asyncio.Task[bool]) -> None:
        if self._summary is not None and self._summary[0] is task:
            self._summary[1].set()
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.warning("session %s could not be summarised", self.key, exc_info=error)

    def _look_up_from_summary(self) -> None:
        """Others may want something of the session, too, or the runner closes."""
        if self.closed or self._has_work:
            self._give_up_summary()

    def _give_up_summary(self) -> None:
        if self._summary is not None:
            self._summary[0].cancel()
            self._summary[1].set()  # not waited for: it may not want to end

    async def _give_back(self) -> None:
        """Release the lease. Where the store cannot take it now, see to it that it is tried again."""
        try:
            await self._release()
        except StoreClosedError:
            self._owed = None  # what an instance holds ends with it
        except Exception:  # noqa: BLE001 - whatever the store's trouble is, the session must not stay locked for it
            logger.warning("session %s could not be given back; trying again", self.key, exc_info=True)
            self._services.spawn(self._release_later(), f"release of session {self.key}")

    async def _release(self) -> None:
        owed = self._owed
        if owed is not None:
            await self._services.store.release(owed[0], settled=owed[1])
            if self._owed is owed:
                self._owed = None

    async def _release_later(self) -> None:
        while self._owed is not None and not self.closed:
            await self._services.clock.sleep(_RETRY_RELEASE_SECONDS)
            with suppress(Exception):
                await self._release()

    async def _claim(self) -> Lease | None:
        await self._release()
        try:
            return await self._services.store.claim(self.key)
        except UnknownSessionError:
            if not self._create_session:
                raise
            with suppress(SessionExistsError):  # another worker was faster
                await self._services.store.create_session(self.key)
            return None
        except LeaseHeldError:
            changed = asyncio.Event()
            unwatch = self.log.watch(changed.set, lease=True)
            try:
                await self.log.refresh()
                if self._entering is not None and not self._may_yet_start(self._entering):
                    await self._stand_in_line(self._entering)
                await _wait(changed, _RETRY_CLAIM_SECONDS)
            finally:
                unwatch()
            return None

    @property
    def _resumable(self) -> RunState | None:
        """The run that a dead process left open, if it is to go on."""
        run = self.log.state.current_run
        if run is None:
            return None
        config = RunConfig.of_settings(run.settings)
        wanted = "resume" if run.run_id in self._wanted else config.on_crash
        goes_on = may_resume(
            on_crash=wanted or self._services.app.on_crash,
            stopped=run.cancel is not None,
            fruitless=run.fruitless,
            max_fruitless=config.max_fruitless_attempts,
        )
        return run if goes_on else None

    def _resumed(self) -> Ticket | None:
        """Return a ticket for the run that goes on, before all that waits."""
        run = self._resumable or self._answered_run
        if run is None:
            return None
        trigger: Trigger = "recovery" if self._resumable else "continuation" if run.was_handed_over else "answer"
        return Ticket(run.run_id, run.input, RunConfig.of_settings(run.settings), trigger=trigger)

    @property
    def _answered_run(self) -> RunState | None:
        """The first paused run whose answers have come, or that was handed over."""
        paused = self.log.state.paused.values()
        return next((run for run in paused if run.cancel is None and (run.was_handed_over or not run.waiting)), None)

    def _next(self) -> Ticket | None:
        """What waits comes first, then the message that wants to start at once."""
        return self._inbox.next() or self._entering

    async def _carry_out(self, lease: Lease, ticket: Ticket) -> list[str]:
        try:
            run_id = await self._run(lease, ticket)
        except StaleLeaseError:
            raise
        except asyncio.CancelledError:
            self._refuse(ticket, RunnerClosedError())
            raise
        except BaseException as error:
            self._refuse(ticket, error)
            self._reap = self._reap or self.log.state.current is not None
            if ticket.run_id in self.log.state.queue or not isinstance(error, Exception):
                raise  # it waits on, for the next one who looks here; to try again at once would spin
            return []
        told = [run_id] if self.log.state.run(run_id).ended is not None else []
        for ended in [*self._declined, *told]:
            await self._tell_end(self.log.state.run(ended))
            await self._deliver(self.log.state.run(ended))
        declined, self._declined = self._declined, []
        return [*declined, *told]

    async def _run(self, lease: Lease, ticket: Ticket) -> str:
        await self._await_stragglers(ticket)
        live = AgentHost(self._services, self.log, lease, ticket.run_id, ticket.config)
        self.live, self._carried = live, ticket
        try:
            paused = tuple(self.log.state.paused)
            has_work = await open_run(live, ticket)
            self._admit(ticket)
            self._declined.extend(run_id for run_id in paused if self.log.state.run(run_id).ended is not None)
            if not has_work and live.run.ended is None:
                self._reap = True  # a stop came before it could go on: it is closed instead
                return ticket.run_id
            if has_work:
                await carry(live, self._services.app.agent_at(live.run.agent))
            ticket.cause = live.error
        finally:
            live.end()
            self.live = None
            self._keep_stragglers(live)
        return ticket.run_id

    # --- leftovers ------------------------------------------------------------------------------------------------

    def has_leftovers(self, now: float) -> bool:
        """Whether there is something to do here for whoever finds the session in nobody's hands, as far as was read."""
        state = self.log.state
        return bool(
            state.current is not None
            or state.queue
            or state.background
            or self._answered_run
            or self._stopped_pauses
            or self._stopped_questions
            or self.next_deadline <= now
        )

    @property
    def next_deadline(self) -> float:
        """When the first answer that somebody waits for will be too late; infinity if never."""
        questions = (call.question for run in self.log.state.paused.values() for call in run.waiting)
        return min((one.deadline for one in questions if one is not None and one.deadline is not None), default=inf)

    async def _close_leftovers(self, lease: Lease) -> list[str]:
        """Close the run that a dead holder left open, and call the end hooks that it did not come to (P7)."""
        settled: list[str] = []
        run = self.log.state.current_run
        if run is not None and self._resumable is not None:
            run = None  # it goes on, and ends in its own time
        sealed = [*self._stopped_pauses, *([run] if run is not None else [])]
        for one in sealed:
            await seal_run(self._services, self.log, lease, one)
        for unfinished in await self._services.store.unfinished(self.key):
            if unfinished.ended:
                ended = self.log.state.run(unfinished.run_id)
                if ended.ended is None:
                    await self.log.refresh()  # it was taken back elsewhere since the log was read
                is_first = unfinished.run_id in self._inbox.withdrawn or any(
                    one.run_id == unfinished.run_id for one in sealed
                )
                await self._tell_end(ended, redelivered=not is_first)
                await self._deliver(ended)
                self._inbox.withdrawn.discard(unfinished.run_id)
                settled.append(unfinished.run_id)
        self._reap = False
        return settled

    async def _settle_lost_calls(self) -> None:
        """Say of calls in the background whose process died that nobody knows what became of them (P2)."""
        state, services = self.log.state, self._services
        for call_id in tuple(state.background):
            call = state.calls.get(call_id)
            if call is None or call_id in services.background_calls or (call.settled and call.settled.child_run):
                continue  # a child run is found again, and brings its outcome itself
            if call.is_outside:
                if call.cancel is not None:
                    await give_up_outside(services, self.log, call, call.cancel.cause)
                continue  # nobody here works for it: its outcome is answered
            if await services.store.is_alive(call.owner):
                continue
            await give_up_outside(services, self.log, call, "crash")

    async def _settle_stopped_questions(self, lease: Lease) -> None:
        records: list[Record] = []
        for call in self._stopped_questions:
            assert call.cancel is not None
            record_id, time = self._services.stamp()
            records.append(
                CallSettled(
                    id=record_id, time=time, run_id=call.run_id, call_id=call.call.call_id, name=call.call.name,
                    status="cancelled" if call.has_started else "not_started", cause=call.cancel.cause,
                )
            )  # fmt: skip
        with suppress(LogMovedError):  # their run may be over, closed from the side: looked at again in the next turn
            await self.log.append(records, token=lease.token, expect=self.log.state.last_seq)

    async def _tell_end(self, run: RunState, *, redelivered: bool = False) -> None:
        self._telling_end = bool(self._services.app.hooks.at("on_run_end"))
        try:
            await tell_end(self._services, self.key, run, redelivered=redelivered)
        finally:
            self._telling_end = False

    async def _deliver(self, run: RunState) -> None:
        """Bring the outcome of a run that worked for a call of another one home."""
        if run.parent is not None and run.ended is not None:
            await self._services.children.deliver(self.log.state, run.run_id)

    def _set_alarm(self, pause: float) -> None:
        """See to it that an answer that does not come in time is taken as its default, while this process lives.

        That is looked for after `pause` seconds at the earliest.
        """
        if self._stop_alarm is not None:
            self._stop_alarm()
            self._stop_alarm = None
        asked = (call.question for run in self.log.state.paused.values() for call in run.waiting)
        deadlines = [question.deadline for question in asked if question is not None and question.deadline is not None]
        if deadlines:
            expiry = self._expire_at(min(deadlines), pause)
            self._stop_alarm = self._services.listen(expiry, f"deadline in {self.key}")

    async def _expire_at(self, deadline: float, pause: float) -> None:
        await self._services.clock.sleep(max(pause, deadline - self._services.clock.time()))
        if not self.closed:
            self.kick(reap=True)

    # --- stragglers -----------------------------------------------------------------------------------------------

    def _keep_stragglers(self, live: AgentHost) -> None:
        for task in live.stragglers:
            self._stragglers.add(task)
            self._services.background.add(task)
            task.add_done_callback(self._forget_straggler)
            task.add_done_callback(self._services.background.discard)

    def _forget_straggler(self, task: asyncio.Task[None]) -> None:
        self._stragglers.discard(task)
        self.log.notify()

    async def _await_stragglers(self, ticket: Ticket) -> None:
        """Let what an earlier stop left running end, as long as the run wants to wait, is not stopped, and may start.

        Raises:
            RunnerClosedError: the runner was closed meanwhile.
        """
        if not self._stragglers or ticket.config.straggler_wait_seconds <= 0:
            return
        run, news = self.log.state.run(ticket.run_id), asyncio.Event()
        unwatch = self.log.watch(news.set)
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(ticket.config.straggler_wait_seconds):
                    while self._stragglers and run.cancel is None and run.ended is None and not self.closed:
                        news.clear()
                        await news.wait()
        finally:
            unwatch()
        if self.closed:
            raise RunnerClosedError


async def _wait(event: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        pass
