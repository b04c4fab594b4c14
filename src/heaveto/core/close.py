"""How a run is closed: one atomic batch that leaves nothing open, whatever the run was in the middle of (P7).

The same decision serves a stop, a failure, and the sealing of what a dead process left.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, assert_never

from heaveto.core.fold import CallState, RunState
from heaveto.events.contents import Part, Text, Thought, calls_of, text_of
from heaveto.events.records import (
    CallSettled,
    CallStatus,
    Cause,
    Draft,
    ErrorInfo,
    Message,
    Operation,
    OutcomeKind,
    Record,
    RunEnded,
    StopReport,
    Usage,
)

Work: TypeAlias = Literal["stopped", "still_running"]
"""What became of a started call that has not settled: its code ended because of the stop, or it goes on.

A started call about which nobody can say either is unknown: its process died.
"""


@dataclass(frozen=True, slots=True)
class Ending:
    """How and why a run ends."""

    outcome: OutcomeKind
    cause: Cause | None = None
    by: str = ""
    reason: str = ""
    error: ErrorInfo | None = None


Stamp: TypeAlias = Callable[[], tuple[str, float]]
"""Gives the id and the time of the next record."""


def close_run(
    run: RunState,
    ending: Ending,
    *,
    stamp: Stamp,
    drafts: Sequence[Draft] = (),
    work: Mapping[str, Work] | None = None,
    pending: Sequence[Record] = (),
) -> list[Record]:
    """Return the records that end a run: cut-off messages, a settlement for every open call, the one `RunEnded`.

    Args:
        run: the run as its log tells it.
        ending: how and why it ends.
        stamp: gives ids and times.
        drafts: what was received of messages that are not in the log.
        work: what is known of started calls; a missing one is unknown.
        pending: records that go into the same batch before these and are not in `run` yet. They hold no calls.
    """
    records: list[Record] = []
    operations: list[Operation] = []
    usage, text_kept = run.usage, 0
    said = [record for record in pending if isinstance(record, Message)]
    for message in said:
        usage += message.usage or Usage()
    cause = ending.cause or ("crash" if ending.outcome == "failed" else "user")
    for draft in drafts:
        operations.append(Operation(kind="model", name=draft.model or draft.author, state=_model_state(ending)))
        if draft.usage is not None:
            usage += draft.usage
        cut_off = _cut_message(draft, cause, stamp()[1])
        if cut_off is None:
            continue
        records.append(cut_off)
        text_kept += len(text_of(cut_off.parts))
        for cut in calls_of(cut_off.parts):
            records.append(_settle(cut.call_id, cut.name, run.run_id, "not_started", ending, stamp))
            operations.append(Operation(kind="tool", name=cut.name, state="not_started", call_id=cut.call_id))
    for call in run.calls.values():
        state = _operation_state(call, work or {})
        operations.append(Operation(kind="tool", name=call.call.name, state=state, call_id=call.call.call_id))
        if call.settled is None:
            status = _status(call, work or {})
            records.append(_settle(call.call.call_id, call.call.name, run.run_id, status, ending, stamp))
    report = StopReport(run.run_id, ending.outcome, ending.cause, ending.by, tuple(operations), text_kept, usage)
    llm_calls = run.llm_calls + len(drafts) + sum(1 for message in said if message.seen)
    records.append(_run_ended(run.run_id, ending, report, llm_calls, stamp))
    return records


def _model_state(ending: Ending) -> Literal["stopped", "unknown"]:
    return "unknown" if ending.cause == "crash" else "stopped"


def _cut_message(draft: Draft, cause: Cause, time: float) -> Message | None:
    """What was received of a message, or None if there is nothing that anyone could read (F28, F29)."""
    if not any(_is_readable(part) for part in draft.parts):
        return None
    return Message(
        id=draft.message_id, time=time, run_id=draft.run_id, author=draft.author, branch=draft.branch,
        parts=draft.parts, usage=draft.usage, provider=draft.provider, model=draft.model, seen=draft.seen,
        finish_reason="interrupted", interrupted=cause,
    )  # fmt: skip


def _is_readable(part: Part) -> bool:
    if isinstance(part, (Text, Thought)):
        return bool(part.text)
    return True


def _status(call: CallState, work: Mapping[str, Work]) -> CallStatus:
    match call.phase:
        case "proposed":
            return "not_started"
        case "waiting":
            return "not_started" if call.attempt == 0 else "cancelled"
        case "started":
            return "cancelled" if work.get(call.call.call_id) == "stopped" else "unknown"
        case "settled":
            return "unknown"
        case _:
            assert_never(call.phase)


def _operation_state(
    call: CallState, work: Mapping[str, Work]
) -> Literal["stopped", "finished", "still_running", "not_started", "unknown"]:
    if call.settled is not None:
        return _SETTLED_STATES[call.settled.status]
    match call.phase:
        case "proposed":
            return "not_started"
        case "waiting":
            return "not_started" if call.attempt == 0 else "stopped"
        case _:
            return work.get(call.call.call_id, "unknown")


_SETTLED_STATES: dict[CallStatus, Literal["stopped", "finished", "still_running", "not_started", "unknown"]] = {
    "succeeded": "finished",
    "failed": "finished",
    "cancelled": "stopped",
    "denied": "not_started",
    "not_started": "not_started",
    "unknown": "unknown",
}


def _settle(call_id: str, name: str, run_id: str, status: CallStatus, ending: Ending, stamp: Stamp) -> CallSettled:
    record_id, time = stamp()
    return CallSettled(
        id=record_id, time=time, run_id=run_id, call_id=call_id, name=name, status=status, cause=ending.cause
    )


def _run_ended(run_id: str, ending: Ending, report: StopReport, llm_calls: int, stamp: Stamp) -> RunEnded:
    record_id, time = stamp()
    plain = ending.outcome == "completed"
    return RunEnded(
        id=record_id, time=time, run_id=run_id, outcome=ending.outcome, cause=ending.cause, by=ending.by,
        reason=ending.reason, error=ending.error, report=None if plain else report, usage=report.usage,
        llm_calls=llm_calls,
    )  # fmt: skip


def report_of(ended: RunEnded) -> StopReport:
    """Return the stop report of an ended run; that of a completed one lists nothing as stopped."""
    if ended.report is not None:
        return ended.report
    return StopReport(ended.run_id, ended.outcome, ended.cause, ended.by, usage=ended.usage)
