"""The fold: total, the same however it is fed, and true to its invariants."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from tests.core.logs import Log, call
from tests.core.strategies import grammatical_logs, wild_logs

from heaveto.core.fold import SessionState, effective, fold, is_within, merge_state
from heaveto.core.status import TERMINAL
from heaveto.events.contents import Content
from heaveto.events.records import (
    AgentCheckpoint,
    CallProgress,
    CallSettled,
    CancelRequested,
    Limits,
    Message,
    Paused,
    PauseRequested,
    Queued,
    Record,
    Rewound,
    RunEnded,
    RunStarted,
    StateChanged,
    Transferred,
    Usage,
    WaitingCall,
)


def everything(state: SessionState) -> dict[str, Any]:
    return {name: getattr(state, name) for name in SessionState.__slots__}


def check_invariants(state: SessionState) -> None:
    current = state.current_run
    assert current is None or current.is_open
    for run_id, run in state.runs.items():
        assert run.run_id == run_id
        assert run.is_terminal is (run.ended is not None)
        assert run.ended is None or not (run.calls or run.threads or run.checkpoints or run.escalated)
        assert run.cancel is None or run.status in (*TERMINAL, "cancelling")
    for run_id, queued in state.queue.items():
        run = state.runs[run_id]
        assert queued.run_id == run_id and run.started_seq == 0 and run.ended is None
    for call_id, held in state.calls.items():
        assert held.call.call_id == call_id
        assert (held.phase == "settled") is (held.settled is not None)
        run = state.runs[held.run_id]
        assert run.ended is None or held.awaits_late_result


@given(wild_logs())
def test_the_fold_is_total_and_keeps_its_invariants(records: list[Record]) -> None:
    """No stored record makes it raise, and after each one everything in it agrees."""
    before = copy.deepcopy(records)
    state = SessionState()
    for record in records:
        state.apply(record)
        check_invariants(state)
    assert records == before


@given(wild_logs())
def test_folding_on_is_folding_anew(records: list[Record]) -> None:
    """A state that followed the log equals one that is folded from the whole."""
    state = SessionState()
    for end, record in enumerate(records, start=1):
        state.apply(record)
        if end % 5 == 0 or end == len(records):
            assert everything(state) == everything(fold(records[:end]))


@given(wild_logs())
def test_an_ending_is_the_first_one_and_lasts(records: list[Record]) -> None:
    """However often an end is recorded, the first one counts and the status never changes again (P7)."""
    first: dict[str, RunEnded] = {}
    state = SessionState()
    for record in records:
        if isinstance(record, RunEnded):
            first.setdefault(record.run_id, record)
        state.apply(record)
        for run_id, ended in first.items():
            assert state.runs[run_id].ended is ended
            assert state.runs[run_id].status == ended.outcome


@given(wild_logs())
def test_the_first_settlement_of_a_call_counts(records: list[Record]) -> None:
    """Only a late outcome replaces a settlement, and only one that was unknown (F17)."""
    state = SessionState()
    for record in records:
        held = state.calls.get(record.call_id) if isinstance(record, CallSettled) else None
        before = held.settled if held is not None else None
        state.apply(record)
        if held is not None and before is not None and isinstance(record, CallSettled):
            replaced = before.status == "unknown" and record.late
            assert held.settled is (record if replaced else before)


@given(grammatical_logs())
def test_a_session_of_the_runner_is_at_rest_after_its_runs(records: list[Record]) -> None:
    """Between runs nothing is current, and all that is kept of calls are those whose real outcome is awaited."""
    state = fold(records)
    check_invariants(state)
    assert state.current is None
    assert all(held.awaits_late_result for held in state.calls.values())


@given(grammatical_logs())
def test_the_books_agree_with_the_log(records: list[Record]) -> None:
    """Usage and model calls of a run are the sums over its messages, whichever agent they came from (F127)."""
    for run_id, run in fold(records).runs.items():
        said = [r for r in records if isinstance(r, Message) and r.run_id == run_id and r.author != "user"]
        assert run.llm_calls == sum(1 for message in said if message.seen)
        assert run.usage == sum((message.usage for message in said if message.usage), Usage())


# --- runs ---------------------------------------------------------------------------------------------------------


def test_a_stop_before_the_start_is_kept() -> None:
    """The stop may overtake a delayed start: the run starts as one that is being stopped (F165)."""
    log = Log()
    log.ask_to_stop("r1")
    assert log.state.run("r1").status == "cancelling"
    log.add(Queued, run_id="r1", input=Content.of("hi"))
    assert list(log.state.queue) == ["r1"]
    log.run("r1", "hi")
    run = log.state.run("r1")
    assert (run.status, run.cancel and run.cancel.cause, log.state.current) == ("cancelling", "user", "r1")


def test_the_first_stop_counts_and_none_comes_after_the_end() -> None:
    """The cause of a stop is that of the first request; a stop of a run that has ended changes nothing."""
    log = Log()
    log.run("r1", "hi")
    first = log.ask_to_stop("r1", "deadline")
    log.ask_to_stop("r1", "user")
    assert log.state.run("r1").cancel == first
    log.cancel("r1")
    log.run("r2", "hi")
    log.end("r2")
    log.ask_to_stop("r2")
    assert (log.state.run("r2").cancel, log.state.run("r2").status) == (None, "completed")


def test_a_completed_run_that_was_told_to_stop_is_what_its_log_says() -> None:
    """A log with an ending that no writer may write is still read: the record is the truth."""
    log = Log()
    log.run("r1", "hi")
    log.ask_to_stop("r1")
    log.end("r1")
    assert log.state.run("r1").status == "completed"


def test_the_queue_is_in_order_of_arrival_and_merges() -> None:
    """First come, first served; a second message for a waiting run adds to it and keeps its place."""
    log = Log()
    for run_id, said in (("r1", "a"), ("r2", "b"), ("r1", "c")):
        log.add(Queued, run_id=run_id, input=Content.of(said), state_delta={said: 1})
    assert list(log.state.queue) == ["r1", "r2"]
    assert log.state.run("r1").input.text == "ac"
    assert log.state.run("r1").state_delta == {"a": 1, "c": 1}
    log.run("r1", "ac")
    log.add(Queued, run_id="r1", input=Content.of("too late"))
    assert (list(log.state.queue), log.state.run("r1").input.text) == (["r2"], "ac")


def test_a_further_attempt_keeps_the_first_start() -> None:
    """Input, limits and the clock of a run are those of its first start, whatever later attempts say."""
    log = Log()
    first = log.run("r1", "hi", agent="root", limits=Limits(llm_calls=1))
    log.run("r1", "other", attempt=2, agent="root/x", trigger="recovery", limits=Limits(llm_calls=9))
    run = log.state.run("r1")
    assert (run.started_seq, run.started_time, run.input.text, run.limits.llm_calls) == (1, first.time, "hi", 1)
    assert (run.attempt, run.agent, run.trigger) == (2, "root/x", "recovery")


def test_an_end_without_a_start_is_an_end() -> None:
    """A run that was stopped while it waited leaves the queue and never starts."""
    log = Log()
    log.add(Queued, run_id="r1", input=Content.of("a"))
    log.ask_to_stop("r1")
    log.cancel("r1")
    log.run("r1", "a")
    run = log.state.run("r1")
    assert (run.status, run.started_seq, log.state.queue, log.state.current) == ("cancelled", 0, {}, None)


# --- calls --------------------------------------------------------------------------------------------------------


def test_a_call_goes_through_its_phases() -> None:
    """Proposed by a message, started, waiting, started again, settled; with attempt, key and progress kept."""
    log = Log()
    log.run("r1", "hi")
    log.say("r1", call("c1"))
    held = log.state.calls["c1"]
    phases = [(held.phase, held.has_started)]
    log.start("r1", "c1")
    phases.append((held.phase, held.has_started))
    log.add(CallProgress, run_id="r1", call_id="c1", value={"done": 3})
    log.pause("r1", WaitingCall("c1", "long_running"))
    phases.append((held.phase, held.has_started))
    log.settle("r1", "c1")
    phases.append((held.phase, held.has_started))
    assert phases == [("proposed", False), ("started", True), ("waiting", True), ("settled", True)]
    assert (held.attempt, held.progress) == (1, {"done": 3})


def test_only_what_awaits_a_late_result_survives_the_run() -> None:
    """After the end, a call of unknown outcome takes its real result once; then it is forgotten."""
    log = Log()
    log.run("r1", "hi")
    log.say("r1", call("c1"), call("c2"))
    log.start("r1", "c1", "c2")
    log.settle("r1", "c2")
    log.cancel("r1", work={"c1": "still_running"})
    assert list(log.state.calls) == ["c1"]
    log.settle("r1", "c1", late=True)
    assert log.state.calls == {}


def test_a_late_result_replaces_only_an_unknown_outcome() -> None:
    """Once it is known how a call ended, nothing changes that (F17)."""
    log = Log()
    log.run("r1", "hi")
    log.say("r1", call("c1"))
    log.settle("r1", "c1", "unknown", cause="user")
    log.settle("r1", "c1")
    assert log.state.calls["c1"].awaits_late_result
    late = log.settle("r1", "c1", "failed", late=True)
    log.settle("r1", "c1", late=True)
    assert log.state.calls["c1"].settled == late


def test_an_id_that_is_used_again_is_a_new_call() -> None:
    """Ids may repeat where others choose them: the newest call is the one that records are about (F20)."""
    log = Log()
    log.run("r1", "hi")
    log.say("r1", call("c1"))
    log.settle("r1", "c1")
    log.say("r1", call("c1", "again"))
    held = log.state.calls["c1"]
    assert (held.call.name, held.phase) == ("again", "proposed")


def test_the_same_id_twice_in_one_message_is_one_call() -> None:
    """A provider that sends a call again after a reconnect asks for it once (F19)."""
    log = Log()
    log.run("r1", "hi")
    log.say("r1", call("c1"), call("c1"))
    assert log.state.run("r1").thread("", "a").call_ids == ("c1",)


# --- agents and state ---------------------------------------------------------------------------------------------


def test_a_transfer_moves_the_conversation_but_not_from_a_side_branch() -> None:
    """The active agent is what the log says; what parallel agents and agent tools hand over stays among them (F32)."""
    log = Log()
    log.run("r1", "hi")
    log.add(Transferred, run_id="r1", agent="root/x", author="root")
    log.add(Transferred, run_id="r1", agent="root/y", author="p1", branch="par.p1")
    assert log.state.active_agent == "root/x"
    assert log.state.run("r1").thread("par.p1", "p1").transferred == "root/y"
    log.add(Rewound, to=log.last_seq)
    assert log.state.active_agent == "root/x"


def test_an_agent_that_ended_starts_afresh() -> None:
    """An agent's place is forgotten when it has done its part, so that a loop may run it again."""
    log = Log()
    log.run("r1", "hi")
    log.say("r1", "done")
    log.add(AgentCheckpoint, run_id="r1", agent="a", end_of_agent=True)
    run = log.state.run("r1")
    assert ("", "a") not in run.threads and run.checkpoints["", "a"].end_of_agent


