"""Closing a run: one ending, nothing left open, and the truth about each piece of work (P2, P7)."""

from __future__ import annotations

from itertools import product
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.logs import Log, all_text, call, draft, results
from tests.core.strategies import CAUSES, wild_logs

from heaveto.core.close import Ending, Work, close_run, report_of
from heaveto.core.fold import SessionState, fold
from heaveto.events.contents import Content, Part, Text, Thought
from heaveto.events.records import (
    CallSettled,
    Draft,
    ErrorInfo,
    Message,
    Operation,
    Record,
    RunEnded,
    StopReport,
    Usage,
    WaitingCall,
)

Phase = Literal["proposed", "refused", "started", "confirming", "long_running", "finished", "failed", "unknown"]
PHASES: tuple[Phase, ...] = (
    "proposed", "refused", "started", "confirming", "long_running", "finished", "failed", "unknown",
)  # fmt: skip
ENDINGS = [
    *(Ending("cancelled", cause, by="alice", reason="why") for cause in CAUSES),
    Ending("failed", "crash"),
    Ending("failed", error=ErrorInfo("ModelError", "503", retryable=True)),
    Ending("completed"),
]
WORK: tuple[Work | None, ...] = (None, "stopped", "still_running")
DRAFTS: dict[str, tuple[Part, ...] | None] = {
    "none": None,
    "empty": (),
    "blank": (Text(text=" \n"), Thought(text="")),
    "text": (Text(text="The answ"),),
    "thought": (Thought(text="hm"),),
    "call": (Text(text="I look. "), call("cut", "look")),
}

# What a call that is still open is recorded as, and what the report says of it.
SETTLED: dict[tuple[Phase, Work | None], tuple[str, str]] = {
    ("proposed", None): ("not_started", "not_started"),
    ("confirming", None): ("not_started", "not_started"),
    ("started", None): ("unknown", "unknown"),
    ("started", "stopped"): ("cancelled", "stopped"),
    ("started", "still_running"): ("unknown", "still_running"),
    ("long_running", None): ("unknown", "unknown"),
    ("long_running", "stopped"): ("cancelled", "stopped"),
    ("long_running", "still_running"): ("unknown", "still_running"),
}
# What the report says of one that was settled before.
REPORTED: dict[Phase, str] = {
    "refused": "not_started",
    "finished": "finished",
    "failed": "finished",
    "unknown": "unknown",
}


def open_run(phase: Phase) -> Log:
    """A run with one call in this phase, after a model call that is paid for."""
    log = Log()
    log.run("r1", "hi")
    log.say("r1", call("c1", "pay"), usage=Usage(10, 5, cost=0.5))
    if phase in ("started", "long_running", "finished", "failed", "unknown"):
        log.start("r1", "c1")
    if phase in ("confirming", "long_running"):
        log.pause("r1", WaitingCall("c1", "long_running" if phase == "long_running" else "confirmation"))
    match phase:
        case "finished":
            log.settle("r1", "c1", response={"paid": True})
        case "failed" | "refused":
            log.settle("r1", "c1", "failed", response={"error": "no"})
        case "unknown":
            log.settle("r1", "c1", "unknown", cause="crash")
        case _:
            pass
    return log


def drafted(log: Log, kind: str) -> list[Draft]:
    parts = DRAFTS[kind]
    return [] if parts is None else [draft(log, "r1", *parts, usage=Usage(1, 2, estimated=True), model="m")]


@pytest.mark.parametrize("ending", ENDINGS, ids=str)
@pytest.mark.parametrize("kind", DRAFTS)
def test_whatever_a_run_was_in_the_middle_of_it_is_closed(ending: Ending, kind: str) -> None:
    """Every phase of a call, all that may be known of its work, every ending, with every kind of draft."""
    for phase, work in product(PHASES, WORK):
        log = open_run(phase)
        drafts = drafted(log, kind)
        batch = log.close("r1", ending, drafts=drafts, work={"c1": work} if work else {})
        check_one_ending(log, batch, ending)
        check_call(batch, phase, work, ending)
        check_draft(batch, kind, ending)
        check_books(log, batch, drafts)
        assert "succeeded" not in {record.status for record in batch if isinstance(record, CallSettled)}
        log.run("r2", "go on")
        log.told()


