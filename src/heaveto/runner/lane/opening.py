"""The start of a run: its first records, or, where it will not run, its only ones."""

from __future__ import annotations

import asyncio

from heaveto.core.close import Ending, close_run
from heaveto.core.failure import info_of
from heaveto.core.reopen import reopen_run
from heaveto.core.rewind import rewind
from heaveto.errors import AgentTreeChangedError, LogMovedError, RunCancelled, RunnerClosedError, SessionWaitingError
from heaveto.events.contents import Content, text_of
from heaveto.events.records import Record, RunStarted, StateChanged, Trigger
from heaveto.runner.application.hooks import ask
from heaveto.runner.lane.ticket import Ticket
from heaveto.runner.run.host import AgentHost
from heaveto.runner.services import logger
from heaveto.runner.session.stops import carried_run


async def reopen(live: AgentHost, trigger: Trigger) -> bool:
    """Record the next attempt of a run: its process died, or its answers have come.

    Return whether there is work to do: no stop came first.
    """
    drafts = await live.services.store.drafts(live.key, live.run_id)
    if trigger == "recovery":
        logger.warning("session %s: run %s goes on, whose process died", live.key, live.run_id)
    live.recovered_output = {draft.call_id: draft for draft in drafts if draft.call_id}
    missing = live.services.app.missing(live.run)
    if missing and live.services.app.on_tree_change == "fail":
        live.error = AgentTreeChangedError(live.run_id, missing)
        return await _fail(live, live.error)
    while live.run.cancel is None and live.run.ended is None:
        tree_hash = live.services.app.tree_hash
        batch = reopen_run(live.run, drafts, stamp=live.stamp, tree_hash=tree_hash, trigger=trigger)
        batch.extend(live.services.app.close_gone(live.run, stamp=live.stamp))
        try:
            await live.journal.write_first(batch, expect=live.log.state.last_seq, guard=None)
            live.is_resuming = True
            return True
        except LogMovedError:
            await live.log.refresh()
    return False


async def _fail(live: AgentHost, error: Exception) -> bool:
    """End a run that cannot go on."""
    while live.run.ended is None:
        batch = close_run(live.run, Ending("failed", error=info_of(error)), stamp=live.stamp)
        try:
            await live.journal.write_first(batch, expect=live.log.state.last_seq, guard=None)
        except LogMovedError:
            await live.log.refresh()
    return False


async def open_run(live: AgentHost, ticket: Ticket) -> bool:
    """Record the start; or, where it will not run, the end. Return whether there is work to do."""
    if ticket.trigger in ("recovery", "answer", "continuation"):
        return await reopen(live, ticket.trigger)
    while live.run.ended is None:
        last_seq, waits = live.log.state.last_seq, ticket.run_id in live.log.state.queue
        batch = await _opening(live, ticket)
        try:
            # A message that waits has taken its key already.
            await live.journal.write_first(batch, expect=last_seq, guard=None if waits else ticket.guard)
            break
        except LogMovedError:
            await live.log.refresh()
    return live.run.ended is None


async def _opening(live: AgentHost, ticket: Ticket) -> list[Record]:
    run = live.run
    if run.cancel is not None:
        return _never_ran(live, ticket)
    # What was merged into a waiting run is its input too.
    content = Content(run.input.parts) if run.input.parts else ticket.content
    try:
        if live.services.app.hooks.at("on_user_message"):
            content = await live.unless_stopped(_heard(live, content))
        declined = _declined(live, ticket, content)
    except RunCancelled:
        if run.cancel is None:
            raise RunnerClosedError from None
        return _never_ran(live, ticket)
    except Exception as error:
        if run.status != "queued":
            raise  # its sender is told
        live.error = error
        ending = Ending("failed", error=info_of(error))
        return close_run(run, ending, stamp=live.services.stamp)
    return [
        *declined,
        *_rolled_back(live, ticket, {record.run_id for record in declined}),
        *_started(live, ticket, content),
    ]


def _rolled_back(live: AgentHost, ticket: Ticket, declined: set[str]) -> list[Record]:
    """Take the runs back that this message interrupted, if it wants that: as if they had not been (`rollback`)."""
    if ticket.config.busy_policy != "rollback":
        return []
    state = live.log.state
    undone = [
        run.started_seq
        for run in state.runs.values()
        if run.ended is not None
        and (run.ended.cause, run.ended.by) == ("superseded", ticket.run_id)
        and run.started_seq
    ]
    if not undone:
        return []
    return rewind(state, min(undone) - 1, stamp=live.stamp, run_id=ticket.run_id, closed=declined)


def _declined(live: AgentHost, ticket: Ticket, content: Content) -> list[Record]:
    """Close the paused runs that a message declines: the text is the reason (`on_text`).

    Raises:
        SessionWaitingError: the message does not want to pass a run that waits.
    """
    paused = [run for run in live.log.state.paused.values() if run.waiting]  # others have their answers, and go on
    if not paused or ticket.trigger != "message" or ticket.config.on_text == "keep":
        return []
    if ticket.config.on_text == "reject":
        raise SessionWaitingError(live.key, tuple(run.run_id for run in paused))
    ending = Ending("cancelled", "superseded", by=ticket.run_id, reason="the user sent another message")
    reason = text_of(content.parts)
    return [record for run in paused for record in close_run(run, ending, stamp=live.stamp, declined=reason)]


async def _heard(live: AgentHost, content: Content) -> Content:
    carried_run.set(live.run_id)
    for callback in live.services.app.hooks.at("on_user_message"):
        try:
            content = await ask("on_user_message", callback, live.key, content) or content
        except BaseException as signal:
            if isinstance(signal, (Exception, KeyboardInterrupt)) or live.stop_asked is not None or _is_cancelled():
                raise
            raise RuntimeError(f"a callback on_user_message ended itself with {type(signal).__name__}") from signal
    return content


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _started(live: AgentHost, ticket: Ticket, content: Content) -> list[Record]:
    record_id, time = live.services.stamp()
    app = live.services.app
    active = ticket.agent or live.log.state.active_agent
    agent = app.agent_at(active) if active else app.root_agent
    started = RunStarted(
        id=record_id, time=time, run_id=ticket.run_id, input=content, trigger=ticket.trigger, agent=agent.path,
        tree_hash=app.tree_hash, limits=ticket.config.limits, settings=ticket.config.settings, parent=ticket.parent,
    )  # fmt: skip
    # What was queued has its delta in the log, that of merged messages included.
    delta = live.run.state_delta or ticket.recorded_delta
    live.set_temp(ticket.state_delta)
    if not delta:
        return [started]
    record_id, time = live.services.stamp()
    return [started, StateChanged(id=record_id, time=time, run_id=ticket.run_id, delta=delta, author="user")]


def _never_ran(live: AgentHost, ticket: Ticket) -> list[Record]:
    """A run that was stopped while it waited. Unless its sender took it back, its text still counts (F29)."""
    run, stop = live.run, live.run.cancel
    assert stop is not None
    ending = Ending("cancelled", stop.cause, stop.by, stop.reason)
    heard = (
        _started(live, ticket, run.input if run.input.parts else ticket.content)
        if stop.cause in ("superseded", "shutdown")
        else []
    )
    return [*heard, *close_run(run, ending, stamp=live.services.stamp)]
