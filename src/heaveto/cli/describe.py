"""Records in words: one line each, for people. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import assert_never

from heaveto.events.contents import Content, FunctionCall, Json, Part, Text, Thought
from heaveto.events.records import (
    AgentCheckpoint,
    Answered,
    CallProgress,
    CallSettled,
    CallStarted,
    CancelRequested,
    Compacted,
    Message,
    Operation,
    Paused,
    PauseRequested,
    Queued,
    Record,
    Rewound,
    RunEnded,
    RunStarted,
    StateChanged,
    StopReport,
    Transferred,
)

_STATES = ("stopped", "still_running", "not_started", "finished", "unknown")
_RUN_ID_LENGTH = 36


def summary_of(record: Record) -> str:  # noqa: PLR0911 - one for each kind of record
    """Return what a record says, in one line."""
    match record:
        case Queued():
            return f"waits for its turn: {quoted(record.input)}"
        case CancelRequested():
            return _words(f"stop asked for: {record.cause}", _by(record.by), record.reason)
        case PauseRequested():
            return _words(f"pause asked for: {record.at}", _by(record.by), record.reason)
        case RunStarted():
            again = f", attempt {record.attempt}" if record.attempt > 1 else ""
            return f"{record.trigger}{again}: {quoted(record.input)}"
        case Message():
            cut = f" [cut off: {record.interrupted}]" if record.interrupted else ""
            return f"{record.author}{cut}: {parts_in_words(record.parts)}"
        case CallStarted() | CallSettled() | CallProgress():
            return _call_summary(record)
        case Paused():
            asked = ", ".join(f"{call.name or call.kind} ({call.call_id})" for call in record.waiting)
            return f"asks, and goes on: {asked}" if record.held else f"waits for {asked}"
        case Answered():
            edited = "" if record.args is None else f", with {compact_json(record.args)}"
            late = ", the default: nobody answered in time" if record.expired else ""
            return _words(f"{record.call_id}: {record.decision}{edited}{late}", _by(record.by))
        case StateChanged():
            return ", ".join(f"{key}={compact_json(value)}" for key, value in record.delta.items())
        case AgentCheckpoint():
            return f"{record.agent}: " + ("done" if record.end_of_agent else compact_json(record.agent_state))
        case Transferred():
            return f"{record.author} -> {record.agent}"
        case Compacted():
            return f"up to {record.upto}: {quoted(record.summary)}"
        case Rewound():
            return f"back to {record.to}"
        case RunEnded():
            return _end_summary(record)
        case _:
            assert_never(record)


def _call_summary(record: CallStarted | CallSettled | CallProgress) -> str:
    match record:
        case CallStarted():
            again = f", attempt {record.attempt}" if record.attempt > 1 else ""
            return f"{record.name} {record.call_id}{again}"
        case CallSettled():
            late = "late: " if record.late else ""
            cause = f" ({record.cause})" if record.cause else ""
            result = "" if record.response is None else f" {compact_json(record.response)}"
            return f"{record.name} {record.call_id} {late}{record.status}{cause}{result}"
        case CallProgress():
            return f"{record.call_id}: {compact_json(record.value)}"
        case _:
            assert_never(record)


def _end_summary(record: RunEnded) -> str:
    why = f" ({record.cause})" if record.cause else ""
    error = f": {record.error.type}: {record.error.message}" if record.error else ""
    work = operations_in_words(record.report.operations) if record.report else ""
    return _words(f"{record.outcome}{why}{error}", _by(record.by), work)


def report_in_words(report: StopReport) -> str:
    """Return a stop report in one line: what became of each piece of work, and what is kept."""
    kept = f"{report.text_kept} characters of the answer kept" if report.text_kept else ""
    return _words(operations_in_words(report.operations) or "nothing was running", kept)


def operations_in_words(operations: Sequence[Operation]) -> str:
    """Return operations grouped by what became of them."""
    groups = {state: [work.name for work in operations if work.state == state] for state in _STATES}
    return "; ".join(f"{state.replace('_', ' ')}: {', '.join(names)}" for state, names in groups.items() if names)


def parts_in_words(parts: Sequence[Part]) -> str:
    """Return a message's parts in one line: its text, then what it calls."""
    said = [part.text for part in parts if isinstance(part, Text)]
    thought = ["(thinks)" for part in parts if isinstance(part, Thought)]
    calls = [f"{part.name}({_args(part)})" for part in parts if isinstance(part, FunctionCall)]
    others = [type(part).__name__ for part in parts if not isinstance(part, Text | Thought | FunctionCall)]
    return one_line(" ".join([*thought[:1], *said, *calls, *others]))


def quoted(content: Content) -> str:
    """Return a content in one line."""
    return parts_in_words(content.parts)


def compact_json(value: Json) -> str:
    """Return a JSON value in one line, without what JSON only needs for machines."""
    return one_line(json.dumps(value, ensure_ascii=False, separators=(", ", ": ")))


def one_line(text: str) -> str:
    """Return the text with all white space, and what a terminal would obey, made into single blanks."""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


def shortened(text: str, width: int) -> str:
    """Return the text, cut to a width, with a mark where it is cut."""
    return text if len(text) <= width else text[: max(0, width - 1)].rstrip() + "…"


def counted(number: int, noun: str) -> str:
    """Return how many there are of something, such as ``2 records``; the noun takes an s."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _args(call: FunctionCall) -> str:
    return ", ".join(f"{name}={compact_json(value)}" for name, value in call.args.items())


def _by(who: str) -> str:
    if not who:
        return ""
    return f"by run …{who[-4:]}" if len(who) == _RUN_ID_LENGTH else f"by {who}"


def _words(*parts: str) -> str:
    return ", ".join(part for part in parts if part)
