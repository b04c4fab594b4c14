"""Whether a session's log keeps what the runtime promises, judged from outside: by the log, by what readers saw, by
what tools did and by what end hooks were told. Use it at the end of any test; it assumes nothing of how it came about.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from heaveto.events.contents import FunctionCall, calls_of
from heaveto.events.records import (
    Answered,
    CallProgress,
    CallSettled,
    CallStarted,
    CallStatus,
    CancelRequested,
    Delta,
    Message,
    Paused,
    Queued,
    Record,
    RunEnded,
    RunStarted,
    StateChanged,
    Usage,
)


def check_promises(
    records: Sequence[Record],
    *,
    seen: Iterable[Record | Delta] = (),
    executions: Mapping[str, int] | None = None,
    told: Iterable[str] | None = None,
    open_runs: int = 0,
) -> None:
    """Raise AssertionError, with all that is wrong, unless the log keeps P2 to P7.

    Args:
        records: the whole log of a session.
        seen: what readers were given.
        executions: how often tools began their work, by call id; None where nobody counted.
        told: the run ids that end hooks were told, once for each time; None where nobody listened.
        open_runs: how many runs may be started and not ended, besides those that wait for answers.
    """
    problems: list[str] = [
        *_numbering(records),
        *_runs(records, open_runs),
        *_calls(records, executions),
        *_answers(records),
        *_readers(records, seen),
        *_usage(records),
        *_hooks(records, told),
    ]
    assert not problems, "\n".join([*problems, "the log:", *(f"  {_line(record)}" for record in records)])


def _line(record: Record) -> str:
    text = f"{record.seq} {type(record).__name__} run={record.run_id[-6:]}"
    match record:
        case Message():
            return f"{text} {record.author} interrupted={record.interrupted} {record.parts}"
        case CallSettled():
            return f"{text} {record.name} {record.call_id[-6:]} {record.status} cause={record.cause} late={record.late}"
        case RunEnded():
            return f"{text} {record.outcome} {record.cause} {record.error}"
        case CallStarted():
            return f"{text} {record.name} {record.call_id[-6:]} attempt={record.attempt} replay={record.replay}"
        case RunStarted():
            return f"{text} attempt={record.attempt} trigger={record.trigger}"
        case _:
            return text


def _numbering(records: Sequence[Record]) -> Iterator[str]:
    if [record.seq for record in records] != list(range(1, len(records) + 1)):
        yield "the seqs have gaps"
    for record_id, count in Counter(record.id for record in records).items():
        if count > 1:
            yield f"record id {record_id} is there {count} times"


def _runs(records: Sequence[Record], open_runs: int) -> Iterator[str]:
    """One at a time, in attempts that count up, one ending each, and nothing behind it but what comes late."""
    current: str | None = None
    ended: dict[str, int] = {}
    stopped: set[str] = set()
    paused: set[str] = set()
    attempts: dict[str, int] = {}
    late = _LateRecords()
    for record in records:
        if record.run_id in ended and not late.allows(record):
            yield f"{type(record).__name__} {record.seq} stands behind the ending of its run, {ended[record.run_id]}"
        late.take(record)
        if isinstance(record, RunStarted):
            if current not in (None, record.run_id):
                yield f"run {record.run_id} started at {record.seq} while run {current} was open"
            if record.attempt != attempts.get(record.run_id, 0) + 1:
                yield f"run {record.run_id} began attempt {record.attempt} after {attempts.get(record.run_id, 0)}"
            if record.attempt > 1 and record.run_id in stopped:
                yield f"run {record.run_id} was continued at {record.seq}, and had been asked to stop"
            current, attempts[record.run_id] = record.run_id, record.attempt
            paused.discard(record.run_id)
        elif isinstance(record, Paused) and not record.held:
            paused.add(record.run_id)
            current = None if current == record.run_id else current
        elif isinstance(record, CancelRequested) and not record.call_id:
            stopped.add(record.run_id)
        elif isinstance(record, RunEnded):
            ended.setdefault(record.run_id, record.seq)
            current = None if current == record.run_id else current
    unended = set(attempts) - set(ended) - paused
    if len(unended) > open_runs:
        yield f"runs without an ending: {sorted(unended)}"


class _LateRecords:
    """What may follow the ending of a run: what becomes of calls that work on, what they and people say to that, and
    how much of its last text was delivered."""

    def __init__(self) -> None:
        self._status: dict[str, CallStatus] = {}
        self._last: Record | None = None

    def take(self, record: Record) -> None:
        if isinstance(record, CallSettled):
            self._status[record.call_id] = record.status
        self._last = record

    def allows(self, record: Record) -> bool:
        match record:
            case CallSettled():
                return record.late
            case StateChanged():  # what the call has set comes in the same append as its result
                last = self._last
                is_late = isinstance(last, StateChanged) or (isinstance(last, CallSettled) and last.late)
                return is_late and last is not None and last.run_id == record.run_id
            case CallProgress() | Answered():
                return self._status.get(record.call_id) == "detached"
            case Paused():
                return record.held and all(self._status.get(call.call_id) == "detached" for call in record.waiting)
            case CancelRequested() if record.delivered is not None:
                return True
            case CancelRequested():
                return self._status.get(record.call_id) in ("detached", "unknown")
            case _:
                return False


@dataclass(slots=True)
class _Call:
    """What the log says of one call."""

    call: FunctionCall
    run_id: str
    starts: list[CallStarted] = field(default_factory=list[CallStarted])
    settlements: list[CallSettled] = field(default_factory=list[CallSettled])
    approvals: list[int] = field(default_factory=list[int])
    """The seqs of the answers that let it be executed, once more where it had asked for that itself."""
    has_asked: bool = False
    """It was executed in order to ask whether it may be."""

    def __str__(self) -> str:
        return f"call {self.call.name} {self.call.call_id[-6:]}"


def _calls(records: Sequence[Record], executions: Mapping[str, int] | None) -> Iterator[str]:
    calls: dict[str, _Call] = {}
    for record in records:
        if isinstance(record, Message) and record.author != "user":
            for call in calls_of(record.parts):
                if call.call_id in calls:
                    yield f"call {call.call_id} was proposed twice"
                calls[call.call_id] = _Call(call, record.run_id)
        elif isinstance(record, CallStarted) and record.call_id in calls:
            calls[record.call_id].starts.append(record)
        elif isinstance(record, CallSettled) and record.call_id in calls:
            calls[record.call_id].settlements.append(record)
        elif isinstance(record, Answered) and record.call_id in calls and record.decision == "approve":
            calls[record.call_id].approvals.append(record.seq)
        elif isinstance(record, Paused):
            for waiting in record.waiting:
                if waiting.kind == "confirmation" and waiting.call_id in calls and calls[waiting.call_id].starts:
                    calls[waiting.call_id].has_asked = True
    ended = {record.run_id for record in records if isinstance(record, RunEnded)}
    for call_id, known in calls.items():
        times = None if executions is None else executions.get(call_id, 0)
        yield from _attempts(known, times)
        if known.run_id in ended:
            yield from _settlements(known, times)
    for call_id in executions or {}:
        if call_id not in calls:
            yield f"call {call_id} was executed, and no message of the log makes it"


def _attempts(call: _Call, executions: int | None) -> Iterator[str]:
    """Each execution has a durable start, and there is another one only where the start before it allowed that."""
    if [start.attempt for start in call.starts] != list(range(1, len(call.starts) + 1)):
        yield f"{call} has the attempts {[start.attempt for start in call.starts]}"
    if len({start.idempotency_key for start in call.starts}) > 1:
        yield f"{call} has several idempotency keys: {[start.idempotency_key for start in call.starts]}"
    for start, again in pairwise(call.starts):
        if start.replay == "never" and not any(start.seq < seq < again.seq for seq in call.approvals):
            yield f"{call} was started again after attempt {start.attempt}, and must never be"
    over = next((settled.seq for settled in call.settlements if settled.status != "detached"), None)
    for start in call.starts:
        if over is not None and start.seq > over:
            yield f"{call} was started at {start.seq}, and was settled at {over}"
    if executions is not None and executions > len(call.starts):
        yield f"{call} was executed {executions} times, with {len(call.starts)} durable starts"


def _settlements(call: _Call, executions: int | None) -> Iterator[str]:
    """One settlement, which is true of what was done; then its real outcome, where the first one was not that."""
    if not call.settlements or call.settlements[0].late:
        yield f"{call} was not settled with its run"
        return
    for previous, settled in pairwise(call.settlements):
        is_outcome = settled.late or previous.status == "detached"
        if not (is_outcome and previous.status in ("unknown", "detached")):
            yield f"{call} was settled again: {settled.status} at {settled.seq}, after {previous.status}"
    first = call.settlements[0]
    # The process that recorded a start may know that it never came to it; who finds a dead process's start may not.
    if first.status == "not_started" and (len(call.starts) > 1 or (call.starts and first.cause == "crash")):
        yield f"{call} was started and is said not to be"
    if first.status in ("cancelled", "unknown", "detached") and not call.starts:
        yield f"{call} was never started and is said to be {first.status}"
    if executions and first.status in ("not_started", "denied") and not call.has_asked:
        yield f"{call} was executed and is said to be {first.status}"


def _answers(records: Sequence[Record]) -> Iterator[str]:
    """One answer for each question; what wants a yes is not executed before one; what got a no never is (P8)."""
    asked: dict[str, str] = {}
    decided: dict[str, str] = {}
    for record in records:
        match record:
            case Paused():
                if record.held and not record.waiting:  # a whole run may pause for nothing but the next process
                    yield f"record {record.seq} says that calls of run {record.run_id} wait, and names none"
                for waiting in record.waiting:
                    asked.setdefault(waiting.call_id, waiting.kind)
            case Answered():
                if asked.pop(record.call_id, None) is None:
                    yield f"call {record.call_id[-6:]} was answered at {record.seq}, and asked nothing any more"
                decided[record.call_id] = record.decision
            case CallStarted() if asked.get(record.call_id) == "confirmation":
                yield f"call {record.call_id[-6:]} was started at {record.seq}, and nobody had said yes"
            case CallStarted() if decided.get(record.call_id) == "deny" and record.attempt == 1:
                yield f"call {record.call_id[-6:]} was started at {record.seq}, and had been denied"
            case RunStarted(trigger="answer") if record.attempt == 1:
                yield f"run {record.run_id} began at {record.seq} with an answer"
            case _:
                pass


def _readers(records: Sequence[Record], seen: Iterable[Record | Delta]) -> Iterator[str]:
    by_id = {record.id: record for record in records}
    final: set[str] = set()
    last: dict[str, int] = {}
    for item in seen:
        if isinstance(item, Delta):
            if item.message_id in final:
                yield f"a reader got a piece of message {item.message_id} behind the message"
            continue
        final.add(item.id)
        if by_id.get(item.id) != item:
            yield f"a reader saw {type(item).__name__} {item.seq}, which the log does not hold like that"
        if item.seq <= last.get(item.run_id, 0):
            yield f"a reader saw seq {item.seq} behind {last[item.run_id]}"
        last[item.run_id] = item.seq


def _usage(records: Sequence[Record]) -> Iterator[str]:
    spent: dict[str, Usage] = {}
    for record in records:
        if isinstance(record, Message) and record.usage is not None:
            spent[record.run_id] = spent.get(record.run_id, Usage()) + record.usage
    for record in records:
        if isinstance(record, RunEnded):
            usage = spent.get(record.run_id, Usage())
            if record.usage.total_tokens < usage.total_tokens:
                yield f"run {record.run_id} cost {usage}, and its ending says {record.usage}"


def _hooks(records: Sequence[Record], told: Iterable[str] | None) -> Iterator[str]:
    if told is None:
        return
    counts = Counter(told)
    for record in records:
        if isinstance(record, RunEnded) and counts[record.run_id] != 1:
            yield f"the end hook of run {record.run_id} was called {counts[record.run_id]} times"


def lost_messages(records: Sequence[Record], texts: Iterable[str]) -> list[str]:
    """Return the texts that stand in no input and no user message of the log."""
    kept = " ".join(
        "".join(getattr(part, "text", "") for part in parts) for record in records for parts in _said_by_user(record)
    )
    return [text for text in texts if text not in kept]


def _said_by_user(record: Record) -> Iterator[tuple[object, ...]]:
    if isinstance(record, (RunStarted, Queued)):
        yield record.input.parts
    elif isinstance(record, Message) and record.author == "user":
        yield record.parts
