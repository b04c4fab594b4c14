"""Writing logs by hand: a `Log` gives seq, id and time, and folds what it writes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from msgspec.structs import replace

from heaveto.core.answers import Decision
from heaveto.core.close import Ending, Work, close_run
from heaveto.core.fold import SessionState
from heaveto.core.project import project
from heaveto.core.request import ModelProfile, ModelRequest, Turn, Turns
from heaveto.events.contents import Content, FunctionCall, Part, Text
from heaveto.events.records import (
    Answered,
    CallSettled,
    CallStarted,
    CallStatus,
    CancelRequested,
    Cause,
    Draft,
    Message,
    Paused,
    Record,
    RunEnded,
    RunStarted,
    Trigger,
    WaitingCall,
)
from heaveto.testing.request_check import find_breach

ANTHROPIC = ModelProfile("anthropic")
R = TypeVar("R", bound=Record)


class Log:
    """A log that is being written, and its fold."""

    def __init__(self) -> None:
        self.state = SessionState()

    @property
    def records(self) -> list[Record]:
        return self.state.records

    @property
    def last_seq(self) -> int:
        return self.state.last_seq

    def put(self, record: R) -> R:
        """Append a record of any kind under the next seq."""
        placed = replace(record, seq=self.last_seq + 1)
        self.state.apply(placed)
        return placed

    def stamp(self) -> tuple[str, float]:
        return f"id{self.last_seq + 1}", float(self.last_seq + 1)

    def add(self, kind: Callable[..., R], **fields: Any) -> R:
        """Append a record with the next id and time."""
        record_id, time = self.stamp()
        return self.put(kind(id=record_id, time=time, **fields))

    def run(self, run_id: str, said: str | Content, **more: Any) -> RunStarted:
        content = Content.of(said) if isinstance(said, str) else said
        return self.add(RunStarted, run_id=run_id, input=content, **more)

    def say(self, run_id: str, *parts: str | Part, author: str = "a", **more: Any) -> Message:
        """Record an answer whose request saw everything before it, unless `seen` says otherwise."""
        fields = {"seen": 0 if author == "user" else self.last_seq, **more}
        return self.add(Message, run_id=run_id, author=author, parts=Content.of(*parts).parts, **fields)

    def start(self, run_id: str, *call_ids: str) -> None:
        for call_id in call_ids:
            self.add(CallStarted, run_id=run_id, call_id=call_id)

    def settle(self, run_id: str, call_id: str, status: CallStatus = "succeeded", **more: Any) -> CallSettled:
        return self.add(CallSettled, run_id=run_id, call_id=call_id, status=status, **more)

    def pause(self, run_id: str, *waiting: WaitingCall) -> Paused:
        return self.add(Paused, run_id=run_id, waiting=waiting)

    def pause_held(self, run_id: str, *waiting: WaitingCall) -> Paused:
        """Let calls wait while their run goes on."""
        return self.add(Paused, run_id=run_id, waiting=waiting, held=True)

    def answer(self, run_id: str, call_id: str, decision: Decision = "approve", **more: Any) -> Answered:
        return self.add(Answered, run_id=run_id, call_id=call_id, decision=decision, **more)

    def go_on(self, run_id: str, trigger: Trigger = "answer") -> RunStarted:
        """Begin the next attempt of a run."""
        run = self.state.run(run_id)
        return self.run(run_id, run.input, attempt=run.attempt + 1, trigger=trigger)

    def stop_call(self, run_id: str, call_id: str, cause: Cause = "user") -> CancelRequested:
        return self.add(CancelRequested, run_id=run_id, call_id=call_id, cause=cause)

    def end(self, run_id: str) -> None:
        self.add(RunEnded, run_id=run_id, outcome="completed")

    def ask_to_stop(self, run_id: str, cause: Cause = "user") -> CancelRequested:
        return self.add(CancelRequested, run_id=run_id, cause=cause)

    def close(
        self, run_id: str, ending: Ending, *, drafts: Sequence[Draft] = (), work: Mapping[str, Work] | None = None
    ) -> list[Record]:
        """Close a run as the runner does, and return the closing batch."""
        batch = close_run(self.state.run(run_id), ending, stamp=self.stamp, drafts=drafts, work=work)
        return [self.put(record) for record in batch]

    def cancel(self, run_id: str, cause: Cause = "user", **more: Any) -> list[Record]:
        return self.close(run_id, Ending("cancelled", cause), **more)

    def crash(self, run_id: str, **more: Any) -> list[Record]:
        return self.close(run_id, Ending("failed", "crash"), **more)

    def told(self, agent: str = "a", profile: ModelProfile = ANTHROPIC, *, branch: str = "") -> Turns:
        """Return what the agent's model is told now, accepted by every provider."""
        turns = project(self.records, agent, profile, branch=branch)
        breach = find_breach(ModelRequest(turns=turns))
        assert breach is None, breach
        return turns


def call(call_id: str, name: str = "t", **more: Any) -> FunctionCall:
    return FunctionCall(call_id=call_id, name=name, **more)


def draft(log: Log, run_id: str, *parts: str | Part, author: str = "a", **more: Any) -> Draft:
    """What was received of an answer to the request that saw the log as it is."""
    return Draft(
        message_id=f"draft{log.last_seq}",
        run_id=run_id,
        author=author,
        parts=Content.of(*parts).parts,
        seen=log.last_seq,
        **more,
    )


def shape(turns: Sequence[Turn]) -> str:
    """The roles in order: u, m or t for each turn."""
    return "".join(turn.role[0] for turn in turns)


def user_text(turn: Turn) -> str:
    """All text of a turn, one line for each part."""
    return "\n".join(part.text for part in turn.parts if isinstance(part, Text))


def all_text(turns: Sequence[Turn]) -> str:
    return "\n".join(user_text(turn) for turn in turns)


def results(turns: Sequence[Turn]) -> list[tuple[str, dict[str, Any], bool]]:
    """Every result that is told: call id, response, whether it is an error."""
    return [(response.call_id, response.response, response.is_error) for turn in turns for response in turn.responses]
