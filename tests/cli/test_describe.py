"""Records in one line each."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from heaveto.cli.describe import report_in_words, shortened, summary_of
from heaveto.events.contents import Content, FunctionCall, Text
from heaveto.events.records import (
    AgentCheckpoint,
    Answered,
    CallProgress,
    CallSettled,
    CallStarted,
    CancelRequested,
    Compacted,
    ErrorInfo,
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
    WaitingCall,
)

ID: dict[str, Any] = {"id": "1", "time": 0.0}
REPORT = StopReport(
    "r", "cancelled", "user",
    operations=(Operation("tool", "letter", "still_running"), Operation("model", "m", "stopped")), text_kept=12,
)  # fmt: skip
LINES: list[tuple[Record, str]] = [
    (Queued(**ID, input=Content.of("hi")), "waits for its turn: hi"),
    (CancelRequested(**ID, cause="user", by="al", reason="enough"), "stop asked for: user, by al, enough"),
    (PauseRequested(**ID, by="al", reason="lunch"), "pause asked for: after_tool, by al, lunch"),
    (RunStarted(**ID, input=Content.of("hi"), attempt=2), "message, attempt 2: hi"),
    (
        Message(**ID, author="a", parts=(Text(text="so\nso"), FunctionCall(call_id="c", name="f", args={"x": 1}))),
        "a: so so f(x=1)",
    ),
    (Message(**ID, author="a", parts=(Text(text="so"),), interrupted="crash"), "a [cut off: crash]: so"),
    (CallStarted(**ID, call_id="c", name="f"), "f c"),
    (CallSettled(**ID, call_id="c", name="f", status="unknown", cause="user"), "f c unknown (user)"),
    (
        CallSettled(**ID, call_id="c", name="f", status="succeeded", response={"x": 1}, late=True),
        'f c late: succeeded {"x": 1}',
    ),
    (CallProgress(**ID, call_id="c", value=0.5), "c: 0.5"),
    (Paused(**ID, waiting=(WaitingCall("c", "confirmation", "pay"),)), "waits for pay (c)"),
    (Paused(**ID, waiting=(WaitingCall("c", "confirmation", "pay"),), held=True), "asks, and goes on: pay (c)"),
    (Answered(**ID, call_id="c", decision="approve", args={"n": 2}, by="bo"), 'c: approve, with {"n": 2}, by bo'),
    (Answered(**ID, call_id="c", decision="deny", expired=True), "c: deny, the default: nobody answered in time"),
    (Answered(**ID, call_id="c", decision="approve", by="al"), "c: approve, by al"),
    (StateChanged(**ID, delta={"x": [1]}), "x=[1]"),
    (AgentCheckpoint(**ID, agent="a", end_of_agent=True), "a: done"),
    (Transferred(**ID, agent="root/b", author="a"), "a -> root/b"),
    (Compacted(**ID, upto=9, summary=Content.of("they met")), "up to 9: they met"),
    (Rewound(**ID, to=3), "back to 3"),
    (RunEnded(**ID, outcome="completed"), "completed"),
    (RunEnded(**ID, outcome="failed", error=ErrorInfo("KeyError", "'x'")), "failed: KeyError: 'x'"),
    (
        RunEnded(**ID, outcome="cancelled", cause="user", by="al", report=REPORT),
        "cancelled (user), by al, stopped: m; still running: letter",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("record", "line"), LINES, ids=lambda value: type(value).__name__)
def test_a_record_is_told_in_one_line(record: Record, line: str) -> None:
    """Each kind of record says what it is about."""
    assert summary_of(record) == line


def test_no_kind_of_record_is_left_out() -> None:
    """The table above holds every variant of the union."""
    assert {type(record) for record, _ in LINES} == set(get_args(Record))


def test_text_from_outside_cannot_command_the_terminal() -> None:
    """Escape sequences that a model or a user sends are not passed on."""
    record = RunStarted(**ID, input=Content.of("\x1b[2Jhello\x07\r\n\x9b31mred"))
    assert summary_of(record).isprintable()


def test_a_stop_report_names_each_piece_of_work() -> None:
    """Grouped by what became of it, with the text that is kept."""
    assert report_in_words(REPORT) == "stopped: m; still running: letter, 12 characters of the answer kept"
    assert report_in_words(StopReport("r", "cancelled")) == "nothing was running"


def test_what_is_too_long_is_cut_visibly() -> None:
    """A cut line is as long as allowed, and shows that it was cut."""
    assert (shortened("abc", 3), shortened("abcd", 3)) == ("abc", "ab…")
