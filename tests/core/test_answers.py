"""Answers to waiting calls: which count, which are harmless, and which are refused, decided from the log alone."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.logs import Log, call
from tests.core.strategies import grammatical_logs, wild_logs

from heaveto.core.answers import Decision, Given, answer_problem, check_answers, given_by_response
from heaveto.core.fold import SessionState, fold
from heaveto.errors import (
    AnswerConflictError,
    AnswerError,
    AnswerExpiredError,
    AnswerInvalidError,
    AnswerKindError,
    ContradictingAnswersError,
    NotWaitingError,
    UnknownCallError,
)
from heaveto.events.contents import FunctionResponse
from heaveto.events.records import Answered, Record, WaitingCall, WaitingKind

KINDS: tuple[WaitingKind, ...] = get_args(WaitingKind)
DECISIONS: tuple[Decision, ...] = get_args(Decision)
YES = Given("c1", "approve")


def asked(kind: WaitingKind = "confirmation", **more: Any) -> Log:
    """A run that is paused with one call, ``c1``, which waits for this."""
    log = Log()
    log.run("r", "do it")
    log.say("r", call("c1", "pay"))
    if kind == "long_running":
        log.start("r", "c1")
    log.pause("r", WaitingCall("c1", kind, name="pay", **more))
    return log


def answer(log: Log, decision: Decision, value: Any = None, call_id: str = "c1", **more: Any) -> Answered:
    return log.answer("r", call_id, decision, value=value, **more)


def is_news(log: Log, *given: Given, now: float = 0.0) -> bool:
    """Whether some of the answers are; it says so twice, and changes nothing."""
    fresh = check_answers(log.state, given, now=now)
    assert check_answers(log.state, given, now=now) == fresh
    return bool(fresh)


def given_by(log: Log, response: dict[str, Any], call_id: str = "c1") -> Given:
    return given_by_response(log.state, FunctionResponse(call_id=call_id, name="pay", response=response), by="ann")


# --- what kind of answer a question takes ---------------------------------------------------------------------------

TAKEN: dict[WaitingKind, set[Decision]] = {
    "confirmation": {"approve", "deny", "result"},
    "operator": {"approve"},
    "long_running": {"value", "result", "deny"},
    "input": {"value", "result", "deny"},
    "client": {"value", "result", "deny"},
}


@pytest.mark.parametrize("decision", DECISIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_question_takes_its_kinds_of_answers(kind: WaitingKind, decision: Decision) -> None:
    """A yes is no result and a result is no yes (F94): what does not answer the question is refused, all 20 pairs."""
    log = asked(kind)
    if decision in TAKEN[kind]:
        assert is_news(log, Given("c1", decision, "x"))
        return
    with pytest.raises(AnswerKindError) as refused:
        is_news(log, Given("c1", decision, "x"))
    assert (refused.value.call_id, refused.value.decision, refused.value.kind) == ("c1", decision, kind)


@pytest.mark.parametrize("decision", ["value", "result"])
@pytest.mark.parametrize("kind", ["input", "client", "long_running"])
def test_a_value_is_held_against_the_schema_that_was_asked_with(kind: WaitingKind, decision: Decision) -> None:
    """Whatever the answer is called, what the model will be told fits; the error says where it does not (F103)."""
    schema: dict[str, Any] = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    log = asked(kind, schema=schema)
    assert is_news(log, Given("c1", decision, {"n": 1}))
    assert is_news(log, Given("c1", "deny", "no schema for a no"))
    for wrong in ({"n": "1"}, {}, None, [1], "n"):
        with pytest.raises(AnswerInvalidError) as refused:
            is_news(log, Given("c1", decision, wrong))
        assert "$" in refused.value.problem


def test_without_a_schema_every_value_fits() -> None:
    """Null, too."""
    for value in (None, 0, "", [], {}, {"confirmed": True}):
        assert is_news(asked("input"), Given("c1", "value", value))


@pytest.mark.parametrize("schema", [{"type": "nonsense"}, {"pattern": "("}, {"$ref": "#/nowhere"}, {"required": 1}])
def test_a_schema_that_is_none_is_said_to_be(schema: dict[str, Any]) -> None:
    """Its author's mistake reaches whoever answers as a refusal that names it; a no is still possible (F143)."""
    problem = answer_problem("x", schema)
    assert problem is not None and "schema" in problem
    with pytest.raises(AnswerInvalidError):
        is_news(asked("input", schema=schema), Given("c1", "value", "x"))
    assert is_news(asked("input", schema=schema), Given("c1", "deny"))


