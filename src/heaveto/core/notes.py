"""The words in which a model is told what the runtime knows and it does not (P2).

Constant texts: no clock, no random ids, because provider caches and signed thinking bind to the exact prefix.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias, assert_never

import msgspec

from heaveto.events.contents import FunctionCall, FunctionResponse, Json
from heaveto.events.records import CallSettled, CallStatus, Cause, ErrorInfo, OutcomeKind

CONTINUE = "Continue."
WITHHELD = "[An answer was withheld by a guardrail.]"

_BECAUSE: dict[Cause, str] = {
    "user": "the user stopped the run",
    "deadline": "the run's deadline passed",
    "budget": "the run's budget was used up",
    "guardrail": "a guardrail stopped the run",
    "shutdown": "the service was shutting down",
    "superseded": "the user sent another message",
    "disconnect": "the client went away",
    "lease_lost": "another worker took the session over",
    "crash": "the process died",
    "error": "the run failed",
    "timeout": "its time limit passed",
    "sibling": "another call of the same step failed",
    "expired": "nobody answered in time",
}


_BECAUSE_OF_ITSELF: dict[Cause, str] = {"user": "the user stopped it", "guardrail": "a guardrail stopped it"}
"""Where the call was stopped alone, and its run went on."""


def because(cause: Cause | None, *, alone: bool = False) -> str:
    """Return the cause as the end of a sentence."""
    if cause is None:
        return "the run ended"
    return _BECAUSE_OF_ITSELF.get(cause, _BECAUSE[cause]) if alone else _BECAUSE[cause]


def settled_response(
    wire_id: str, name: str, settled: CallSettled, *, alone: bool = False, partial: Sequence[str] = ()
) -> FunctionResponse:
    """Return the result of a settled call as a model is told it; `alone` if it was stopped, and not its run.

    `partial` is what an agent that worked for it had found, where it did not come to its end.
    """
    response = settled.response
    if settled.status == "succeeded":
        return FunctionResponse(call_id=wire_id, name=name, response={} if response is None else response)
    if settled.status == "detached":
        going_on: dict[str, Json] = {"status": "detached", "handle": settled.call_id, "note": _DETACHED}
        return FunctionResponse(call_id=wire_id, name=name, response={**going_on, **(response or {})})
    if settled.status != "failed" or response is None:
        told: dict[str, Json] = {"status": settled.status, "error": _explain(settled, alone)}
        response = told if response is None else {**told, "returned": response}
    if partial:
        response = {**response, **partial_findings(partial)}
    return FunctionResponse(call_id=wire_id, name=name, response=response, is_error=True)


def partial_findings(partial: Sequence[str]) -> dict[str, Json]:
    """Return what was found before the end, marked as what it is (F157)."""
    return {"partial_findings": list(partial), "note": _PARTIAL}


_PARTIAL = (
    "The agent did not finish. These are its words, calls and results up to there. Check before you rely on them."
)
_DETACHED = "This call goes on in the background. Its outcome will be told when it comes; do not wait for it."


def _explain(settled: CallSettled, alone: bool) -> str:  # noqa: PLR0911 - one for each status
    why = because(settled.cause, alone=alone)
    match settled.status:
        case "not_started":
            return f"This call was not started because {why}. It had no effect."
        case "cancelled" if settled.cause is None:
            return "The work of this call was given up by those who did it. It may have had partial effect."
        case "cancelled":
            return f"This call was stopped while it was running, because {why}. It may have had partial effect."
        case "unknown" if settled.cause is None:
            return _OPEN["unknown"]
        case "unknown":
            return (
                f"This call was started, and then {why} before its outcome was known. It may have taken "
                "effect, and may still do so. Check before doing it again."
            )
        case "denied" if settled.cause is None:
            return "This call was denied. It was not executed and had no effect."
        case "denied":
            return f"This call was not approved: {why}. It was not executed and had no effect."
        case "failed":
            return "This call failed."
        case "succeeded":
            return "This call succeeded."
        case "detached":
            return _DETACHED
        case _:
            assert_never(settled.status)


OpenStatus: TypeAlias = Literal["not_started", "unknown", "pending"]

_OPEN: dict[OpenStatus, str] = {
    "not_started": "This call was not started. It had no effect.",
    "unknown": (
        "This call was started and its outcome is not known. It may have taken effect. Check before doing it again."
    ),
    "pending": "This call waits for an answer from outside. It has neither succeeded nor failed yet.",
}


def open_response(wire_id: str, name: str, status: OpenStatus) -> FunctionResponse:
    """Return what stands in for the result of a call about which nothing final is known."""
    told: dict[str, Json] = {"status": status, "error": _OPEN[status]}
    return FunctionResponse(call_id=wire_id, name=name, response=told, is_error=status != "pending")


def late_note(
    wire_id: str, name: str, settled: CallSettled, *, alone: bool = False, partial: Sequence[str] = ()
) -> str:
    """Return the news of a result that came after the model was told something else."""
    told = settled_response(wire_id, name, settled, alone=alone, partial=partial)
    return f"[Late result of the earlier call {wire_id} to {name}, {settled.status}: {as_json(told.response)}]"


def open_note(wire_id: str, name: str, status: OpenStatus) -> str:
    """Return the news of a call that is still open, after the model was told something else."""
    told = open_response(wire_id, name, status)
    return f"[News of the earlier call {wire_id} to {name}, {status}: {as_json(told.response)}]"


def background_note(handle: str, name: str, status: CallStatus) -> str:
    """Return the input of the run that begins because a call in the background has ended."""
    return f"[The background call {handle} to {name} has ended: {status}.]"


def cut_note(cause: Cause) -> str:
    """Return the mark behind an answer that was cut off (F61)."""
    return f"[Your answer above was cut off there because {because(cause)}.]"


DELIVERED = "[Only that much of your answer above reached the user. They do not know what you meant to say behind it.]"
_LAST_WORDS = 80


def delivered_note(author: str, delivered: str) -> str:
    """Return the same of an answer that stands there in full; `author` if another agent gave it (F62)."""
    whose = f"{author}'s last answer" if author else "your last answer in that task"
    if not delivered.strip():
        return f"[Nothing of {whose} reached the user.]"
    return f"[Of {whose} only the beginning reached the user, up to: {as_json(delivered[-_LAST_WORDS:])}]"


_ENDED: dict[Cause, str] = {
    "user": "The user stopped the task above.",
    "deadline": "The task above ran past its deadline and was stopped.",
    "budget": "The task above used up its budget and was stopped.",
    "guardrail": "A guardrail stopped the task above.",
    "shutdown": "The task above was interrupted by a shutdown of the service.",
    "superseded": "The user sent the next message before the task above was finished.",
    "disconnect": "The client went away before the task above was finished.",
    "lease_lost": "The task above was interrupted because another worker took the session over.",
    "crash": "The process died before the task above was finished.",
    "error": "The task above ended with an error.",
    "timeout": "The task above ran past a time limit and was stopped.",
    "sibling": "The task above was stopped because another one failed.",
    "expired": "The task above was not answered in time.",
}


def ended_note(outcome: OutcomeKind, cause: Cause | None, error: ErrorInfo | None) -> str | None:
    """Return the boundary behind a run that did not complete, so that it is neither resumed nor denied (F36)."""
    if outcome == "completed":
        return None
    if cause == "superseded":
        return f"[{_ENDED[cause]} Take both into account.]"
    if cause is not None:
        return f"[{_ENDED[cause]} Do not go on with it unless asked to.]"
    what = f" ({error.type})" if error is not None else ""
    return f"[The task above ended with an error{what}. Do not go on with it unless asked to.]"


def foreign_text(author: str, text: str) -> str:
    """Quote what another agent said."""
    return f"[{author} said:] {text}"


def foreign_call(author: str, call: FunctionCall) -> str:
    """Quote a call of another agent."""
    return f"[{author} called {call.name} with {as_json(call.args)}]"


def foreign_cut(author: str) -> str:
    """Say that another agent's words end in the middle."""
    return f"[{author} was cut off there.]"


