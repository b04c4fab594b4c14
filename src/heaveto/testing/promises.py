"""Whether a session's log keeps what the runtime promises, judged from outside: by the log, by what readers saw, by
what tools did and by what end hooks were told. Use it at the end of any test; it assumes nothing of how it came about.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from heaveto.events.contents import FunctionCall, calls_of
from heaveto.events.records import (
    CallSettled,
    CallStarted,
    Delta,
    Message,
    Queued,
    Record,
    RunEnded,
    RunStarted,
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
        open_runs: how many runs may be started and not ended.
    """
    problems: list[str] = [
        *_numbering(records),
        *_runs(records, open_runs),
        *_calls(records, executions),
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
            return f"{text} {record.name} {record.call_id[-6:]}"
        case _:
            return text


def _numbering(records: Sequence[Record]) -> Iterator[str]:
    if [record.seq for record in records] != list(range(1, len(records) + 1)):
        yield "the seqs have gaps"
    for record_id, count in Counter(record.id for record in records).items():
        if count > 1:
            yield f"record id {record_id} is there {count} times"


def _runs(records: Sequence[Record], open_runs: int) -> Iterator[str]:
    """One at a time, one ending each, and nothing behind it but late results."""
    current: str | None = None
    ended: dict[str, int] = {}
    started: set[str] = set()
    for record in records:
        if record.run_id in ended and not (isinstance(record, CallSettled) and record.late):
            yield f"{type(record).__name__} {record.seq} stands behind the ending of its run, {ended[record.run_id]}"
        if isinstance(record, RunStarted):
            if current is not None:
                yield f"run {record.run_id} started at {record.seq} while run {current} was open"
            if record.run_id in started:
                yield f"run {record.run_id} started twice"
            current = record.run_id
            started.add(record.run_id)
        elif isinstance(record, RunEnded):
            ended.setdefault(record.run_id, record.seq)
            current = None if current == record.run_id else current
    unended = started - set(ended)
    if len(unended) > open_runs:
        yield f"runs without an ending: {sorted(unended)}"


def _calls(records: Sequence[Record], executions: Mapping[str, int] | None) -> Iterator[str]:
    proposed: dict[str, tuple[FunctionCall, str]] = {}
    for record in records:
        if isinstance(record, Message) and record.author != "user":
            for call in calls_of(record.parts):
                if call.call_id in proposed:
                    yield f"call {call.call_id} was proposed twice"
                proposed[call.call_id] = (call, record.run_id)
    ended = {record.run_id for record in records if isinstance(record, RunEnded)}
    for call_id, (call, run_id) in proposed.items():
        if run_id in ended:
            times = None if executions is None else executions.get(call_id, 0)
            yield from _call(f"call {call.name} {call_id[-6:]}", call_id, records, times)
    for call_id in executions or {}:
        if call_id not in proposed:
            yield f"call {call_id} was executed, and no message of the log makes it"


def _call(what: str, call_id: str, records: Sequence[Record], executions: int | None) -> Iterator[str]:
    started = [record for record in records if isinstance(record, CallStarted) and record.call_id == call_id]
    settled = [record for record in records if isinstance(record, CallSettled) and record.call_id == call_id]
    first = [record for record in settled if not record.late]
    if len(first) != 1 or len(settled) > 2:
        yield f"{what} has {len(first)} settlements, and {len(settled) - len(first)} late ones"
        return
    status = first[0].status
    # The process that recorded a start may know that it never came to it; who finds a dead process's start may not.
    if status == "not_started" and started and (executions or first[0].cause == "crash"):
        yield f"{what} was started and is said not to be"
    if status in ("cancelled", "unknown") and not started:
        yield f"{what} was never started and is said to be {status}"
    if executions is None:
        return
    if executions > 1:
        yield f"{what} was executed {executions} times"
    if executions and not started:
        yield f"{what} was executed without a durable start"
    if executions and status in ("not_started", "denied"):
        yield f"{what} was executed and is said to be {status}"


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
