"""What a view knows of a call, and what it has told of it."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, assert_never

from heaveto.core import notes
from heaveto.events.contents import FunctionResponse, Part
from heaveto.events.records import CallSettled, CallStarted, CallStatus, Paused

Fact: TypeAlias = CallStarted | CallSettled | Paused
Told: TypeAlias = CallStatus | notes.OpenStatus | Literal["quoted"]


@dataclass(slots=True)
class Said:
    """A part of the user turn to come, for requests that have seen `seq` and not yet `until`."""

    seq: int
    part: Part
    until: int = sys.maxsize + 1


@dataclass(slots=True)
class Call:
    """A call that this view has seen and whose outcome may still change.

    Attributes:
        author: the other agent that made it; empty for a call of the view's own agent.
        facts: what became of it, in order. The newest one that a request has seen is what that request tells.
        told: what was said of it for good; news go into a later turn. None while that may still change.
        news: what is to be said since, of a call that is still open; the next fact takes its place.
        partial: what an agent that worked for it had found, by the seq of the settlement that says it did not finish.
        stop_seq: where it was asked to stop alone, without its run; 0 if it was not.
    """

    call_id: str
    wire_id: str
    name: str
    author: str = ""
    facts: list[Fact] = field(default_factory=list[Fact])
    told: Told | None = None
    news: Said | None = None
    stop_seq: int = 0
    partial: dict[int, tuple[str, ...]] = field(default_factory=dict[int, tuple[str, ...]])

    @property
    def is_final(self) -> bool:
        last = self.facts[-1] if self.facts else None
        return isinstance(last, CallSettled) and last.status not in ("unknown", "detached")

    def hear(self, fact: Fact) -> bool:
        """Take a fact, unless the call was settled before: the first settlement wins (F17), or a late real outcome."""
        last = self.facts[-1] if self.facts else None
        if isinstance(last, CallSettled):
            was_in_background = last.status == "detached"
            is_late = isinstance(fact, CallSettled) and (fact.late or was_in_background)
            if not (is_late and last.status in ("unknown", "detached")):
                return False
        self.facts.append(fact)
        return True

    def known_at(self, seen: int) -> Fact | None:
        """Return the newest fact that a request which has seen `seen` knows."""
        return next((fact for fact in reversed(self.facts) if fact.seq <= seen), None)

    def response(self, seen: int) -> FunctionResponse:
        """Return the result that such a request holds for this call."""
        match self.known_at(seen):
            case CallSettled() as settled:
                alone, partial = self.stopped_alone(settled), self.partial.get(settled.seq, ())
                return notes.settled_response(self.wire_id, self.name, settled, alone=alone, partial=partial)
            case fact:
                return notes.open_response(self.wire_id, self.name, open_status(fact))

    def stopped_alone(self, settled: CallSettled) -> bool:
        """Whether the call was asked to stop by itself before it was settled like this."""
        return 0 < self.stop_seq < settled.seq

    def status(self, seen: int) -> Told:
        """What `response` says in one word."""
        return status_of(self.known_at(seen))


def status_of(fact: Fact | None) -> CallStatus | notes.OpenStatus:
    """Return what a model is told of a call of which this is the last that is known."""
    return fact.status if isinstance(fact, CallSettled) else open_status(fact)


def open_status(fact: CallStarted | Paused | None) -> notes.OpenStatus:
    """The same, of a call that is not settled."""
    match fact:
        case CallStarted():
            return "unknown"
        case Paused():
            return "pending"
        case None:
            return "not_started"
        case _:
            assert_never(fact)