def test_escalation_is_seen_in_and_below_a_branch_since_a_point() -> None:
    """A loop ends for what was said within it, in this round."""
    log = Log()
    log.run("r1", "hi")
    said = log.say("r1", "enough", branch="loop.x", escalate=True)
    run = log.state.run("r1")
    assert run.has_escalated("loop", said.seq - 1) and run.has_escalated("", said.seq - 1)
    assert not run.has_escalated("loop", said.seq)
    assert not run.has_escalated("loop.y", 0)


@pytest.mark.parametrize(
    ("branch", "ancestor", "expected"),
    [
        ("", "", True),
        ("a.b", "", True),
        ("a.b", "a", True),
        ("a@c", "a", True),
        ("ab", "a", False),
        ("a", "a.b", False),
    ],
)
def test_a_branch_lies_within_its_ancestors(branch: str, ancestor: str, expected: bool) -> None:
    """Branches are compared by whole names."""
    assert is_within(branch, ancestor) is expected


def test_a_rewind_takes_the_sessions_own_state_back() -> None:
    """Shared state belongs to others as well and stays; what was set before the point stays too."""
    log = Log()
    log.add(StateChanged, delta={"a": 1, "b": 1})
    log.add(StateChanged, delta={"a": 2, "b": None, "app:x": 1, "user:y": 1})
    log.add(Rewound, to=1)
    assert (log.state.state, log.state.shared) == ({"a": 1, "b": 1}, {"app:x": 1, "user:y": 1})


