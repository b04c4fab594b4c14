"""What a projection owes its log, judged from the records alone and without the code that is judged."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec
from tests.core.logs import all_text, results

from heaveto.core.request import ModelProfile, ModelRequest, Turn
from heaveto.core.validate import Violation, anthropic, gemini, openai_chat, openai_responses
from heaveto.events.contents import Content, FunctionCall, Text
from heaveto.events.records import (
    CallSettled,
    CallStarted,
    Cause,
    Message,
    Paused,
    Record,
    RunEnded,
    RunStarted,
)
from heaveto.models.wire import anthropic as anthropic_wire
from heaveto.models.wire import gemini as gemini_wire
from heaveto.models.wire import openai_chat as chat_wire
from heaveto.models.wire import openai_responses as responses_wire
from heaveto.testing.request_check import grammar_breach

WORDS: dict[Cause, str] = {
    "user": "the user stopped",
    "deadline": "deadline",
    "budget": "budget",
    "guardrail": "guardrail",
    "shutdown": "shut",
    "superseded": "the user sent",
    "disconnect": "client went away",
    "lease_lost": "another worker",
    "crash": "the process died",
    "error": "the run failed|ended with an error",
    "expired": "answered in time",
}
"""What the model must be able to read for each cause; no cause has the words of another one."""


def breach_of(turns: Sequence[Turn], family: str) -> str | None:
    """Return what is wrong with the turns, by the grammar or by the rules of one provider."""
    broken = grammar_breach(turns)
    violation = None if broken else _violation(ModelRequest(turns=turns), family)
    return broken or (str(violation) if violation else None)


def _violation(request: ModelRequest, family: str) -> Violation | None:
    match family:
        case "openai":
            return openai_chat.validate(chat_wire.encode(request), strict_unconfirmed=True)
        case "openai-responses":
            return openai_responses.validate(responses_wire.encode(request), strict_unconfirmed=True)
        case "anthropic":
            return anthropic.validate(anthropic_wire.encode(request), strict_unconfirmed=True)
        case _:
            return gemini.validate(gemini_wire.encode(request), strict_unconfirmed=True, signatures=True)


class Viewpoint(msgspec.Struct, frozen=True):
    """Whose model is asked."""

    agent: str
    branch: str
    profile: ModelProfile

    @property
    def is_isolated(self) -> bool:
        return "@" in self.branch

    def sees(self, branch: str) -> bool:
        """Its own branch, those above up to where it is isolated, and those below that are not isolated."""
        scope = self.branch[: self.branch.rfind("@")] if self.is_isolated else None
        if scope is not None and not branch.startswith(f"{scope}@"):
            return False
        if self.is_above(branch):
            return True
        below = branch[len(self.branch) :]
        starts_below = not self.branch or below.startswith(".")
        return branch.startswith(self.branch) and starts_below and "@" not in below

    def is_above(self, branch: str) -> bool:
        return branch in ("", self.branch) or self.branch.startswith((f"{branch}.", f"{branch}@"))

    def is_own(self, message: Message) -> bool:
        return message.author == self.agent and self.is_above(message.branch)


def heard(view: Viewpoint, records: Sequence[Record]) -> Iterator[Content]:
    """What users said to started runs, as far as the view may see it."""
    for record in records:
        match record:
            case RunStarted(attempt=1) if not view.is_isolated:
                yield record.input
            case Message(author="user") if view.sees(record.branch):
                yield Content(record.parts)
            case _:
                pass


def seen_calls(view: Viewpoint, records: Sequence[Record], *, own: bool) -> Iterator[FunctionCall]:
    for record in records:
        if not isinstance(record, Message) or record.author == "user" or not view.sees(record.branch):
            continue
        if record.interrupted == "guardrail":
            continue
        if view.is_own(record) is own:
            yield from (part for part in record.parts if isinstance(part, FunctionCall))


def check_nothing_is_lost(view: Viewpoint, records: Sequence[Record], turns: Sequence[Turn]) -> None:
    """All that users said is in user turns, and each result is told exactly once (c)."""
    said = all_text([turn for turn in turns if turn.role == "user"])
    for content in heard(view, records):
        assert not content.text.strip() or content.text in said, f"{content.text!r} is lost"
        assert not re.fullmatch(r"user\d+;", content.text) or said.count(content.text) == 1
    everything = all_text(turns) + msgspec.json.encode([result[1] for result in results(turns)]).decode()
    calls = [*seen_calls(view, records, own=True), *seen_calls(view, records, own=False)]
    for record in records:
        if isinstance(record, CallSettled) and record.response and any(c.call_id == record.call_id for c in calls):
            (mark,) = record.response.values()
            assert everything.count(str(mark)) == 1, f"{mark!r} is told {everything.count(str(mark))} times"


def check_calls_are_told_truly(view: Viewpoint, records: Sequence[Record], turns: Sequence[Turn]) -> None:
    """The last word on each own call is what the log knows of it, with its cause (d)."""
    for call in seen_calls(view, records, own=True):
        status, settled = _truth(call, records)
        told, text = _last_word(call, turns)
        assert told == status, f"{call.name} is {status}, and told as {told}"
        if settled is not None and settled.cause is not None and status not in ("succeeded", "failed"):
            assert causes_in(text) == [settled.cause]


def _truth(call: FunctionCall, records: Sequence[Record]) -> tuple[str, CallSettled | None]:
    status, settled = "not_started", None
    for record in records:
        match record:
            case CallStarted(call_id=call.call_id):
                status = "unknown"
            case CallSettled(call_id=call.call_id):
                status, settled = record.status, record
            case Paused() if any(waiting.call_id == call.call_id for waiting in record.waiting):
                status = "pending"
            case _:
                pass
    return status, settled


def _last_word(call: FunctionCall, turns: Sequence[Turn]) -> tuple[str, str]:
    """Tools are named uniquely, so the name finds everything that was said of the call."""
    (answer,) = [answer for turn in turns for answer in turn.responses if answer.name == call.name]
    news = re.findall(rf"\[(?:Late result|News) of the earlier call \S+ to {call.name}, (\w+): (.*)\]", all_text(turns))
    if news:
        status, text = news[-1]
        return str(status), str(text)
    told = answer.response.get("status") if "status" in answer.response else None
    default = "failed" if answer.is_error else "succeeded"
    assert answer.is_error or told in (None, "pending")
    return str(told or default), str(answer.response.get("error", ""))


def causes_in(text: str) -> list[Cause]:
    """Every cause whose words are in the text."""
    return [cause for cause, words in WORDS.items() if re.search(words, text, re.IGNORECASE)]


def check_endings_are_told(view: Viewpoint, records: Sequence[Record], turns: Sequence[Turn]) -> None:
    """Each run that did not complete has its boundary, each cut-off answer its mark, in order (F36, F61)."""
    notes = [part.text for turn in turns if turn.role == "user" for part in turn.parts if isinstance(part, Text)]
    started = {record.run_id for record in records if isinstance(record, RunStarted)}
    ended = [
        record
        for record in records
        if isinstance(record, RunEnded) and record.outcome != "completed" and record.run_id in started
    ]
    boundaries = [note for note in notes if re.match(r"\[.*(task above|next message before).*\]$", note)]
    if view.is_isolated:
        assert not boundaries
        return
    assert [causes_in(note) for note in boundaries] == [[record.cause or "error"] for record in ended]
    cut = [
        record
        for record in records
        if isinstance(record, Message) and record.interrupted and view.is_own(record) and _is_sendable(record)
    ]
    marks = [note for note in notes if note.startswith("[Your answer above was cut off")]
    assert [causes_in(mark) for mark in marks] == [[record.interrupted] for record in cut]


def check_withheld_answers_are_not_told(view: Viewpoint, records: Sequence[Record], turns: Sequence[Turn]) -> None:
    """Nobody's model gets what a guardrail blocked, but is told that something was (F155)."""
    withheld = [
        record
        for record in records
        if isinstance(record, Message) and record.interrupted == "guardrail" and view.sees(record.branch)
    ]
    text = all_text(turns)
    assert text.count("withheld by a guardrail") == len(withheld)
    for record in withheld:
        said = Content(record.parts).text.strip()
        assert not said or said not in text


def _is_sendable(message: Message) -> bool:
    """Whether some provider gets a turn of it: in the grammatical logs, if it has text or calls, and may be told."""
    return message.interrupted != "guardrail" and any(
        isinstance(part, FunctionCall) or (isinstance(part, Text) and part.text.strip()) for part in message.parts
    )


def answered_requests(view: Viewpoint, records: Sequence[Record]) -> Iterator[Message]:
    """The messages of the view's own branch that left a model turn behind."""
    for record in records:
        if not isinstance(record, Message) or (record.author, record.branch) != (view.agent, view.branch):
            continue
        if _is_sendable(record):
            yield record
