"""A session's inbox in this process: messages that wait, and what becomes of one that arrives while it is busy."""

from __future__ import annotations

from typing import assert_never

from heaveto.agents.llm import LlmAgent
from heaveto.core.fold import RunState
from heaveto.errors import GuardTakenError, LogMovedError, SessionBusyError
from heaveto.events.records import Message, Queued, StopScope
from heaveto.runner.application.config import RunConfig
from heaveto.runner.lane.ticket import Ticket
from heaveto.runner.services import Services
from heaveto.runner.session.log import SessionLog
from heaveto.runner.session.stops import ask_to_stop


class Inbox:
    """Messages that wait for their turn. Their order is durable: they are `Queued` records of the log.

    Attributes:
        entering: the message that starts at once, until it is durable. Nobody passes it.
    """

    def __init__(self, services: Services, log: SessionLog) -> None:
        self._services, self._log = services, log
        self.entering: Ticket | None = None
        self._tickets: dict[str, Ticket] = {}
        """Who waits here for which run."""

    def is_taken(self, run_id: str) -> bool:
        """Whether a run of this id runs, waits or has ended. A stop that came before its run takes nothing."""
        state = self._log.state
        run = state.runs.get(run_id)
        if run_id in self._tickets or run_id in state.queue:
            return True
        return run is not None and (run.started_seq > 0 or run.ended is not None)

    def ticket_of(self, run_id: str) -> Ticket | None:
        """Return the ticket of a run that waits here."""
        return self._tickets.get(run_id)

    def admit(self, ticket: Ticket) -> None:
        """Tell who sent a message that it is durable."""
        self._has_entered(ticket)
        ticket.admit()

    def refuse(self, ticket: Ticket, error: BaseException) -> None:
        """Tell who sent a message, or waits for its run, why it is given up here."""
        self._has_entered(ticket)
        ticket.refuse(error)

    def refuse_all(self, error: BaseException) -> bool:
        """Tell all who wait here. Return whether anybody did."""
        waiting = [ticket for ticket in (self.entering, *self._tickets.values()) if ticket is not None]
        for ticket in waiting:
            self.refuse(ticket, error)
        self._tickets.clear()
        return bool(waiting)

    def _has_entered(self, ticket: Ticket) -> None:
        if self.entering is ticket:
            self.entering = None

    async def take_in(self, ticket: Ticket, *, only_tells_end: bool) -> None:
        """Make a message durable as its busy policy says. `only_tells_end`: no run is before it, but an end hook.

        Raises:
            SessionBusyError: the policy is ``reject``; nothing was written.
            GuardTakenError, StoreError
        """
        state = self._log.state
        policy = ticket.config.busy_policy
        match policy:
            case "reject" if not only_tells_end:
                await self._look_for_key(ticket)
                raise SessionBusyError(self._log.key, state.current)
            case "queue" | "reject":
                await self._enqueue(ticket)
            case "interrupt" | "rollback":
                before = [run_id for run_id in (state.current, *state.queue) if run_id is not None]
                await self._enqueue(ticket)
                scope: StopScope = "turn" if policy == "interrupt" else "children"
                for run_id in before:
                    await ask_to_stop(self._services, self._log, run_id, "superseded", by=ticket.run_id, scope=scope)
            case "merge":
                await self._merge(ticket)
            case "steer":
                await self._steer(ticket)
            case _:
                assert_never(policy)

    def next(self) -> Ticket | None:
        """Take the ticket of the head of the queue, whoever put it there; if none waits, of the one that enters."""
        for queued in self._log.state.queue.values():
            ticket = self.forget(queued.run_id)
            return ticket if ticket is not None else _adopt(queued)
        return self.entering

    def forget(self, run_id: str) -> Ticket | None:
        """Take the ticket of a run that waits here no more, if there is one."""
        return self._tickets.pop(run_id, None)

    async def _look_for_key(self, ticket: Ticket) -> None:
        """A repeated start is not refused as busy with the run that it began itself."""
        guard = ticket.guard
        if guard is not None:
            taken = await self._services.store.find_guard(self._log.key, guard.name)
            if taken is not None:
                raise GuardTakenError(self._log.key, guard.name, taken)

    async def _enqueue(self, ticket: Ticket) -> None:
        self._tickets[ticket.run_id] = ticket
        try:
            await self._log.append([self._queued(ticket)], token=None, guard=ticket.guard)
        except BaseException:
            self._tickets.pop(ticket.run_id, None)
            raise

    async def _merge(self, ticket: Ticket) -> None:
        """Add the message to the newest one that waits; if none waits, it waits itself."""
        while True:
            waiting = [run_id for run_id in self._log.state.queue if self._log.state.run(run_id).cancel is None]
            if not waiting:
                await self._enqueue(ticket)
                return
            own, ticket.run_id = ticket.run_id, waiting[-1]  # the queue's entry and the guard name this run
            try:
                await self._log.append(
                    [self._queued(ticket)], token=None, expect=self._log.state.last_seq, guard=ticket.guard
                )
                return
            except LogMovedError:
                ticket.run_id = own
                await self._log.refresh()
            except BaseException:
                ticket.run_id = own
                raise

    async def _steer(self, ticket: Ticket) -> None:
        """Hand the message to the run that is running; if it is past listening, the message waits for its turn."""
        while True:
            run = self._log.state.current_run
            if run is None or run.cancel is not None or not self._listens(run):
                await self._enqueue(ticket)
                return
            record_id, time = self._services.stamp()
            steer = Message(id=record_id, time=time, run_id=run.run_id, author="user", parts=ticket.content.parts)
            own, ticket.run_id = ticket.run_id, run.run_id
            try:
                await self._log.append([steer], token=None, expect=self._log.state.last_seq, guard=ticket.guard)
                return
            except LogMovedError:
                ticket.run_id = own
                await self._log.refresh()
            except BaseException:
                ticket.run_id = own
                raise

    def _listens(self, run: RunState) -> bool:
        """Whether the run's agent takes texts in while it works: one with a model does, at its next request."""
        return isinstance(self._services.app.agent_at(run.agent), LlmAgent)

    def _queued(self, ticket: Ticket) -> Queued:
        record_id, time = self._services.stamp()
        return Queued(
            id=record_id, time=time, run_id=ticket.run_id, input=ticket.content, owner=self._services.store.owner,
            settings=ticket.config.settings, state_delta=ticket.recorded_delta,
            trigger=ticket.trigger, agent=ticket.agent, parent=ticket.parent,
        )  # fmt: skip


def _adopt(queued: Queued) -> Ticket:
    """Make a ticket for a message that another process put into the inbox."""
    return Ticket(
        queued.run_id, queued.input, RunConfig.of_settings(queued.settings), trigger=queued.trigger, agent=queued.agent,
        parent=queued.parent,
    )  # fmt: skip
