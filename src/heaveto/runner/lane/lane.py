"""A session's lane in this process: one run at a time, in order, whoever asked for it and wherever it was queued.

The lane's pump is the only place that claims a session, closes what a dead holder left, and starts runs. The order of
waiting runs is durable, so any process may carry out any of them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from math import inf
from typing import Any, TypeVar

from heaveto.core.close import Ending
from heaveto.core.fold import RunState
from heaveto.errors import (
    LeaseHeldError,
    RunIdTakenError,
    RunnerClosedError,
    SessionExistsError,
    StaleLeaseError,
    UnknownSessionError,
)
from heaveto.events.records import SessionKey, Trigger
from heaveto.runner.application.config import RunConfig
from heaveto.runner.lane.endings import Endings
from heaveto.runner.lane.inbox import Inbox
from heaveto.runner.lane.leftovers import (
    answered_run,
    has_news,
    next_deadline,
    resumable_run,
    settle_lost_calls,
    settle_stopped_questions,
    stopped_pauses,
    stopped_questions,
)
from heaveto.runner.lane.opening import open_run
from heaveto.runner.lane.stragglers import Stragglers
from heaveto.runner.lane.summary import Summariser
from heaveto.runner.lane.tenure import Tenure
from heaveto.runner.lane.ticket import Ticket
from heaveto.runner.run.host import AgentHost
from heaveto.runner.run.supervise import carry
from heaveto.runner.services import Services, logger
from heaveto.runner.session.desk import CallDesk
from heaveto.runner.session.log import SessionLog
from heaveto.stores.base import Lease

_T = TypeVar("_T")
_RETRY_CLAIM_SECONDS = 0.5


class Lane:
    """One session's runs, one at a time."""

    def __init__(self, services: Services, key: SessionKey, *, create_session: bool) -> None:
        self.services, self._create_session = services, create_session
        self.log = log = SessionLog(services.store, key)
        self.calls = CallDesk(services, log)
        self.live: AgentHost | None = None
        self.is_elsewhere = False
        """The pump stopped because another process had taken up what only a look had wanted."""
        self._is_look = False
        """Whether nothing but a look for what dead processes left wants the session."""
        self._door = asyncio.Lock()
        self._inbox, self._endings = Inbox(services, log), Endings(services, log)
        self._tenure, self._stragglers = Tenure(services, key), Stragglers(services, log)
        self._summariser = Summariser(services, log)
        self._carried: Ticket | None = None
        self._pump: asyncio.Task[None] | None = None
        self._reap = True
        """Whether a dead process may have left something in this session: a run to close, an end hook to call."""
        self._wanted: set[str] = set()
        """Runs that someone wants to go on, whatever becomes of others whose process died."""
        self._jobs: deque[tuple[Callable[[Lease], Awaitable[None]], asyncio.Future[Any]]] = deque()
        self._declined: list[str] = []
        """Paused runs that the message declined with which the current run began."""
        self._stop_alarm: Callable[[], bool] | None = None
        """Ends the wait for the next deadline of an answer."""

    @property
    def key(self) -> SessionKey:
        return self.log.key

    @property
    def is_idle(self) -> bool:
        return self._pump is None

    @property
    def is_forgettable(self) -> bool:
        """Nothing goes on in it and nobody follows it: what it knows can be read again."""
        return self.is_idle and not self._tenure.is_owed and not self._stragglers and not self.log.is_watched

    # --- messages, stops and jobs that come -----------------------------------------------------------------------

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
            while self._inbox.entering is not None:
                await asyncio.wait({self._inbox.entering.admitted})
            if self._inbox.is_taken(ticket.run_id):
                raise RunIdTakenError(ticket.run_id)
            if self._is_free:
                self._inbox.entering = ticket
                self.kick()
                self.log.notify()
            else:
                self.services.spawn(self._stand_in_line(ticket), f"message {ticket.run_id} to {self.key}")
        await asyncio.shield(ticket.admitted)

    @property
    def _is_free(self) -> bool:
        """Nothing runs and nothing waits here, as far as this process knows.

        A run whose ending is in the log has only its end hook before it; the next message waits in line for that.
        """
        if self._inbox.entering or self.log.state.queue or self._endings.is_telling:
            return False
        if self.live is None or self.live.run_id in self.log.state.paused:
            return True
        return self.live.run.ended is not None and not self.services.app.hooks.at("on_run_end")

    @property
    def _only_tells_end(self) -> bool:
        """Nothing but the last run's end hook is before the next message: no run that its sender could wait for."""
        if self._inbox.entering or self.log.state.queue:
            return False
        return self._endings.is_telling or (self.live is not None and self.live.run.ended is not None)

    async def _stand_in_line(self, ticket: Ticket) -> None:
        """Let a message that cannot start at once do as its policy says."""
        try:
            await self._inbox.take_in(ticket, only_tells_end=self._only_tells_end)
        except Exception as error:  # noqa: BLE001 - handed to the one who waits
            self._inbox.refuse(ticket, error)
        else:
            self._inbox.admit(ticket)
            self.kick()

    def ticket_of(self, run_id: str) -> Ticket | None:
        """Return the ticket of a run that this process carries, or that waits here."""
        if self._carried is not None and self._carried.run_id == run_id:
            return self._carried
        return self._inbox.ticket_of(run_id)

    async def end_aside(self, run_id: str, ending: Ending) -> None:
        """End a run that nobody carries: one that waits and has not begun, or that is paused and was asked to stop."""
        if await self._endings.end_aside(run_id, ending):
            self._inbox.forget(run_id)

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

    def kick(self, *, reap: bool = False) -> None:
        """See to it that the pump looks for work."""
        self._reap, self._is_look = self._reap or reap, False
        self._summariser.give_up()
        if self._pump is None:
            self._pump = asyncio.create_task(self._pump_runs(), name=f"heaveto lane {self.key}")
            self.services.background.add(self._pump)
            self._pump.add_done_callback(self.services.background.discard)

    def take_up(self) -> None:
        """Carry out what is left over here, unless somebody alive is faster: then it is left to that one."""
        is_look = self._pump is None
        self.kick(reap=True)
        self._is_look = is_look

    def resume(self, run_id: str) -> None:
        """See to it that a run goes on, if it can."""
        self._wanted.add(run_id)
        self.kick(reap=True)

    async def drained(self) -> None:
        """Wait until the pump has nothing to do."""
        while self._pump is not None:
            await asyncio.wait({self._pump})

    # --- the pump -------------------------------------------------------------------------------------------------

    async def _pump_runs(self) -> None:
        pause = _RETRY_CLAIM_SECONDS  # after store trouble
        self.is_elsewhere = False
        try:
            while not self._must_end() and self._has_work and not self.is_elsewhere:
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
        state = self.log.state
        return bool(self._inbox.entering or state.queue or self._reap or self._jobs or has_news(state))

    def _must_end(self) -> bool:
        """Whether the runner closes, or the event loop: the run before may have used up the pump's cancellation."""
        task = asyncio.current_task()
        return self.services.closed or (task is not None and task.cancelling() > 0)

    def _refuse_all(self, error: BaseException) -> bool:
        """Tell all who wait here. Return whether anybody did."""
        is_heard = self._inbox.refuse_all(error) or bool(self._jobs)
        for _, outcome in self._jobs:
            outcome.set_exception(error)
            outcome.exception()  # looked at: who asked may have gone away
        self._jobs.clear()
        return is_heard

    async def _take_turn(self) -> None:
        """Claim the session, close what is left over, carry out one run, give the session back."""
        lease = await self._claim()
        if lease is None:
            return
        state, settled = self.log.state, list[str]()
        try:
            if lease.last_seq != state.last_seq:
                await self.log.refresh()
            state.shared = dict(lease.shared)
            await self._let_earlier_ones_go_first()
            if self._reap or state.current is not None or stopped_pauses(state):
                settled.extend(await self._close_leftovers(lease))
            if state.background:
                await settle_lost_calls(self.services, self.log)
            if stopped_questions(state):
                await settle_stopped_questions(self.services, self.log, lease)
            if state.paused:
                await self.calls.expire()
            while self._jobs and state.current is None:
                settled.extend(await self._do_job(lease))
            await self._let_earlier_ones_go_first()  # a deadline or a job may have set free what waited
            ticket = None if self.services.closed else self._resumed() or self._inbox.next()
            if ticket is not None:
                settled.extend(await self._carry_out(lease, ticket))
                if not self._must_end() and not self._has_work:
                    await self._summariser.summarise(lease, is_wanted=lambda: self.services.closed or self._has_work)
        except StaleLeaseError:
            logger.warning("session %s was taken over by another worker", self.key)
            self._reap = True
        finally:
            await self._tenure.give_back(lease, settled)

    async def _let_earlier_ones_go_first(self) -> None:
        """A message that wants to start at once stands in line where others were here before."""
        entering, state = self._inbox.entering, self.log.state
        if entering is not None and (state.queue or self._resumable or answered_run(state)):
            await self._stand_in_line(entering)

    async def _do_job(self, lease: Lease) -> list[str]:
        """Do what somebody wants to do to the log. Return the runs that ended with it, their end hooks told."""
        paused = tuple(self.log.state.paused)
        await self._jobs.popleft()[0](lease)
        ended = [run_id for run_id in paused if self.log.state.run(run_id).ended is not None]
        for run_id in ended:
            await self._endings.tell(self.log.state.run(run_id))
        return ended

    async def _claim(self) -> Lease | None:
        """Claim the session. Return None if that did not succeed yet."""
        try:
            return await self._tenure.claim()
        except UnknownSessionError:
            if not self._create_session:
                raise
            with suppress(SessionExistsError):  # another worker was faster
                await self.services.store.create_session(self.key)
        except LeaseHeldError:
            await self._wait_for_holder()
        return None

    async def _wait_for_holder(self) -> None:
        """Wait until the session may have become free; a message that wanted to start at once stands in line."""
        state, changed = self.log.state, asyncio.Event()
        unwatch = self.log.watch(changed.set, lease=True)
        try:
            await self.log.refresh()
            entering = self._inbox.entering
            if entering is not None:
                # One that does not want to wait for a run has none before it if the holder just begins or ends.
                may_start = entering.config.busy_policy == "reject" and state.current is None and not state.queue
                if not may_start:
                    await self._stand_in_line(entering)
            if not self._is_look:
                with suppress(TimeoutError):
                    async with asyncio.timeout(_RETRY_CLAIM_SECONDS):
                        await changed.wait()
        finally:
            unwatch()
        self.is_elsewhere = self._is_look

    @property
    def _resumable(self) -> RunState | None:
        return resumable_run(self.log.state, self.services.app.on_crash, wanted=self._wanted)

    async def _close_leftovers(self, lease: Lease) -> list[str]:
        """Close what dead holders left open, but the run that goes on: it ends in its own time."""
        open_run = self.log.state.current_run if self._resumable is None else None
        told = await self._endings.close_leftovers(lease, open_run)
        self._reap = False
        return told

    def _resumed(self) -> Ticket | None:
        """Return a ticket for the run that goes on, before all that waits."""
        resumable = self._resumable
        run = resumable or answered_run(self.log.state)
        if run is None:
            return None
        trigger: Trigger = "recovery" if resumable else "continuation" if run.was_handed_over else "answer"
        return Ticket(run.run_id, run.input, RunConfig.of_settings(run.settings), trigger=trigger)

    async def _carry_out(self, lease: Lease, ticket: Ticket) -> list[str]:
        try:
            run_id = await self._run(lease, ticket)
        except StaleLeaseError:
            raise
        except asyncio.CancelledError:
            self._inbox.refuse(ticket, RunnerClosedError())
            raise
        except BaseException as error:
            self._inbox.refuse(ticket, error)
            self._reap = self._reap or self.log.state.current is not None
            if ticket.run_id in self.log.state.queue or not isinstance(error, Exception):
                raise  # it waits on, for the next one who looks here; to try again at once would spin
            return []
        told = [run_id] if self.log.state.run(run_id).ended is not None else []
        for ended in [*self._declined, *told]:
            await self._endings.tell(self.log.state.run(ended))
        declined, self._declined = self._declined, []
        return [*declined, *told]

    async def _run(self, lease: Lease, ticket: Ticket) -> str:
        await self._stragglers.wait(self.log.state.run(ticket.run_id), ticket.config.straggler_wait_seconds)
        live = AgentHost(self.services, self.log, lease, ticket.run_id, ticket.config)
        self.live, self._carried = live, ticket
        try:
            paused = tuple(self.log.state.paused)
            has_work = await open_run(live, ticket)
            self._inbox.admit(ticket)
            self._declined.extend(run_id for run_id in paused if self.log.state.run(run_id).ended is not None)
            if not has_work and live.run.ended is None:
                self._reap = True  # a stop came before it could go on: it is closed instead
                return ticket.run_id
            if has_work:
                await carry(live, self.services.app.agent_at(live.run.agent))
            ticket.cause = live.error
        finally:
            live.end()
            self.live = None
            self._stragglers.keep(live.stragglers)
        return ticket.run_id

    # --- answers that do not come ---------------------------------------------------------------------------------

    def _set_alarm(self, pause: float) -> None:
        """See to it that an answer that does not come in time is taken as its default, while this process lives.

        That is looked for after `pause` seconds at the earliest.
        """
        if self._stop_alarm is not None:
            self._stop_alarm()
            self._stop_alarm = None
        deadline = next_deadline(self.log.state)
        if deadline < inf:
            self._stop_alarm = self.services.listen(self._expire_at(deadline, pause), f"deadline in {self.key}")

    async def _expire_at(self, deadline: float, pause: float) -> None:
        await self.services.clock.sleep(max(pause, deadline - self.services.clock.time()))
        if not self.services.closed:
            self.kick(reap=True)
