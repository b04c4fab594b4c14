"""The plan: every kind of step, decided from the log alone."""

from __future__ import annotations

from hypothesis import given
from tests.core.logs import Log, call
from tests.core.strategies import grammatical_logs, wild_logs

from heaveto.core.fold import SessionState
from heaveto.core.plan import CallModel, Finish, HandOver, RunCalls, Step, Wait, plan_answer, plan_step
from heaveto.events.records import AgentCheckpoint, Record, Transferred, WaitingCall


def begun(*calls: str) -> Log:
    """A run whose agent has made these calls."""
    log = Log()
    log.run("r1", "hi")
    log.say("r1", *(call(call_id) for call_id in calls))
    return log


def step(log: Log, agent: str = "a", branch: str = "") -> Step:
    return plan_step(log.state.run("r1"), agent, branch)


def test_an_agent_that_was_entered_asks_its_model() -> None:
    """Nothing was said yet, in this branch and by this agent."""
    log = begun("c1")
    assert step(log, "other") == CallModel()
    assert step(log, branch="par.a") == CallModel()


def test_proposed_calls_are_executed() -> None:
    """Those that are not settled, in order."""
    log = begun("c1", "c2", "c3")
    assert step(log) == RunCalls((call("c1"), call("c2"), call("c3")))
    log.settle("r1", "c2", "failed")
    assert step(log) == RunCalls((call("c1"), call("c3")))


def test_a_call_in_doubt_is_decided_about() -> None:
    """What a dead process had started comes to whoever executes calls, together with what was not begun (F106)."""
    log = begun("c1", "c2", "c3")
    log.start("r1", "c1")
    log.settle("r1", "c3")
    assert step(log) == RunCalls((call("c1"), call("c2")))


def test_waiting_calls_are_waited_for() -> None:
    """A call that waits for an answer holds the agent up."""
    log = begun("c1", "c2", "c3")
    log.settle("r1", "c1")
    log.pause("r1", WaitingCall("c2", "confirmation"))
    log.settle("r1", "c3")
    assert step(log) == Wait(("c2",))


def test_what_is_ready_goes_first() -> None:
    """A call that waits holds up neither its siblings nor one that was answered meanwhile (F92, F101)."""
    log = begun("c1", "c2", "c3")
    log.pause_held("r1", WaitingCall("c1", "confirmation"), WaitingCall("c2", "confirmation"))
    assert step(log) == RunCalls((call("c3"),))
    log.settle("r1", "c3")
    assert step(log) == Wait(("c1", "c2"))
    log.answer("r1", "c2", "deny")
    assert step(log) == RunCalls((call("c2"),))
    log.settle("r1", "c2", "denied")
    assert step(log) == Wait(("c1",))


def test_a_call_that_was_stopped_while_it_waited_is_settled() -> None:
    """Nobody's answer is needed any more (F86)."""
    log = begun("c1")
    log.pause_held("r1", WaitingCall("c1", "confirmation"))
    log.stop_call("r1", "c1")
    assert step(log) == RunCalls((call("c1"),))


def test_a_call_that_asked_in_a_process_that_is_gone_is_in_doubt() -> None:
    """Its tool held on there; nobody's answer can bring it back."""
    log = begun("c1")
    log.start("r1", "c1")
    log.pause_held("r1", WaitingCall("c1", "input"))
    log.go_on("r1", "recovery")
    assert step(log) == RunCalls((call("c1"),))


def test_an_agent_that_works_as_a_tool_waits_with_what_waits_in_it() -> None:
    """However deep; it goes on when that has its answer, and not before (F160)."""
    log = begun("c1")
    log.start("r1", "c1")
    log.say("r1", "do it", author="user", branch="@c1")
    log.say("r1", call("c2"), author="x", branch="@c1")
    log.start("r1", "c2")
    log.say("r1", call("c3"), author="y", branch="@c1@c2")
    log.pause_held("r1", WaitingCall("c3", "confirmation"))
    assert step(log) == Wait(("c1",))
    assert step(log, "x", "@c1") == Wait(("c2",))
    assert step(log, "y", "@c1@c2") == Wait(("c3",))
    log.answer("r1", "c3")
    assert step(log) == RunCalls((call("c1"),))
    assert step(log, "y", "@c1@c2") == RunCalls((call("c3"),))


def test_an_answer_that_a_crash_cut_off_is_asked_for_again() -> None:
    """The cut answer stays, and the model is asked to go on."""
    log = Log()
    log.run("r1", "hi")
    log.say("r1", "The answ", interrupted="crash")
    assert step(log) == CallModel()


def test_settled_calls_go_to_the_model() -> None:
    """Whatever became of them: the model is told."""
    log = begun("c1", "c2")
    log.settle("r1", "c1")
    log.settle("r1", "c2", "denied")
    assert step(log) == CallModel()


