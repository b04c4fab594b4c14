"""Runs that work for a call of another run, in sessions of their own: agents that work as tools in the background."""

from __future__ import annotations

from contextlib import suppress

from heaveto.agents.base import BaseAgent
from heaveto.core.findings import Findings
from heaveto.core.fold import SessionState
from heaveto.core.notes import partial_findings
from heaveto.errors import SessionErasedError, UnknownRunError, UnknownSessionError
from heaveto.events.contents import Content, Json
from heaveto.events.records import CallSettled, CallStatus, Cause, ParentCall, RunEnded, SessionKey
from heaveto.runner.application.config import RunConfig
from heaveto.runner.handle import Run, answer_of
from heaveto.runner.lane.ticket import Ticket
from heaveto.runner.lanes import Lanes
from heaveto.runner.runs import begin_run, stop_run
from heaveto.runner.services import Services
from heaveto.runner.session.late import record_late


class ChildRuns:
    """Implements `heaveto.runner.services.Children` on a runner's lanes."""

    def __init__(self, lanes: Lanes) -> None:
        self._lanes = lanes

    async def start(self, parent: ParentCall, agent: BaseAgent, task: str, config: RunConfig) -> Run:
        key = SessionKey(parent.key.app, parent.key.user, f"{parent.key.session}~{parent.call_id}")
        ticket = Ticket(
            f"{parent.run_id}~{parent.call_id}", Content.of(task), config, idempotency_key=parent.call_id,
            agent=agent.path, parent=parent,
        )  # fmt: skip
        return await begin_run(self._lanes, key, ticket)

    async def deliver(self, state: SessionState, run_id: str) -> None:
        services, run = self._lanes.services, state.run(run_id)
        parent, ended = run.parent, run.ended
        if parent is None or ended is None:
            return
        lane = self._lanes.at(parent.key)
        with suppress(SessionErasedError, UnknownSessionError):
            if lane.live is None:
                await lane.log.refresh()
            if await record_late(services, lane.log, _outcome(services, parent, ended, state)):
                lane.kick()

    async def stop(self, run_id: str, cause: Cause, by: str) -> None:
        key = await self._lanes.services.store.find_run(run_id)
        with suppress(SessionErasedError, UnknownRunError):
            if key is not None:
                await stop_run(self._lanes, run_id, key, cause, by, "")


def _outcome(services: Services, parent: ParentCall, ended: RunEnded, state: SessionState) -> CallSettled:
    """Return a run's ending as the late outcome of its call: failed and stopped stay apart (F154), and what it had
    found is told as partial (F157)."""
    statuses: dict[str, CallStatus] = {"completed": "succeeded", "failed": "failed", "cancelled": "cancelled"}
    response: dict[str, Json] = {}
    if ended.outcome == "completed":
        response["result"] = answer_of(state, ended.run_id)
    elif found := _findings(state, ended.run_id):
        response.update(partial_findings(found))
    if ended.error is not None:
        response["error"] = f"{ended.error.type}: {ended.error.message}"
    record_id, time = services.stamp()
    return CallSettled(
        id=record_id, time=time, run_id=parent.run_id, call_id=parent.call_id, name=parent.name,
        status=statuses[ended.outcome], response=response or None, cause=ended.cause, late=True,
    )  # fmt: skip


def _findings(state: SessionState, run_id: str) -> tuple[str, ...]:
    findings = Findings()
    for record in state.records[max(0, state.run(run_id).started_seq - 1) :]:
        if record.run_id == run_id:
            findings.take(record)
    return findings.lines
