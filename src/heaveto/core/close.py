"""How a run is closed: one atomic batch that leaves nothing open, whatever the run was in the middle of (P7).

The same decision serves a stop, a failure, and the sealing of what a dead process left.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from msgspec.structs import replace

from heaveto.core.fold import CallState, RunState
from heaveto.events.contents import Json, Part, Text, Thought, calls_of, text_of
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
)

OperationState: TypeAlias = Literal["stopped", "finished", "still_running", "not_started", "unknown"]
Work: TypeAlias = Literal["stopped", "still_running", "not_started"]
"""What became of a started call that has not settled: its code ended because of the stop, goes on, or never began.

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
    declined: str | None = None,
) -> list[Record]:
    """Return the records that end a run: cut-off messages, a settlement for every open call, the one `RunEnded`.

    Args:
        run: the run as its log tells it.
        ending: how and why it ends.
        stamp: gives ids and times.
        drafts: what was received of messages that are not in the log, and what running calls have put out.
        work: what is known of started calls that have no outcome; a missing one is unknown.
        pending: records that go into the same batch before these and are not in `run` yet.
        declined: what was said instead of an answer: calls that wait for one are settled as denied, for this reason.
    """
    said = [record for record in pending if isinstance(record, Message)]
    settled = {record.call_id: record for record in pending if isinstance(record, CallSettled)}
    put_out = {draft.call_id: text_of(draft.parts) for draft in drafts if draft.call_id}
    drafts = [draft for draft in drafts if not draft.call_id]
    cut_off = cut_messages(drafts, _cause(ending) or "error", stamp)
    calls = [*run.calls.values(), *_proposed([*said, *cut_off])]
    operations = [
        Operation(kind="model", name=draft.model or draft.author, state=_model_state(ending)) for draft in drafts
    ]
    records: list[Record] = list(cut_off)
    for call in calls:
        call_id = call.call.call_id
        known, at_work = settled.get(call_id) or call.settled, (work or {}).get(call_id)
        if at_work is None and _only_waits(run, call, ending):
            at_work = "stopped"
        operations.append(_operation(call, known, at_work))
        if known is None or (known.status == "detached" and at_work == "stopped"):
            late = known is not None
            if declined is not None and call.is_waiting and _is_question(call):
                records.append(_decline(call, run.run_id, declined, stamp))
                continue
            records.append(_settle(call, run.run_id, _status(call, at_work), ending, stamp, put_out.get(call_id), late))
    spent = [*(message.usage for message in said), *(draft.usage for draft in drafts)]
    usage = sum((some for some in spent if some is not None), run.usage)
    text_kept = sum(len(text_of(message.parts)) for message in cut_off)
    report = StopReport(run.run_id, ending.outcome, ending.cause, ending.by, tuple(operations), text_kept, usage)
    llm_calls = run.llm_calls + len(drafts) + sum(1 for message in said if message.seen)
    records.append(_run_ended(run.run_id, ending, report, llm_calls, stamp))
    return records


def _proposed(messages: Sequence[Message]) -> list[CallState]:
    """The calls of messages that are not folded yet."""
    return [
        CallState(call, message.run_id, message.author, message.branch, message.seq)
        for message in messages
        for call in calls_of(message.parts)
    ]


def _model_state(ending: Ending) -> OperationState:
    return "unknown" if ending.cause == "crash" else "stopped"


def cut_messages(drafts: Sequence[Draft], cause: Cause, stamp: Stamp) -> list[Message]:
    """Return what was received of messages, but for those of which there is nothing to read (F28, F29)."""
    return [
        Message(
            id=draft.message_id, time=stamp()[1], run_id=draft.run_id, author=draft.author, branch=draft.branch,
            parts=draft.parts, usage=draft.usage, provider=draft.provider, model=draft.model, seen=draft.seen,
            finish_reason="interrupted", interrupted=cause,
        )
        for draft in drafts
        if any(_is_readable(part) for part in draft.parts)
    ]  # fmt: skip


def _is_readable(part: Part) -> bool:
    return bool(part.text.strip()) if isinstance(part, (Text, Thought)) else True


def _cause(ending: Ending) -> Cause | None:
    """Why what was under way was stopped. A run that failed is no crash, and nobody stopped it (F34)."""
    return ending.cause or ("error" if ending.outcome == "failed" else None)