def test_rewinds_of_rewinds() -> None:
    """A rewind counts from where it stands; going behind an earlier rewind takes that back as well."""
    log = Log()
    for number in range(1, 4):
        log.add(StateChanged, delta={"n": number})
    log.add(Rewound, to=2)
    assert seqs(effective(log.records)) == [1, 2, 4]
    log.add(StateChanged, delta={"n": 5})
    log.add(Rewound, to=1)
    assert seqs(effective(log.records)) == [1, 6]
    assert log.state.state == {"n": 1}


def test_deltas_set_and_delete() -> None:
    """None deletes, also what is not there."""
    own: dict[str, Any] = {"a": 1}
    shared: dict[str, Any] = {"app:b": 1}
    merge_state(own, shared, {"a": None, "none": None, "app:b": None, "user:c": 2, "d": 0})
    assert (own, shared) == ({"d": 0}, {"user:c": 2})


def seqs(records: Sequence[Record]) -> list[int]:
    return [record.seq for record in records]


def test_a_run_in_a_session_of_many_is_found() -> None:
    """What is asked of an unknown run makes it known, and nothing else."""
    state = fold([CancelRequested(id="x", time=0, seq=1, run_id="r9", cause="user")])
    assert list(state.runs) == ["r9"]
    assert (state.current, state.current_run, state.last_seq) == (None, None, 1)
    assert isinstance(state.records[0], CancelRequested) and not isinstance(state.records[0], RunStarted)