def foreign_result(
    author: str, name: str, settled: CallSettled, *, alone: bool = False, partial: Sequence[str] = ()
) -> str:
    """Quote a result that another agent got."""
    told = settled_response("", name, settled, alone=alone, partial=partial)
    return f"[{author}'s call to {name} returned:] {as_json(told.response)}"


def as_json(value: Json) -> str:
    """Return a JSON value as text, the same each time."""
    return msgspec.json.encode(value).decode()


# --- foreign histories: nothing tells what became of a call ---------------------------------------------------------

_UNRECORDED: dict[str, str] = {
    "unknown": (
        "No result was recorded for this call. It may or may not have taken effect. Check before doing it again."
    ),
    "pending": "This call is still pending. It has neither succeeded nor failed yet.",
    "malformed": (
        "The arguments of this call were no JSON object, and no result was recorded for it. Call again with valid "
        "arguments if it is still needed."
    ),
}


def unrecorded(why: Literal["unknown", "pending", "malformed"], words: str | None, raw_args: str | None) -> Json:
    """Return what stands for the result of a call in a history that has none; `words` replace the usual ones."""
    told: dict[str, Json] = {"status": why, "note" if why == "pending" else "error": words or _UNRECORDED[why]}
    return told if raw_args is None else {**told, "arguments": raw_args}


def orphan_note(call_id: str, name: str, text: str) -> str:
    """Quote a result whose call is not in the history."""
    whose = " ".join(word for word in (call_id, f"to {name}" if name else "") if word)
    return f"[Result of an earlier call{f' {whose}' if whose else ''} that is not shown: {text}]"
