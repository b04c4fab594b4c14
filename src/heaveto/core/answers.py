"""Answers to waiting calls: which are acceptable, and what a message with results means. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, TypeGuard, cast

from heaveto.core.fold import CallState, SessionState
from heaveto.errors import (
    AnswerConflictError,
    AnswerExpiredError,
    AnswerInvalidError,
    AnswerKindError,
    ContradictingAnswersError,
    NotWaitingError,
    UnknownCallError,
)
from heaveto.events.contents import FunctionResponse, Json
from heaveto.events.records import Answered, CallSettled, CallStarted, Paused, Record, WaitingCall

CONFIRMATION_SUFFIX = ":confirmation"
"""A confirmation may be answered by the id of its call, or by that id and this."""
_QUESTION_ID = re.compile(r"(.+)#(\d+)", re.ASCII | re.DOTALL)

Decision: TypeAlias = Literal["approve", "deny", "value", "result"]


@dataclass(frozen=True, slots=True)
class Given:
    """An answer that someone gives. `args` are edited arguments; the rest is as in `Answered`.

    `question_seq` is that of the only question of the call that it answers; 0 answers the one that is asked now.
    """

    call_id: str
    decision: Decision
    value: Json = None
    args: dict[str, Json] | None = None
    by: str = ""
    expired: bool = False
    question_seq: int = 0

    def says_the_same_as(self, other: Given | Answered) -> bool:
        return (self.decision, self.value, self.args) == (other.decision, other.value, other.args)


def question_id(call: CallState) -> str:
    """Return the id of what a call asks now. Its next question has another one, and takes no answer to this (F90)."""
    return f"{call.call.call_id}#{call.question_seq}"


def addressed(answer_id: str) -> tuple[str, int]:
    """Return the call that an id of an answer names, and the seq of its question; 0 where it names the call only."""
    match = _QUESTION_ID.fullmatch(answer_id)
    return (match[1], int(match[2])) if match else (answer_id.removesuffix(CONFIRMATION_SUFFIX), 0)


def check_answers(state: SessionState, given: Sequence[Given], *, now: float) -> list[Given]:
    """Return those of the answers that are news: the same answer again is none.

    Raises:
        ContradictingAnswersError: two of them answer one call differently.
        UnknownCallError: no open call has the id.
        NotWaitingError: the call asks nothing, or not this any more.
        AnswerConflictError: another answer came first.
        AnswerExpiredError: it came too late.
        AnswerKindError: a decision that does not answer this kind of question.
        AnswerInvalidError: a value that does not fit its schema.
    """
    seen: dict[str, Given] = {}
    for answer in given:
        if not seen.setdefault(answer.call_id, answer).says_the_same_as(answer):
            raise ContradictingAnswersError(answer.call_id)
    return [answer for answer in seen.values() if _is_news(state, answer, now)]


def _is_news(state: SessionState, given: Given, now: float) -> bool:
    call = state.calls.get(given.call_id)
    if given.question_seq and (call is None or call.question_seq != given.question_seq):
        return _is_news_of_earlier_question(state, given)
    if call is None:
        return _is_old_news(state, given)
    if call.answer is not None:
        return _is_repeat(given, call.answer)
    asked, run = call.question, state.run(call.run_id)
    if asked is None:
        raise NotWaitingError(given.call_id, f"it is {call.phase}, and asks nothing")
    if call.cancel is not None or (run.cancel is not None and run.ended is None):
        raise NotWaitingError(given.call_id, "it was stopped")
    if asked.deadline is not None and asked.deadline <= now and not given.expired:
        raise AnswerExpiredError(given.call_id, asked.deadline)
    _check_kind(given, asked)
    return True


def _is_old_news(state: SessionState, given: Given) -> bool:
    """An answer to a call that is closed: a repeat of the one that counted is harmless."""
    first = _first_answer(state, given.call_id)
    if first is not None:
        return _is_repeat(given, first)
    settled = next((one for one in reversed(state.records) if _settles(one, given.call_id)), None)
    if settled is not None:
        why = f", {settled.cause}" if settled.cause else ""
        raise NotWaitingError(given.call_id, f"it has ended ({settled.status}{why})")
    open_calls = tuple(call.call.call_id for call in state.calls.values() if call.is_waiting)
    raise UnknownCallError("", given.call_id, open_calls)


def _settles(record: Record, call_id: str) -> TypeGuard[CallSettled]:
    return isinstance(record, CallSettled) and record.call_id == call_id


def _is_news_of_earlier_question(state: SessionState, given: Given) -> bool:
    first = answer_to(state, given.call_id, given.question_seq)
    if first is None:
        raise NotWaitingError(given.call_id, f"it does not ask {given.call_id}#{given.question_seq} any more")
    return _is_repeat(given, first)


def answer_to(state: SessionState, call_id: str, question_seq: int) -> Answered | None:
    """Return the answer that counted for one question of a call; None if it had none before the call went on."""
    for record in state.records[question_seq:]:
        match record:
            case Answered() if record.call_id == call_id:
                return record
            case CallStarted() | CallSettled() if record.call_id == call_id:
                return None
            case _:
                pass
    return None


def _first_answer(state: SessionState, call_id: str) -> Answered | None:
    """Return the answer that counted for the last question of a call."""
    call = state.calls.get(call_id)
    if call is not None:
        return call.answer
    answers = (record for record in reversed(state.records) if isinstance(record, Answered))
    return next((record for record in answers if record.call_id == call_id), None)


def _is_repeat(given: Given, first: Answered) -> bool:
    if not given.expired and not given.says_the_same_as(first):
        raise AnswerConflictError(given.call_id, first)
    return False


def _check_kind(given: Given, asked: WaitingCall) -> None:
    if given.expired:
        return
    if asked.kind == "operator" and given.decision != "approve":  # who does not let it go on stops the run
        raise AnswerKindError(given.call_id, given.decision, asked.kind)
    is_confirmation = asked.kind in ("confirmation", "operator")
    if given.decision == "approve" and not is_confirmation:
        raise AnswerKindError(given.call_id, given.decision, asked.kind)
    if given.decision == "value" and is_confirmation:
        raise AnswerKindError(given.call_id, given.decision, asked.kind)
    if not is_confirmation and given.decision in ("value", "result"):
        problem = answer_problem(given.value, asked.schema)
        if problem is not None:
            raise AnswerInvalidError(given.call_id, problem)


def answer_problem(value: Json, schema: dict[str, Json] | None) -> str | None:
    """Return where a value does not fit a JSON schema, or None if it does. Nothing fits a schema that is none.

    The schema may come from a model. What it refers to is never fetched: such a schema cannot be used.
    """
    if schema is None:
        return None
    from jsonschema import ValidationError, validate
    from referencing.jsonschema import SchemaRegistry

    try:
        validate(value, schema, registry=SchemaRegistry())
    except ValidationError as error:
        return f"{error.json_path}: {error.message}"
    except Exception as error:  # noqa: BLE001 - an edge: the schema is the tool author's; a bad one raises anything
        return f"its schema cannot be used: {type(error).__name__}: {error}"
    return None


def last_question(state: SessionState, call_id: str) -> WaitingCall | None:
    """Return what a call asks, or what it asked last; None if it never did."""
    call = state.calls.get(call_id)
    if call is not None and call.question is not None:
        return call.question
    for record in reversed(state.records):
        for waiting in record.waiting if isinstance(record, Paused) else ():
            if waiting.call_id == call_id:
                return waiting
    return None


def given_by_response(state: SessionState, response: FunctionResponse, *, by: str) -> Given:
    """Return what a function response in a message answers.

    To a confirmation: ``{"confirmed": bool}``, with `payload`, edited `args` or a `reason` if wanted; the id may be
    that of the call, of its confirmation or of the question. To anything else: the result itself.

    Raises:
        AnswerKindError: a result for a call that wants a confirmation.
        AnswerInvalidError: edited arguments that are none.
    """
    call_id, seq = addressed(response.call_id)
    asked, told = last_question(state, call_id), response.response
    kind = asked.kind if asked is not None else None
    if isinstance(told.get("confirmed"), bool) and kind in ("confirmation", "operator", None):
        if told["confirmed"]:
            args = told.get("args")
            if args is not None and not isinstance(args, dict):
                raise AnswerInvalidError(call_id, "args: edited arguments are an object")
            edited = cast("dict[str, Json] | None", args)
            return Given(call_id, "approve", told.get("payload"), edited, by, question_seq=seq)
        return Given(call_id, "deny", told.get("reason", told.get("payload")), by=by, question_seq=seq)
    if kind in ("confirmation", "operator"):
        raise AnswerKindError(call_id, "result", kind)
    only = told["result"] if len(told) == 1 and "result" in told else told
    return Given(call_id, "value", only, by=by, question_seq=seq)