# --- first wins -----------------------------------------------------------------------------------------------------

OTHERS = [
    Given("c1", "deny"),
    Given("c1", "approve", "payload"),
    Given("c1", "approve", args={"n": 1}),
    Given("c1", "result", "done"),
]
PHASES: dict[str, Callable[[Log], None]] = {
    "paused": lambda log: None,
    "started": lambda log: log.start("r", "c1"),
    "settled": lambda log: (log.start("r", "c1"), log.settle("r", "c1"))[0],
    "ended": lambda log: (log.settle("r", "c1"), log.end("r"))[1],
    "cancelled": lambda log: (log.ask_to_stop("r"), log.cancel("r"))[0] and None,
}


@pytest.mark.parametrize("phase", PHASES)
def test_the_first_answer_counts_for_ever(phase: str) -> None:
    """Wherever its call stands since: the same again is harmless, another one is told the first (F88, F97, F102)."""
    log = asked()
    first = answer(log, "approve", by="ann")
    PHASES[phase](log)
    assert not is_news(log, YES)
    assert not is_news(log, Given("c1", "approve", by="bob"))
    for other in OTHERS:
        with pytest.raises(AnswerConflictError) as refused:
            is_news(log, other)
        assert refused.value.first == first


def test_an_answer_after_the_default_is_told_the_default() -> None:
    """What nobody said in time was decided; that counts as the first answer (F143)."""
    log = asked("input", deadline=5.0, default="blue")
    first = answer(log, "value", "blue", expired=True)
    assert not is_news(log, Given("c1", "value", "blue"), now=9.0)
    with pytest.raises(AnswerConflictError) as refused:
        is_news(log, Given("c1", "value", "red"), now=9.0)
    assert refused.value.first == first
    assert not is_news(log, Given("c1", "value", "blue", expired=True), now=9.0)


def test_the_deadline_itself_is_too_late() -> None:
    """An answer must come before; the default comes then and not earlier by itself."""
    log = asked(deadline=5.0)
    assert is_news(log, YES, now=4.999)
    for now in (5.0, 6.0):
        with pytest.raises(AnswerExpiredError) as refused:
            is_news(log, YES, now=now)
        assert refused.value.deadline == 5.0
        assert is_news(log, Given("c1", "deny", expired=True), now=now)


@pytest.mark.parametrize("kind", KINDS)
def test_a_default_is_taken_whatever_the_question(kind: WaitingKind) -> None:
    """It is the tool author's, of a time when the schema may have been another one: nothing waits for ever."""
    log = asked(kind, schema={"type": "integer"}, deadline=1.0)
    for decision in ("deny", "value"):
        assert is_news(log, Given("c1", decision, "text", expired=True), now=2.0)


# --- what waits -----------------------------------------------------------------------------------------------------


def test_an_unknown_id_is_answered_with_those_that_wait() -> None:
    """Nothing is guessed; what could have been meant is listed (F88, F91)."""
    log = asked()
    log.say("r", call("c2"), call("c3"), author="b")
    log.pause("r", WaitingCall("c1", "confirmation"), WaitingCall("c2", "input"))
    with pytest.raises(UnknownCallError, match=r"c1.*c2"):
        is_news(log, Given("zz", "approve"))
    with pytest.raises(UnknownCallError):
        is_news(log, Given("", "approve"))


def test_a_call_that_asks_nothing_takes_no_answer() -> None:
    """Proposed, started or settled: the error says where it stands."""
    log = Log()
    log.run("r", "do it")
    log.say("r", call("c1"))
    for phase, step in (("proposed", lambda: None), ("started", lambda: log.start("r", "c1")),
                        ("settled", lambda: log.settle("r", "c1"))):  # fmt: skip
        step()
        with pytest.raises(NotWaitingError, match=phase):
            is_news(log, YES)


