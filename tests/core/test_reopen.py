"""How an open run goes on, and what the fold knows of attempts, signals and background calls: no process needed."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from tests.core.logs import Log, call, draft
from tests.core.strategies import wild_logs

from heaveto.core.close import Ending
from heaveto.core.fold import RunState, fold
from heaveto.core.plan import CallModel, RunCalls, plan_step
from heaveto.core.reopen import reopen_run
from heaveto.events.contents import Content, Text
from heaveto.events.records import (
    AgentCheckpoint,
    Answered,
    CallProgress,
    CallSettled,
    CallStarted,
    CancelRequested,
    Draft,
    Limits,
    Message,
    Paused,
    Record,
    RunStarted,
    WaitingCall,
)


def reopen(log: Log, *drafts: Draft) -> list[Record]:
    """Reopen the run ``r``, as a new process does, and return the batch."""
    batch = reopen_run(log.state.run("r"), drafts, stamp=log.stamp, tree_hash="new")
    return [log.put(record) for record in batch]


def run_of(log: Log) -> RunState:
    return log.state.run("r")


# --- the batch --------------------------------------------------------------------------------------------------------


def test_the_next_attempt_is_of_the_same_run() -> None:
    """It has the run's input, agent, limits and settings, the next number, and the hash of the app that goes on."""
    log = Log()
    limits, settings = Limits(llm_calls=3), {"max_llm_calls": 3}
    first = log.run("r", "do it", agent="root/a", limits=limits, settings=settings, tree_hash="old")
    [again] = reopen(log)
    assert isinstance(again, RunStarted)
    assert (again.attempt, again.trigger, again.tree_hash) == (2, "recovery", "new")
    assert (again.input, again.agent, again.limits, again.settings) == (first.input, "root/a", limits, settings)
    assert [record.attempt for record in reopen(log) if isinstance(record, RunStarted)] == [3]


def test_what_was_started_stays_open() -> None:
    """Calls are left to their tools' policies: the plan is to see those settled that are not, whatever their phase."""
    log = Log()
    log.run("r", "do it")
    log.say("r", call("c1"), call("c2"), call("c3"))
    log.start("r", "c1", "c2")
    log.settle("r", "c1")
    assert len(reopen(log)) == 1
    step = plan_step(run_of(log), "a", "")
    assert isinstance(step, RunCalls)
    assert [left.call_id for left in step.calls] == ["c2", "c3"]


def test_a_cut_answer_is_kept_and_asked_for_again() -> None:
    """What had been received is a message, marked as cut by the crash; the model is asked again (F60)."""
    log = Log()
    log.run("r", "do it")
    _, cut = reopen(log, draft(log, "r", "half"))
    assert isinstance(cut, Message)
    assert (cut.interrupted, cut.parts) == ("crash", (Text(text="half"),))
    assert isinstance(plan_step(run_of(log), "a", ""), CallModel)
    assert "cut off there because the process died" in str(log.told())


def test_the_calls_of_a_cut_answer_never_were() -> None:
    """They are settled as not started in the same batch, so that none of them can be executed later."""
    log = Log()
    log.run("r", "do it")
    batch = reopen(log, draft(log, "r", "half", call("c1"), call("c2")))
    settled = [(r.call_id, r.status, r.cause) for r in batch if isinstance(r, CallSettled)]
    assert settled == [("c1", "not_started", "crash"), ("c2", "not_started", "crash")]
    assert isinstance(plan_step(run_of(log), "a", ""), CallModel)
    log.told()


def test_the_output_of_a_call_is_no_message() -> None:
    """A draft that belongs to a call is not said by anyone; it waits for the call's settlement."""
    log = Log()
    log.run("r", "do it")
    log.say("r", call("c1"))
    log.start("r", "c1")
    output = Draft(message_id="o", run_id="r", author="a", parts=Content.of("row").parts, call_id="c1")
    assert len(reopen(log, output)) == 1
    [settled, _] = log.crash("r", drafts=[output])
    assert isinstance(settled, CallSettled)
    assert (settled.status, settled.response) == ("unknown", {"output": "row"})