def test_an_unknown_outcome_is_told_as_well() -> None:
    """A call that was settled as unknown does not block the agent."""
    log = begun("c1")
    log.start("r1", "c1")
    log.settle("r1", "c1", "unknown", cause="crash")
    assert step(log) == CallModel()


def test_a_transfer_hands_over_when_all_calls_are_settled() -> None:
    """Siblings of the transfer come to their end first."""
    log = begun("c1", "c2")
    log.settle("r1", "c1")
    log.add(Transferred, run_id="r1", agent="root/x", author="a")
    assert step(log) == RunCalls((call("c2"),))
    log.settle("r1", "c2")
    assert step(log) == HandOver("root/x")


def test_a_transfer_counts_for_the_calls_it_was_made_in() -> None:
    """When the agent speaks again, an earlier transfer is over; another agent's transfer is none of its business."""
    log = begun("c1")
    log.settle("r1", "c1")
    log.add(Transferred, run_id="r1", agent="root/x", author="a")
    log.say("r1", call("c2"))
    log.settle("r1", "c2")
    log.add(Transferred, run_id="r1", agent="root/y", author="b")
    assert step(log) == CallModel()


def test_a_tool_may_end_the_turn() -> None:
    """One result with `end_turn` is enough, once all calls are settled."""
    log = begun("c1", "c2")
    log.settle("r1", "c1", end_turn=True)
    assert isinstance(step(log), RunCalls)
    log.settle("r1", "c2")
    assert step(log) == Finish()


def test_an_answer_without_calls_finishes() -> None:
    """Said before it is in the log, or after: the same."""
    log = begun()
    answer = log.say("r1", "done")
    assert step(log) == plan_answer(log.state.run("r1"), answer) == Finish()


def test_an_answer_with_calls_executes_each_once() -> None:
    """An id that stands twice in an answer is one call (F19)."""
    log = begun()
    answer = log.say("r1", "on it", call("c1"), call("c2"), call("c1"))
    assert plan_answer(log.state.run("r1"), answer) == RunCalls((call("c1"), call("c2")))
    assert step(log) == RunCalls((call("c1"), call("c2")))


def test_text_that_came_after_the_request_wants_an_answer() -> None:
    """The model did not see it; text from before the request it did see."""
    log = begun()
    log.say("r1", "one thing more", author="user")
    seen = log.last_seq
    answer = log.say("r1", "done", seen=seen)
    assert plan_answer(log.state.run("r1"), answer) == Finish()
    log.say("r1", "and this", author="user")
    late = log.say("r1", "done", seen=seen)
    assert plan_answer(log.state.run("r1"), late) == step(log) == CallModel()


def test_text_for_the_run_is_answered_even_where_a_tool_ends_the_turn() -> None:
    """Ending the turn saves a model call, not the user's question."""
    log = begun("c1")
    log.say("r1", "wait", author="user")
    log.settle("r1", "c1", end_turn=True)
    assert step(log) == CallModel()


def test_text_for_the_run_is_the_main_branchs_business() -> None:
    """Agents that work side by side do not each answer it; a message that no model made answers nothing."""
    log = begun()
    log.say("r1", "hello?", author="user")
    run = log.state.run("r1")
    assert plan_answer(run, log.say("r1", "done", branch="par.a", seen=1)) == Finish()
    assert plan_answer(run, log.say("r1", "done", seen=0)) == Finish()


def test_an_agent_that_ended_begins_again() -> None:
    """A loop that enters it again asks its model again."""
    log = begun()
    log.say("r1", "done")
    log.add(AgentCheckpoint, run_id="r1", agent="a", end_of_agent=True)
    assert step(log) == CallModel()


@given(wild_logs())
def test_a_plan_is_always_possible_and_settles_nothing_twice(records: list[Record]) -> None:
    """Total on any log; a call that was ever settled is never planned again (P5)."""
    check_plans(records)


@given(grammatical_logs())
def test_a_plan_of_a_real_log_settles_nothing_twice(records: list[Record]) -> None:
    """The same after every record of logs as the runner writes them."""
    check_plans(records)


def check_plans(records: list[Record]) -> None:
    state = SessionState()
    for record in records:
        state.apply(record)
        for run in state.runs.values():
            for branch, agent in list(run.threads):
                planned = plan_step(run, agent, branch)
                if isinstance(planned, RunCalls):
                    ids = [proposed.call_id for proposed in planned.calls]
                    assert len(set(ids)) == len(ids)
                    planned_calls = [run.calls[call_id] for call_id in ids]
                    assert all(call.settled is None for call in planned_calls)
                    assert not any(call.is_waiting and call.phase == "waiting" for call in planned_calls)