def check_one_ending(log: Log, batch: list[Record], ending: Ending) -> None:
    ended = batch[-1]
    assert [record for record in batch if isinstance(record, RunEnded)] == [ended]
    assert isinstance(ended, RunEnded)
    assert (ended.outcome, ended.cause, ended.by, ended.reason, ended.error) == (
        ending.outcome, ending.cause, ending.by, ending.reason, ending.error,
    )  # fmt: skip
    run = log.state.run("r1")
    assert run.is_terminal and run.status == ending.outcome
    assert log.state.current is None
    assert all(held.awaits_late_result for held in log.state.calls.values())
    report = report_of(ended)
    assert (ended.report is None) is (ending.outcome == "completed" and not report.still_running)
    assert (report.run_id, report.outcome, report.cause, report.by) == ("r1", ending.outcome, ending.cause, ending.by)


def check_call(batch: list[Record], phase: Phase, work: Work | None, ending: Ending) -> None:
    settled = [record for record in batch if isinstance(record, CallSettled) and record.call_id == "c1"]
    operation = operation_of(batch, "c1")
    if phase in REPORTED:
        assert settled == []
        if operation is not None:
            goes_on = phase == "unknown" and work == "still_running"
            assert operation.state == ("still_running" if goes_on else REPORTED[phase])
        return
    known = work if (phase, work) in SETTLED else None
    status, state = SETTLED[phase, known]
    cause = ending.cause or ("error" if ending.outcome == "failed" else None)
    assert [(record.status, record.cause, record.late) for record in settled] == [(status, cause, False)]
    if operation is not None:
        assert (operation.name, operation.state) == ("pay", state)


def operation_of(batch: list[Record], call_id: str) -> Operation | None:
    """The report's line on a call; the record of a completed run has no report."""
    ended = batch[-1]
    assert isinstance(ended, RunEnded)
    if ended.report is None:
        return None
    (found,) = [operation for operation in ended.report.operations if operation.call_id == call_id]
    return found


def check_draft(batch: list[Record], kind: str, ending: Ending) -> None:
    """Nothing readable, no message (F28, F29); what can be read is kept, marked with the cause (F61)."""
    kept = [record for record in batch if isinstance(record, Message)]
    assert len(kept) == (kind in ("text", "thought", "call"))
    for message in kept:
        cause = ending.cause or "error"
        assert (message.parts, message.interrupted, message.finish_reason) == (DRAFTS[kind], cause, "interrupted")
    cut = [record for record in batch if isinstance(record, CallSettled) and record.call_id == "cut"]
    assert [record.status for record in cut] == (["not_started"] if kind == "call" else [])
    ended = batch[-1]
    assert isinstance(ended, RunEnded)
    if ended.report is not None:
        assert ended.report.text_kept == len({"text": "The answ", "call": "I look. "}.get(kind, ""))
        models = [operation.state for operation in ended.report.operations if operation.kind == "model"]
        state = "unknown" if ending.cause == "crash" else "stopped"
        assert models == ([] if DRAFTS[kind] is None else [state])


def check_books(log: Log, batch: list[Record], drafts: list[Draft]) -> None:
    """What was paid before counts, and what was under way is counted as estimated (F126, F127)."""
    ended = batch[-1]
    assert isinstance(ended, RunEnded)
    extra = Usage(1, 2, estimated=True) if drafts else Usage()
    assert ended.usage == Usage(10, 5, cost=0.5) + extra
    assert report_of(ended).usage == ended.usage
    assert ended.llm_calls == 1 + len(drafts)
    if any(isinstance(record, Message) for record in batch):
        assert (log.state.run("r1").usage, log.state.run("r1").llm_calls) == (ended.usage, ended.llm_calls)


def test_the_report_lists_each_operation_once() -> None:
    """The list that a stopped run owes its user: receipts, work in doubt, work that never began (F163, F168)."""
    log = Log()
    log.run("r1", "hi")
    log.say("r1", *(call(name, name) for name in ("done", "refused", "halted", "stuck", "lost", "next")))
    log.start("r1", "done", "halted", "stuck", "lost")
    log.settle("r1", "done", response={"receipt": 1})
    log.settle("r1", "refused", "failed", response={"error": "no such tool"})
    batch = log.cancel(
        "r1",
        drafts=[draft(log, "r1", "half", model="m")],
        work={"halted": "stopped", "stuck": "still_running"},
    )
    ended = batch[-1]
    assert isinstance(ended, RunEnded) and ended.report is not None
    assert [(operation.kind, operation.name, operation.state) for operation in ended.report.operations] == [
        ("model", "m", "stopped"),
        ("tool", "done", "finished"),
        ("tool", "refused", "not_started"),
        ("tool", "halted", "stopped"),
        ("tool", "stuck", "still_running"),
        ("tool", "lost", "unknown"),
        ("tool", "next", "not_started"),
    ]
    assert [operation.name for operation in ended.report.still_running] == ["stuck"]