@given(wild_logs())
def test_any_open_run_can_be_reopened(records: list[Record]) -> None:
    """Whatever the log holds, the batch can be folded, the run is open after it, and it can still be closed."""
    state = fold(records)
    for run in [run for run in state.runs.values() if run.is_open]:
        number = run.attempt
        for record in reopen_run(run, [], stamp=lambda: ("x", 1.0), tree_hash=""):
            state.apply(record)
        assert run.is_open and run.attempt == number + 1
        plan_step(run, "a", "")


# --- attempts ---------------------------------------------------------------------------------------------------------


def test_the_first_start_counts_for_time_and_budget() -> None:
    """A further attempt changes neither when the run began nor what it may spend (F107)."""
    log = Log()
    first = log.run("r", "do it", limits=Limits(llm_calls=3))
    log.say("r", "hm", call("c1"))
    reopen(log)
    run = run_of(log)
    assert (run.started_seq, run.started_time, run.limits) == (first.seq, first.time, first.limits)
    assert (run.attempt, run.trigger, run.llm_calls) == (2, "recovery", 1)


def fruitless_after(*steps: Any) -> int:
    """How many attempts in a row have brought nothing, after two that did not and what `steps` then do."""
    log = Log()
    log.run("r", "do it")
    log.say("r", call("c1"), call("c2"))
    reopen(log)
    reopen(log)
    for step in steps:
        step(log)
    return run_of(log).fruitless


def check(log: Log, done: int) -> None:
    log.add(AgentCheckpoint, run_id="r", agent="a", agent_state={"done": done})


def test_what_counts_as_getting_on() -> None:
    """A result, a progress value, an answer that calls nothing or a new checkpoint begins the count anew; a start, a
    cut answer, a new call, a call that was not started or is lost, another attempt, what an agent of one's own or the
    user says do not (F107)."""
    assert fruitless_after() == 2
    assert fruitless_after(lambda log: log.start("r", "c1")) == 2
    assert fruitless_after(lambda log: reopen(log, draft(log, "r", "half"))) == 3
    assert fruitless_after(lambda log: log.settle("r", "c1", "not_started")) == 2
    assert fruitless_after(lambda log: log.say("r", "hurry", author="user")) == 2
    assert fruitless_after(lambda log: log.say("r", "so")) == 0
    assert fruitless_after(lambda log: log.settle("r", "c1")) == 0
    assert fruitless_after(lambda log: log.settle("r", "c1", "unknown", cause="crash")) == 2
    assert fruitless_after(lambda log: log.settle("r", "c1", "unknown", cause="timeout")) == 0
    assert fruitless_after(lambda log: log.say("r", call("c3"))) == 2
    assert fruitless_after(lambda log: log.say("r", "step 1", seen=0)) == 2
    assert fruitless_after(lambda log: check(log, 1)) == 0
    assert fruitless_after(lambda log: check(log, 1), reopen, lambda log: check(log, 1)) == 1
    assert fruitless_after(lambda log: check(log, 1), reopen, lambda log: check(log, 2)) == 0
    assert fruitless_after(lambda log: log.add(CallProgress, run_id="r", call_id="c1", value=1)) == 0
    assert fruitless_after(lambda log: log.say("r", "so"), reopen) == 1


def test_a_further_attempt_of_a_call() -> None:
    """The fold knows the newest attempt of a call: its number, policy, arguments and process; progress stays."""
    log = Log()
    log.run("r", "do it")
    log.say("r", call("c1", args={"n": 1}))
    for attempt, owner in ((1, "p1"), (2, "p2")):
        log.add(
            CallStarted, run_id="r", call_id="c1", attempt=attempt, owner=owner, idempotency_key="k", replay="safe",
            args={"n": 2},
        )  # fmt: skip
        log.add(CallProgress, run_id="r", call_id="c1", value=attempt)
    known = log.state.calls["c1"]
    assert (known.attempt, known.owner, known.replay, known.idempotency_key) == (2, "p2", "safe", "k")
    assert (known.effective_args, known.progress, known.has_started) == ({"n": 2}, 2, True)


