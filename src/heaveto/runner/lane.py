"""A session's lane in this process: one run at a time, in order, whoever asked for it and wherever it was queued.

The lane's pump is the only place that claims a session, closes what a dead holder left, and starts runs. The order of
waiting runs is durable (`Queued` records), so any process may carry out any of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, assert_never

from heaveto.core.close import Ending, close_run, report_of
from heaveto.core.fold import RunState
from heaveto.errors import (
    LeaseHeldError,
    LogMovedError,
    RunCancelled,
    RunIdTakenError,
    RunnerClosedError,
    SessionBusyError,
    SessionExistsError,
    StaleLeaseError,
    UnknownSessionError,
)
from heaveto.events.contents import Content, Json
from heaveto.events.records import (
    ErrorInfo,
    Message,
    Queued,
    Record,
    RunStarted,
    SessionKey,
    StateChanged,
    Trigger,
)
from heaveto.runner.config import RunConfig
from heaveto.runner.hooks import RunEnd, call_back
from heaveto.runner.host import AgentHost
from heaveto.runner.log import SessionLog
from heaveto.runner.services import Services, logger
from heaveto.runner.stops import ask_to_stop, carried_run
from heaveto.runner.supervise import carry
from heaveto.stores.base import Guard, Lease

_RETRY_CLAIM_SECONDS = 0.5


@dataclass(slots=True, eq=False)
class Ticket:
    """A message on its way to becoming a run.

    Attributes:
        admitted: resolved when the message is durable, as a run or in the inbox; the run id may have become another's.
        failure: why this process gave the run up, where its log cannot tell.
        cause: the original error of a failed run.
    """

    run_id: str
    content: Content
    config: RunConfig
    admitted: asyncio.Future[None]
    idempotency_key: str | None = None
    fingerprint: str = ""
    state_delta: dict[str, Json] = field(default_factory=dict[str, Json])
    trigger: Trigger = "message"
    failure: BaseException | None = None
    cause: BaseException | None = None

    def __post_init__(self) -> None:
        # Whoever waited may have gone away: an error that nobody takes is not a warning then.
        self.admitted.add_done_callback(lambda admitted: admitted.cancelled() or admitted.exception())

    @property
    def guard(self) -> Guard | None:
        """The unique key of a repeatable start; it names the run that the message went into."""
        if self.idempotency_key is None:
            return None
        return Guard(guard_name(self.idempotency_key), f"{self.run_id} {self.fingerprint}")

    def admit(self) -> None:
        if not self.admitted.done():
            self.admitted.set_result(None)

    def refuse(self, error: BaseException) -> None:
        self.failure = error
        if not self.admitted.done():
            self.admitted.set_exception(error)
            self.admitted.exception()  # looked at: who asked may have gone away


def guard_name(idempotency_key: str) -> str:
    """Return the unique key under which a start is kept."""
    return f"start:{idempotency_key}"


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
        self._withdrawn: set[str] = set()
        self._tickets: dict[str, Ticket] = {}
        self._pump: asyncio.Task[None] | None = None
        self._reap = True
        """Whether a dead process may have left something in this session: a run to close, an end hook to call."""
        self._telling_end = False
        self._stragglers: set[asyncio.Task[None]] = set()

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
        if self.live is None:
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
        return self.is_idle and not self._stragglers and not self.log.is_watched

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
        if run_id in self._tickets or run_id in state.queue:
            return True
        return run is not None and (run.started_seq > 0 or run.ended is not None)

    def ticket_of(self, run_id: str) -> Ticket | None:
        """Return the ticket of a run that this process carries, or that waits here."""
        if self._carried is not None and self._carried.run_id == run_id:
            return self._carried
        return self._tickets.get(run_id)

    async def withdraw(self, run_id: str, ending: Ending) -> None:
        """End a run that waits and has not begun. It needs no lease: a start that comes at the same time is noticed."""
        while run_id in self.log.state.queue:
            records = close_run(self.log.state.run(run_id), ending, stamp=self._services.stamp)
            try:
                await self.log.append(records, token=None, expect=self.log.state.last_seq)
            except LogMovedError:
                await self.log.refresh()
            else:
                self._withdrawn.add(run_id)
                self._tickets.pop(run_id, None)

    def spawn(self, work: Coroutine[Any, Any, object], name: str) -> None:
        """Start background work that the closing runner waits for."""
        self._services.spawn(work, name)

    def kick(self, *, reap: bool = False) -> None:
        """See to it that the pump looks for work."""
        self._reap = self._reap or reap
        if self._pump is None:
            self._pump = asyncio.create_task(self._pump_runs(), name=f"heaveto lane {self.key}")

    async def drained(self) -> None:
        """Wait until the pump has nothing to do."""
        while self._pump is not None:
            await asyncio.wait({self._pump})

    # --- the busy policies ----------------------------------------------------------------------------------------

    async def _join(self, ticket: Ticket) -> None:
        state = self.log.state
        policy = ticket.config.busy_policy
        match policy:
            case "reject" if not self._only_tells_end:
                raise SessionBusyError(self.key, state.current)
            case "queue" | "reject":
                await self._enqueue(ticket)
            case "interrupt":
                before = [run_id for run_id in (state.current, *state.queue) if run_id is not None]
                await self._enqueue(ticket)
                for run_id in before:
                    await ask_to_stop(self._services, self.log, run_id, "superseded", by=ticket.run_id)
            case "merge":
                await self._merge(ticket)
            case "steer":
                await self._steer(ticket)
            case _:
                assert_never(policy)
        self._admit(ticket)
        self.kick()

    async def _stand_in_line(self, ticket: Ticket) -> None:
        """Let a message that cannot start at once do as its policy says."""
        try:
            await self._join(ticket)
        except Exception as error:  # noqa: BLE001 - handed to the one who waits
            self._refuse(ticket, error)

    def _may_yet_start(self, ticket: Ticket) -> bool:
        """Whether a message that does not want to wait for a run has none before it: the holder just begins or ends."""
        state = self.log.state
        return ticket.config.busy_policy == "reject" and state.current is None and not state.queue

    async def _enqueue(self, ticket: Ticket) -> None:
        self._tickets[ticket.run_id] = ticket
        try:
            await self.log.append([self._queued(ticket)], token=None, guard=ticket.guard)
        except BaseException:
            self._tickets.pop(ticket.run_id, None)
            raise

    async def _merge(self, ticket: Ticket) -> None:
        """Add the message to the newest one that waits; if none waits, it waits itself."""
        while True:
            waiting = [run_id for run_id in self.log.state.queue if self.log.state.run(run_id).cancel is None]
            if not waiting:
                await self._enqueue(ticket)
                return
            own, ticket.run_id = ticket.run_id, waiting[-1]  # the queue's entry and the guard name this run
            try:
                await self.log.append(
                    [self._queued(ticket)], token=None, expect=self.log.state.last_seq, guard=ticket.guard
                )
                return
            except LogMovedError:
                ticket.run_id = own
                await self.log.refresh()
            except BaseException:
                ticket.run_id = own
                raise

    async def _steer(self, ticket: Ticket) -> None:
        """Hand the message to the run that is running; if it is past listening, the message waits for its turn."""
        while True:
            run = self.log.state.current_run
            if run is None or run.cancel is not None:
                await self._enqueue(ticket)
                return
            record_id, time = self._services.stamp()
            steer = Message(id=record_id, time=time, run_id=run.run_id, author="user", parts=ticket.content.parts)
            own, ticket.run_id = ticket.run_id, run.run_id
            try:
                await self.log.append([steer], token=None, expect=self.log.state.last_seq, guard=ticket.guard)
                return
            except LogMovedError:
                ticket.run_id = own
                await self.log.refresh()
            except BaseException:
                ticket.run_id = own
                raise

    def _queued(self, ticket: Ticket) -> Queued:
        record_id, time = self._services.stamp()
        return Queued(
            id=record_id, time=time, run_id=ticket.run_id, input=ticket.content, owner=self._services.store.owner,
            limits=ticket.config.limits,
        )  # fmt: skip

    # --- the pump -------------------------------------------------------------------------------------------------

    async def _pump_runs(self) -> None:
        try:
            while not self._must_end() and (self._entering or self.log.state.queue or self._reap):
                await self._take_turn()
        except Exception as error:  # noqa: BLE001 - handed to those who wait
            self._refuse_all(error)
        except asyncio.CancelledError:
            self._refuse_all(RunnerClosedError())
            raise
        finally:
            self._pump = None
            if self._must_end():
                self._refuse_all(RunnerClosedError())
            self.log.notify()

    def _must_end(self) -> bool:
        """Whether the runner closes, or the event loop: the run before may have used up the pump's cancellation."""
        task = asyncio.current_task()
        return self.closed or (task is not None and task.cancelling() > 0)

    def _refuse_all(self, error: BaseException) -> None:
        for ticket in (self._entering, *self._tickets.values()):
            if ticket is not None:
                self._refuse(ticket, error)
        self._tickets.clear()

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
            if self._reap or self.log.state.current is not None:
                settled.extend(await self._close_leftovers(lease))
            if self._entering is not None and self.log.state.queue:
                await self._stand_in_line(self._entering)  # others were here before
            ticket = None if self.closed else self._next()
            if ticket is not None:
                settled.extend(await self._carry_out(lease, ticket))
        except StaleLeaseError:
            logger.warning("session %s was taken over by another worker", self.key)
            self._reap = True
        finally:
            await self._services.store.release(lease, settled=settled)

    async def _claim(self) -> Lease | None:
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
            unwatch = self.log.watch(changed.set)
            try:
                await self.log.refresh()
                if self._entering is not None and not self._may_yet_start(self._entering):
                    await self._stand_in_line(self._entering)
                await _wait(changed, _RETRY_CLAIM_SECONDS)
            finally:
                unwatch()
            return None

    def _next(self) -> Ticket | None:
        """The head of the durable queue comes first, whoever put it there; then those that need no queue."""
        for queued in self.log.state.queue.values():
            ticket = self._tickets.pop(queued.run_id, None)
            return ticket if ticket is not None else self._adopt(queued)
        return self._entering

    def _adopt(self, queued: Queued) -> Ticket:
        limits = queued.limits
        config = RunConfig(
            max_llm_calls=limits.llm_calls, max_tokens=limits.tokens, max_cost=limits.cost, max_seconds=limits.seconds,
            deadline=limits.deadline, on_limit=limits.on_limit,
        )  # fmt: skip
        admitted = asyncio.get_running_loop().create_future()
        return Ticket(queued.run_id, queued.input, config, admitted)

    async def _carry_out(self, lease: Lease, ticket: Ticket) -> list[str]:
        try:
            run_id = await self._run(lease, ticket)
        except StaleLeaseError:
            raise
        except Exception as error:
            self._refuse(ticket, error)
            self._reap = self._reap or self.log.state.current is not None
            if ticket.run_id in self.log.state.queue:
                raise  # it waits on, for the next one who looks here; to try again at once would spin
            return []
        await self._tell_end(self.log.state.run(run_id))
        return [run_id]

    async def _run(self, lease: Lease, ticket: Ticket) -> str:
        await self._await_stragglers(ticket.config.straggler_wait_seconds)
        live = AgentHost(self._services, self.log, lease, ticket.run_id, ticket.config)
        self.live, self._carried = live, ticket
        try:
            has_work = await self._begin(live, ticket)
            self._admit(ticket)
            if has_work:
                await carry(live, self._services.app.agent_at(live.run.agent))
            ticket.cause = live.error
        finally:
            live.finished.set()
            self.live = None
            self._keep_stragglers(live)
        return ticket.run_id

    async def _begin(self, live: AgentHost, ticket: Ticket) -> bool:
        """Record the start; or, where it will not run, the end. Return whether there is work to do."""
        while live.run.ended is None:
            last_seq, waits = self.log.state.last_seq, ticket.run_id in self.log.state.queue
            batch = await self._opening(live, ticket)
            try:
                # A message that waits has taken its key already.
                await live.journal.write_first(batch, expect=last_seq, guard=None if waits else ticket.guard)
                break
            except LogMovedError:
                await self.log.refresh()
        return live.run.ended is None

    async def _opening(self, live: AgentHost, ticket: Ticket) -> list[Record]:
        run = live.run
        if run.cancel is not None:
            return self._never_ran(run, ticket)
        # What was merged into a waiting run is its input too.
        content = Content(run.input.parts) if run.input.parts else ticket.content
        try:
            if self._services.app.hooks.at("on_user_message"):
                content = await live.unless_stopped(self._heard(run.run_id, content))
        except RunCancelled:
            if run.cancel is None:
                raise RunnerClosedError from None
            return self._never_ran(run, ticket)
        except Exception as error:
            if run.status != "queued":
                raise  # its sender is told
            live.error = error
            ending = Ending("failed", error=ErrorInfo(type(error).__name__, str(error)))
            return close_run(run, ending, stamp=self._services.stamp)
        return self._started(ticket, content)

    async def _heard(self, run_id: str, content: Content) -> Content:
        carried_run.set(run_id)
        for callback in self._services.app.hooks.at("on_user_message"):
            content = await call_back(callback, self.key, content) or content
        return content

    def _started(self, ticket: Ticket, content: Content) -> list[Record]:
        record_id, time = self._services.stamp()
        app = self._services.app
        active = self.log.state.active_agent
        agent = app.agent_at(active) if active else app.root_agent
        started = RunStarted(
            id=record_id, time=time, run_id=ticket.run_id, input=content, trigger=ticket.trigger, agent=agent.path,
            tree_hash=app.tree_hash, limits=ticket.config.limits,
        )  # fmt: skip
        delta = {key: value for key, value in ticket.state_delta.items() if not key.startswith("temp:")}
        if not delta:
            return [started]
        record_id, time = self._services.stamp()
        return [started, StateChanged(id=record_id, time=time, run_id=ticket.run_id, delta=delta, author="user")]

    def _never_ran(self, run: RunState, ticket: Ticket) -> list[Record]:
        """A run that was stopped while it waited. Unless its sender took it back, its text still counts (F29)."""
        stop = run.cancel
        assert stop is not None
        ending = Ending("cancelled", stop.cause, stop.by, stop.reason)
        heard = (
            self._started(ticket, run.input if run.input.parts else ticket.content)
            if stop.cause in ("superseded", "shutdown")
            else []
        )
        return [*heard, *close_run(run, ending, stamp=self._services.stamp)]

    # --- leftovers ------------------------------------------------------------------------------------------------

    async def _close_leftovers(self, lease: Lease) -> list[str]:
        """Close the run that a dead holder left open, and call the end hooks that it did not come to (P7)."""
        settled: list[str] = []
        run = self.log.state.current_run
        if run is not None:
            await self._seal(lease, run)
        for unfinished in await self._services.store.unfinished(self.key):
            if unfinished.ended:
                ended = self.log.state.run(unfinished.run_id)
                is_first = unfinished.run_id in self._withdrawn or (run is not None and run.run_id == unfinished.run_id)
                await self._tell_end(ended, redelivered=not is_first)
                self._withdrawn.discard(unfinished.run_id)
                settled.append(unfinished.run_id)
        self._reap = False
        return settled

    async def _seal(self, lease: Lease, run: RunState) -> None:
        drafts = await self._services.store.drafts(self.key, run.run_id)
        logger.warning("session %s: closing run %s, whose process died", self.key, run.run_id)
        while True:
            stop = run.cancel
            if stop is not None:
                ending = Ending("cancelled", stop.cause, stop.by, stop.reason)
            else:
                error = ErrorInfo("ProcessDied", "the process that carried the run died", retryable=True)
                ending = Ending("failed", "crash", error=error)
            records = close_run(run, ending, stamp=self._services.stamp, drafts=drafts)
            try:
                await self.log.append(records, token=lease.token, expect=self.log.state.last_seq)
                return
            except LogMovedError:
                await self.log.refresh()

    async def _tell_end(self, run: RunState, *, redelivered: bool = False) -> None:
        """Call the end hooks: shielded, bounded, their errors logged."""
        ended = run.ended
        callbacks = self._services.app.hooks.at("on_run_end")
        if ended is None or not callbacks:
            return
        end = RunEnd(self.key, run.run_id, ended, report_of(ended), ended.usage, redelivered)
        self._telling_end = True
        try:
            for callback in callbacks:
                await self._services.bounded(call_back(callback, end), f"on_run_end hook of run {run.run_id}")
        finally:
            self._telling_end = False

    # --- stragglers -----------------------------------------------------------------------------------------------

    def _keep_stragglers(self, live: AgentHost) -> None:
        for task in live.stragglers:
            self._stragglers.add(task)
            self._services.background.add(task)
            task.add_done_callback(self._stragglers.discard)
            task.add_done_callback(self._services.background.discard)

    async def _await_stragglers(self, seconds: float) -> None:
        if seconds > 0 and self._stragglers:
            await asyncio.wait(set(self._stragglers), timeout=seconds)


async def _wait(event: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        pass