def test_a_stopped_call_takes_no_answer() -> None:
    """Neither one that was stopped alone nor one of a run that is being stopped: its approval would be void (F86)."""
    alone, whole = asked(), asked()
    alone.stop_call("r", "c1")
    whole.ask_to_stop("r")
    for log in (alone, whole):
        for decision in ("approve", "deny"):
            with pytest.raises(NotWaitingError, match="stopped"):
                is_news(log, Given("c1", decision))


def test_a_call_in_the_background_is_answered_though_its_run_was_stopped() -> None:
    """What goes on elsewhere has an outcome, whatever became of the run that began it."""
    log = Log()
    log.run("r", "do it")
    log.say("r", call("c1"))
    log.start("r", "c1")
    log.settle("r", "c1", "detached")
    log.pause_held("r", WaitingCall("c1", "long_running"))
    log.ask_to_stop("r")
    log.cancel("r")
    assert is_news(log, Given("c1", "value", {"done": True}))


def test_a_second_question_of_a_call_wants_a_second_answer() -> None:
    """Paused is what has a question without an answer, and not what once was answered (F93)."""
    log = asked("input")
    answer(log, "value", "a")
    log.start("r", "c1")
    log.pause("r", WaitingCall("c1", "confirmation"))
    assert is_news(log, YES)
    with pytest.raises(AnswerKindError):
        is_news(log, Given("c1", "value", "a"))


# --- several at once ------------------------------------------------------------------------------------------------


def three() -> Log:
    log = Log()
    log.run("r", "do it")
    log.say("r", call("c1"), call("c2"), call("c3"))
    log.pause("r", *(WaitingCall(call_id, "confirmation") for call_id in ("c1", "c2", "c3")))
    return log


def test_several_answers_are_news_in_their_order() -> None:
    """Each lands at its own call, in whatever order it comes; the same twice is one (F90)."""
    log = three()
    both = [Given("c3", "deny"), Given("c1", "approve"), Given("c3", "deny")]
    assert check_answers(log.state, both, now=0) == both[:2]
    answer(log, "deny", call_id="c3")
    assert check_answers(log.state, both, now=0) == [Given("c1", "approve")]
    answer(log, "approve")
    assert check_answers(log.state, both, now=0) == []


def test_contradicting_answers_are_all_refused() -> None:
    """Also where one of them is what counts already: whoever sends both does not know what they want."""
    log = three()
    for _ in range(2):
        with pytest.raises(ContradictingAnswersError) as refused:
            is_news(log, Given("c2", "approve"), Given("c1", "approve"), Given("c1", "deny"))
        assert refused.value.call_id == "c1"
        answer(log, "approve")


@pytest.mark.parametrize("wrong", [Given("zz", "approve"), Given("c2", "value", 1)])
def test_one_answer_that_is_refused_refuses_all(wrong: Given) -> None:
    """Nothing is half taken."""
    with pytest.raises((AnswerError, UnknownCallError)):
        is_news(three(), Given("c1", "approve"), wrong)


def test_no_answers_are_no_news() -> None:
    """An empty list is harmless."""
    assert check_answers(three().state, [], now=0) == []


# --- answers in messages ----------------------------------------------------------------------------------------------


def test_a_confirmation_in_a_message() -> None:
    """Yes or no, with a payload, edited arguments or a reason; by the id of the call or of its confirmation (F94)."""
    for call_id in ("c1", "c1:confirmation"):
        assert given_by(asked(), {"confirmed": True}, call_id) == Given("c1", "approve", by="ann")
        assert given_by(asked(), {"confirmed": False}, call_id) == Given("c1", "deny", by="ann")
    told = given_by(asked(), {"confirmed": True, "payload": {"x": 1}, "args": {"n": 2}})
    assert (told.value, told.args) == ({"x": 1}, {"n": 2})
    assert given_by(asked(), {"confirmed": False, "reason": "too much"}).value == "too much"
    assert given_by(asked(), {"confirmed": False, "payload": "why"}).value == "why"


@pytest.mark.parametrize("response", [{}, {"result": True}, {"confirmed": "yes"}, {"confirmed": None}, {"ok": 1}])
def test_what_is_no_yes_or_no_confirms_nothing(response: dict[str, Any]) -> None:
    """A sentence such as "Approved by user" is no approval, and no result either (F94, F95)."""
    with pytest.raises(AnswerKindError):
        given_by(asked(), response)


