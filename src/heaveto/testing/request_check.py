"""Whether every provider would take a request: the encoders and the validators, end to end (P1)."""

from __future__ import annotations

from collections.abc import Sequence

from heaveto.core.request import ModelRequest, Turn
from heaveto.events.contents import calls_of


def find_breach(request: ModelRequest) -> str | None:
    """Return what is wrong with a request, in words, or None. Costs the whole history."""
    return grammar_breach(request.turns)


def grammar_breach(turns: Sequence[Turn]) -> str | None:
    """Return where the turns break the grammar of `heaveto.core.request`, or None."""
    previous: Turn | None = None
    for index, turn in enumerate(turns):
        problem = _turn_breach(previous, turn)
        if problem is not None:
            return f"breaks the grammar of turns at turn {index}: {problem}"
        previous = turn
    if previous is None:
        return "has no turns"
    return "ends with a model turn" if previous.role == "model" else None


def _turn_breach(previous: Turn | None, turn: Turn) -> str | None:
    role = previous.role if previous is not None else None
    calls = calls_of(previous.parts) if previous is not None else ()
    if role is None and turn.role != "user":
        return f"the first turn is of the {turn.role}"
    if role == turn.role:
        return f"two turns of the {turn.role} in a row"
    if turn.role != "tool" and turn.responses:
        return f"a result in a turn of the {turn.role}"
    if turn.role != "model" and calls_of(turn.parts):
        return f"a call in a turn of the {turn.role}"
    asked = [call.call_id for call in calls]
    answered = [response.call_id for response in turn.responses]
    if asked != answered:
        return f"the calls {asked} are answered by {answered}"
    return None