def test_what_is_staged_for_the_same_batch_is_counted() -> None:
    """A message and a result on their way into the log: its calls are settled, its result is not doubled (F17)."""
    log = Log()
    log.run("r1", "hi")
    log.say("r1", call("c1"))
    staged: list[Record] = [
        CallSettled(id="s1", time=1, run_id="r1", call_id="c1", status="failed", response={"error": "no"}),
        Message(id="m", time=1, run_id="r1", author="a", parts=(call("c2"),), seen=2, usage=Usage(3, 4)),
    ]
    batch = close_run(log.state.run("r1"), Ending("cancelled", "user"), stamp=log.stamp, pending=staged)
    assert [(r.call_id, r.status) for r in batch if isinstance(r, CallSettled)] == [("c2", "not_started")]
    ended = batch[-1]
    assert isinstance(ended, RunEnded)
    assert (ended.usage, ended.llm_calls) == (Usage(3, 4), 2)
    for record in (*staged, *batch):
        log.put(record)
    assert log.state.calls == {}


def test_two_drafts_of_parallel_agents_are_both_kept() -> None:
    """Each agent's half answer stays in its branch, its cost is counted."""
    log = Log()
    log.run("r1", "hi")
    halves = [
        draft(log, "r1", "left", author="p1", branch="par.p1", usage=Usage(1, 1)),
        draft(log, "r1", "right", author="p2", branch="par.p2", usage=Usage(2, 2)),
    ]
    batch = log.cancel("r1", drafts=halves)
    said = [(r.author, r.branch, r.interrupted) for r in batch if isinstance(r, Message)]
    assert said == [("p1", "par.p1", "user"), ("p2", "par.p2", "user")]
    assert log.state.run("r1").usage == Usage(3, 3)


def test_a_run_that_never_started_is_closed_without_a_trace() -> None:
    """A stop that overtook the start: one ending, an empty report, and the model hears nothing of it (F165)."""
    log = Log()
    log.ask_to_stop("r1")
    batch = log.cancel("r1")
    assert [type(record) for record in batch] == [RunEnded]
    assert report_of(log.records[-1]) == StopReport("r1", "cancelled", "user")  # type: ignore[arg-type]
    log.run("r2", "hi")
    assert all_text(log.told()) == "hi"


def test_a_failed_run_did_not_crash_and_nobody_stopped_it() -> None:
    """The model is told that the run failed, not that its process died or that the user stopped it (F34)."""
    log = open_run("started")
    half = draft(log, "r1", "half")
    log.close("r1", Ending("failed", error=ErrorInfo("ModelError", "503")), drafts=[half])
    log.run("r2", "go on")
    told = log.told()
    assert "the run failed" in all_text(told)
    assert not any(word in all_text(told) + str(results(told)) for word in ("process died", "user stopped"))


@given(wild_logs(), st.sampled_from(ENDINGS), st.sampled_from(WORK), st.sampled_from(list(DRAFTS)))
def test_any_run_of_any_log_can_be_closed(records: list[Record], ending: Ending, work: Work | None, kind: str) -> None:
    """Closing is total: every run that a log knows gets its ending, each open call one settlement."""
    before = fold(records)
    for run_id in before.runs:
        log = Log()
        for record in records:
            log.put(record)
        run = log.state.run(run_id)
        was_ended = run.ended is not None
        still_open = [call_id for call_id, held in run.calls.items() if held.settled is None]
        knowledge: dict[str, Work] = dict.fromkeys(still_open, work) if work else {}
        batch = log.close(run_id, ending, drafts=drafted(log, kind) if run_id == "r1" else [], work=knowledge)
        settled = [r.call_id for r in batch if isinstance(r, CallSettled) and r.call_id != "cut"]
        assert sorted(settled) == sorted(still_open)
        check_closed(log.state, run_id, was_ended, ending)


def check_closed(state: SessionState, run_id: str, was_ended: bool, ending: Ending) -> None:
    run = state.run(run_id)
    assert run.is_terminal and state.current != run_id
    assert was_ended or run.status == ending.outcome
    assert not run.calls


def test_closing_twice_says_the_same() -> None:
    """The decision is pure: the same state gives the same records."""
    log = open_run("started")
    run = log.state.run("r1")
    once = close_run(run, Ending("cancelled", "user"), stamp=log.stamp)
    assert close_run(run, Ending("cancelled", "user"), stamp=log.stamp) == once
    assert Content.of("hi") == run.input