@pytest.mark.parametrize("args", ["text", 1, [], [{}], True])
def test_edited_arguments_are_an_object(args: Any) -> None:
    """What could not be read back from the log is refused before it is in there (F98, F103)."""
    with pytest.raises(AnswerInvalidError, match="args"):
        given_by(asked(), {"confirmed": True, "args": args})


def test_a_result_in_a_message() -> None:
    """The value itself; one that is wrapped as ADK wraps it is unwrapped."""
    log = asked("client")
    assert given_by(log, {"result": [1]}) == Given("c1", "value", [1], by="ann")
    assert given_by(log, {"a": 1, "result": 2}).value == {"a": 1, "result": 2}
    assert given_by(log, {}).value == {}
    assert given_by(log, {"confirmed": True}) == Given("c1", "value", {"confirmed": True}, by="ann")


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("kind", ["confirmation", "client", "input"])
def test_the_same_message_again_is_harmless(kind: WaitingKind, phase: str) -> None:
    """A client that repeats what it sent, long after, is told nothing new and disturbs nothing (F88, F97)."""
    log = asked(kind)
    first = given_by(log, {"confirmed": True})
    answer(log, first.decision, first.value, args=first.args)
    PHASES[phase](log)
    assert not is_news(log, given_by(log, {"confirmed": True}))
    with pytest.raises(AnswerConflictError):
        is_news(log, given_by(log, {"confirmed": False}))


# --- any log, any answer ----------------------------------------------------------------------------------------------

values = st.sampled_from((None, True, 1, "x", {}, {"confirmed": True}, [1]))
givens = st.builds(
    Given,
    st.sampled_from(("c1", "c2", "CALL", "", "nobody")),
    st.sampled_from(DECISIONS),
    values,
    st.none() | st.just({"n": 1}),
    expired=st.booleans(),
)
responses = st.dictionaries(st.sampled_from(("confirmed", "result", "args", "payload", "x")), values, max_size=3)


@given(wild_logs(), st.lists(givens, max_size=4), st.floats(0, 10))
def test_any_answer_to_any_log_is_taken_or_refused(records: list[Record], given_: list[Given], now: float) -> None:
    """Total: an error of the answer's kind or a decision, the same each time; the state is left alone. What is taken
    counts then, and is a repeat from there on."""
    state = fold(records)
    before = copy.deepcopy(state.calls)
    try:
        fresh = check_answers(state, given_, now=now)
    except (AnswerError, UnknownCallError):
        assert state.calls == before
        return
    assert state.calls == before
    assert len({one.call_id for one in fresh}) == len(fresh)
    for one in fresh:
        assert state.calls[one.call_id].question is not None
        state.apply(
            Answered(id="a", time=now, seq=state.last_seq + 1, run_id=state.calls[one.call_id].run_id,
                     call_id=one.call_id, decision=one.decision, value=one.value, args=one.args, expired=one.expired)
        )  # fmt: skip
    assert check_answers(state, given_, now=now) == []
    check_nothing_waits(state, fresh)


def check_nothing_waits(state: SessionState, fresh: list[Given]) -> None:
    for one in fresh:
        known = state.calls.get(one.call_id)
        assert known is None or not known.is_waiting


@given(wild_logs(), st.sampled_from(("c1", "c2", "c1:confirmation", "", "nobody")), responses)
def test_any_message_can_be_read_as_an_answer(records: list[Record], call_id: str, response: dict[str, Any]) -> None:
    """Total, and what comes out can be judged."""
    state = fold(records)
    try:
        one = given_by_response(state, FunctionResponse(call_id=call_id, name="t", response=response), by="")
    except AnswerError:
        return
    assert one.args is None or isinstance(one.args, dict)
    assert not one.call_id.endswith(":confirmation")


@given(grammatical_logs())
def test_whatever_waits_can_be_answered(records: list[Record]) -> None:
    """At each record of real logs: a waiting call of a run that nobody stops takes a no, or an operator's yes (P8)."""
    state = SessionState()
    for record in records:
        state.apply(record)
        for known in list(state.calls.values()):
            if known.is_waiting and state.run(known.run_id).cancel is None:
                assert known.question is not None
                decision: Decision = "approve" if known.question.kind == "operator" else "deny"
                assert check_answers(state, [Given(known.call.call_id, decision)], now=0)
