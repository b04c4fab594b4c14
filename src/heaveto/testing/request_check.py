"""Whether every provider would take a request: the encoders and the validators, end to end (P1)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from heaveto.core.request import ModelRequest, Turn
from heaveto.core.validate import Violation, anthropic, gemini, openai_chat, openai_responses
from heaveto.events.contents import calls_of
from heaveto.models.wire import anthropic as anthropic_wire
from heaveto.models.wire import gemini as gemini_wire
from heaveto.models.wire import openai_chat as chat_wire
from heaveto.models.wire import openai_responses as responses_wire


def find_breach(request: ModelRequest) -> str | None:
    """Return what is wrong with a request, in words, or None. Costs the whole history."""
    return grammar_breach(request.turns) or wire_breach(request)


def wire_breach(request: ModelRequest) -> str | None:
    """Return the rule of a provider that the encoded request breaks, rules that nobody has confirmed included."""
    for name, violation in _violations(request):
        if violation is not None:
            return f"is refused by {name}: {violation}"
    return None


def _violations(request: ModelRequest) -> Iterator[tuple[str, Violation | None]]:
    yield "OpenAI Chat", openai_chat.validate(chat_wire.encode(request), strict_unconfirmed=True)
    yield "OpenAI Responses", openai_responses.validate(responses_wire.encode(request), strict_unconfirmed=True)
    yield "Anthropic", anthropic.validate(anthropic_wire.encode(request), strict_unconfirmed=True)
    yield "Gemini", gemini.validate(gemini_wire.encode(request), strict_unconfirmed=True, signatures=True)


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