def _is_question(call: CallState) -> bool:
    """Whether it waits for people, and not for work that goes on elsewhere."""
    return call.phase == "waiting" and call.question is not None and call.question.kind != "long_running"


def _only_waits(run: RunState, call: CallState, ending: Ending) -> bool:
    """Whether nothing works for a started call: it has asked whether it may go on, or an agent within it waits.

    Of a process that died, nobody knows what else the code around that agent was doing.
    """
    if not call.has_started or call.settled is not None:
        return False
    return _is_question(call) or (ending.cause != "crash" and run.waits_in(call.call.call_id))


def _status(call: CallState, at_work: Work | None) -> CallStatus:
    """What is recorded of a call that is still open."""
    if not call.has_started or at_work == "not_started":
        return "not_started"
    return "cancelled" if at_work == "stopped" else "unknown"


def _operation(call: CallState, known: CallSettled | None, at_work: Work | None) -> Operation:
    """What the report says of a call: what its result says, or else what is known of its work."""
    state: OperationState
    if known is not None and at_work is not None and _is_open_still(known, at_work):
        state = at_work
    elif known is not None and (call.has_started or known.status == "succeeded"):
        state = _SETTLED_STATES[known.status]
    elif not call.has_started:
        state = "not_started"  # also where it was refused before it could begin
    else:
        state = at_work or "unknown"
    return Operation(kind="tool", name=call.call.name, state=state, call_id=call.call.call_id)


def _is_open_still(known: CallSettled, at_work: Work) -> bool:
    """Whether what is known of the work of a settled call says more than its settlement."""
    return known.status == "detached" or (known.status == "unknown" and at_work == "still_running")


_SETTLED_STATES: dict[CallStatus, OperationState] = {
    "succeeded": "finished",
    "failed": "finished",
    "cancelled": "stopped",
    "denied": "not_started",
    "not_started": "not_started",
    "unknown": "unknown",
    "detached": "still_running",
}


def _settle(
    call: CallState, run_id: str, status: CallStatus, ending: Ending, stamp: Stamp, put_out: str | None, late: bool
) -> CallSettled:
    record_id, time = stamp()
    return CallSettled(
        id=record_id, time=time, run_id=run_id, call_id=call.call.call_id, name=call.call.name, status=status,
        response=output_response(put_out), cause=_cause(ending), late=late,
    )  # fmt: skip


def _decline(call: CallState, run_id: str, reason: str, stamp: Stamp) -> CallSettled:
    record_id, time = stamp()
    return CallSettled(
        id=record_id, time=time, run_id=run_id, call_id=call.call.call_id, name=call.call.name, status="denied",
        response={"reason": reason} if reason else None,
    )  # fmt: skip


def output_response(put_out: str | None) -> dict[str, Json] | None:
    """Return what a call that has no result had put out, as the response of its settlement."""
    return {"output": put_out} if put_out else None


def _run_ended(run_id: str, ending: Ending, report: StopReport, llm_calls: int, stamp: Stamp) -> RunEnded:
    record_id, time = stamp()
    plain = ending.outcome == "completed" and not report.still_running
    return RunEnded(
        id=record_id, time=time, run_id=run_id, outcome=ending.outcome, cause=ending.cause, by=ending.by,
        reason=ending.reason, error=ending.error, report=None if plain else report, usage=report.usage,
        llm_calls=llm_calls,
    )  # fmt: skip


def report_since(report: StopReport, later: Sequence[Record]) -> StopReport:
    """Return a report with what has become of the work that was still running, as the records behind it tell."""
    late = (record for record in later if isinstance(record, CallSettled) and record.late)
    outcomes: dict[str, CallStatus] = {record.call_id: record.status for record in late}
    operations = tuple(
        replace(operation, state=_SETTLED_STATES[outcomes[operation.call_id]])
        if operation.state == "still_running" and operation.call_id in outcomes
        else operation
        for operation in report.operations
    )
    return replace(report, operations=operations)


def report_of(ended: RunEnded) -> StopReport:
    """Return the stop report of an ended run; that of a completed one lists nothing as stopped."""
    if ended.report is not None:
        return ended.report
    return StopReport(ended.run_id, ended.outcome, ended.cause, ended.by, usage=ended.usage)