def test_a_stop_outlives_attempts() -> None:
    """A run that was asked to stop stays so, whoever starts another attempt of it (F151)."""
    log = Log()
    log.run("r", "do it")
    log.ask_to_stop("r")
    reopen(log)
    assert (run_of(log).status, run_of(log).cancel is not None) == ("cancelling", True)


# --- calls that somebody speaks to ------------------------------------------------------------------------------------


def in_background() -> Log:
    log = Log()
    log.run("r", "do it")
    log.say("r", call("c1"))
    log.start("r", "c1")
    log.settle("r", "c1", "detached")
    return log


def test_a_call_in_the_background() -> None:
    """It is settled for its run, and known to the session until its outcome comes, also behind the run's ending."""
    log = in_background()
    assert list(log.state.background) == ["c1"]
    assert run_of(log).signal_seq == log.last_seq
    log.end("r")
    assert list(log.state.background) == list(log.state.calls) == ["c1"]
    log.settle("r", "c1", late=True)
    assert not log.state.background
    assert not log.state.calls


def test_the_agent_hears_of_it_before_it_is_done() -> None:
    """An outcome that comes while the run is open is news: an answer that did not know of it is not the last."""
    log = in_background()
    seen = log.last_seq
    log.settle("r", "c1", late=True)
    answer = log.say("r", "I wait for it", seen=seen)
    assert run_of(log).steered_seq == answer.seq - 1
    assert isinstance(plan_step(run_of(log), "a", ""), CallModel)


def test_a_lost_call_may_still_be_found() -> None:
    """A background call whose process died is unknown; its real outcome is welcome all the same, once (F17)."""
    log = in_background()
    log.settle("r", "c1", "unknown", late=True, cause="crash")
    assert not log.state.background
    assert log.state.calls["c1"].awaits_late_result
    real = log.settle("r", "c1", "succeeded", late=True)
    log.settle("r", "c1", "failed", late=True)
    assert log.state.calls["c1"].settled == real


def test_a_stop_of_one_call_is_not_one_of_the_run() -> None:
    """The call has it, the run goes on, and is told that there is news (F139). The first request counts."""
    log = Log()
    log.run("r", "do it")
    log.say("r", call("c1"), call("c2"))
    first = log.add(CancelRequested, run_id="r", cause="user", call_id="c1")
    log.add(CancelRequested, run_id="r", cause="budget", call_id="c1")
    run = run_of(log)
    assert (run.cancel, run.status, run.signal_seq) == (None, "running", first.seq)
    assert log.state.calls["c1"].cancel == first
    assert log.state.calls["c2"].cancel is None


def test_a_held_question_and_its_answer() -> None:
    """A call that asks while it works stays started, and the run running; the first answer wins."""
    log = Log()
    log.run("r", "do it")
    log.say("r", call("c1"))
    log.start("r", "c1")
    question = WaitingCall(call_id="c1", kind="input", hint="which?")
    asked = log.add(Paused, run_id="r", waiting=(question,), held=True)
    known = log.state.calls["c1"]
    assert (known.phase, known.question, known.question_seq, run_of(log).status) == (
        "started", question, asked.seq, "running",
    )  # fmt: skip
    answer = log.add(Answered, run_id="r", call_id="c1", decision="value", value="this")
    log.add(Answered, run_id="r", call_id="c1", decision="value", value="that")
    assert (known.answer, run_of(log).signal_seq) == (answer, answer.seq)
    log.add(CallStarted, run_id="r", call_id="c1", attempt=2)
    assert known.question is None


def test_an_open_run_with_a_lost_background_call_can_be_closed() -> None:
    """A run that ends while its call works on in the background leaves that call alone: it is not settled again."""
    log = in_background()
    batch = log.close("r", Ending("failed", "crash"))
    assert [record for record in batch if isinstance(record, CallSettled)] == []