# --- pauses -----------------------------------------------------------------------------------------------------------


def waiting_run() -> Log:
    """A run with two calls, of which the first waits and the second works in the meantime."""
    log = Log()
    log.run("r1", "hi")
    log.say("r1", call("c1"), call("c2"))
    log.pause_held("r1", WaitingCall("c1", "confirmation"))
    log.start("r1", "c2")
    return log


def test_a_held_call_does_not_pause_its_run() -> None:
    """The run goes on around it; it is listed all the same."""
    log = waiting_run()
    run = log.state.run("r1")
    assert (run.status, log.state.current, log.state.paused) == ("running", "r1", {})
    assert [held.call.call_id for held in run.waiting] == ["c1"]
    assert not run.waits_in("c2")


def test_a_paused_run_is_nobodys_current_run() -> None:
    """Others run meanwhile; the question is that of before, and its place in the order of questions, too."""
    log = waiting_run()
    first = log.state.calls["c1"].question_seq
    log.settle("r1", "c2")
    log.pause("r1", WaitingCall("c1", "confirmation", hint="again"))
    state = log.state
    assert (state.current, list(state.paused), state.run("r1").status) == (None, ["r1"], "paused")
    assert (state.calls["c1"].question_seq, state.calls["c1"].question) == (first, WaitingCall("c1", "confirmation"))
    log.run("r2", "beside it")
    assert (state.current, list(state.paused)) == ("r2", ["r1"])
    log.end("r2")
    log.answer("r1", "c1")
    assert not state.run("r1").waiting and list(state.paused) == ["r1"]
    log.go_on("r1")
    assert (state.current, state.paused, state.run("r1").status) == ("r1", {}, "running")


def test_time_in_pauses_is_idle() -> None:
    """Each pause counts from where it began to the next attempt; a clock that goes back counts nothing."""
    log = Log()
    for number, (paused, again) in enumerate(((10.0, 25.0), (30.0, 31.5), (50.0, 40.0))):
        if not number:
            log.run("r1", "hi")
        log.put(Paused(id=f"p{number}", time=paused, run_id="r1", waiting=()))
        log.put(RunStarted(id=f"s{number}", time=again, run_id="r1", input=Content(()), attempt=number + 2))
    assert log.state.run("r1").idle_seconds == 16.5


def test_only_the_first_answer_of_a_question_counts() -> None:
    """Whatever stands behind it in the log (P8)."""
    log = waiting_run()
    first = log.answer("r1", "c1", "deny")
    log.answer("r1", "c1", "approve")
    log.answer("r1", "c2", "approve")
    assert (log.state.calls["c1"].answer, log.state.calls["c2"].answer) == (first, None)


def test_an_operators_pause_waits_like_a_call_and_leaves_no_trace() -> None:
    """The wish, the pause, the yes; then another one may come. It belongs to no agent's calls."""
    log = Log()
    log.run("r1", "hi")
    run = log.state.run("r1")
    log.add(PauseRequested, run_id="r1")
    log.add(PauseRequested, run_id="r1", by="second")
    assert run.pause is not None and run.pause.by == ""
    log.pause_held("r1", WaitingCall("op", "operator"))
    assert run.pause is None and [held.call.call_id for held in run.waiting] == ["op"]
    assert run.calls == {} and list(log.state.calls) == ["op"]
    log.answer("r1", "op")
    assert (run.operator, run.waiting, log.state.calls) == (None, [], {})
    log.add(PauseRequested, run_id="r1", by="third")
    assert run.pause is not None and run.pause.by == "third"


def test_a_run_that_ends_in_a_pause_leaves_nothing_waiting() -> None:
    """Stopped, declined or failed: its questions are closed with it (F86)."""
    log = waiting_run()
    log.add(PauseRequested, run_id="r1")
    log.pause_held("r1", WaitingCall("op", "operator"))
    log.pause("r1", WaitingCall("c1", "confirmation"), WaitingCall("op", "operator"))
    log.cancel("r1")
    assert (log.state.paused, log.state.current) == ({}, None)
    assert not any(held.is_waiting for held in log.state.calls.values())
    assert log.state.run("r1").status == "cancelled"
