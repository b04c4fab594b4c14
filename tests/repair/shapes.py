"""Histories as neutral steps, written in each format; and the numbered family of all that can be wrong with them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias


@dataclass(frozen=True)
class U:
    """The user's words."""

    text: str = "hello"


@dataclass(frozen=True)
class C:
    """A call within an answer. Without an id where the format can do without."""

    id: str = "c1"
    name: str = "t"
    args: str = "{}"


@dataclass(frozen=True)
class A:
    """An answer: words, calls, signed thinking."""

    calls: tuple[C, ...] = ()
    text: str = ""
    thought: str = ""


@dataclass(frozen=True)
class R:
    """A result."""

    id: str = "c1"
    value: str = "done"
    name: str = "t"


Step: TypeAlias = U | A | R
History: TypeAlias = list[dict[str, Any]]


def asks(*ids: str, text: str = "", thought: str = "") -> A:
    """An answer that calls."""
    return A(tuple(C(call_id) for call_id in ids), text, thought)


# --- writing --------------------------------------------------------------------------------------------------------


def chat(steps: Sequence[Step], *, joined: bool = True) -> History:
    """As Chat Completions and Mistral have it."""
    return [_chat_message(step) for step in steps]


def _chat_message(step: Step) -> dict[str, Any]:
    match step:
        case U():
            return {"role": "user", "content": step.text}
        case R():
            return {"role": "tool", "tool_call_id": step.id, "content": step.value}
        case A(calls=()):
            return {"role": "assistant", "content": step.text}
        case A():
            calls = [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.args}}
                for call in step.calls
            ]
            return {"role": "assistant", "content": step.text or None, "tool_calls": calls}


def thinking_chat(steps: Sequence[Step], *, joined: bool = True) -> History:
    """As the thinking modes of Chat servers have it; an answer without a thought lacks what they want."""
    messages = chat(steps)
    for step, message in zip(steps, messages, strict=True):
        if isinstance(step, A) and (step.thought or "_" not in step.text):
            message["reasoning_content"] = step.thought
    return messages


def responses(steps: Sequence[Step], *, joined: bool = True) -> History:
    """As Responses have it."""
    items: History = []
    for step in steps:
        match step:
            case U():
                items.append({"role": "user", "content": step.text})
            case R():
                items.append({"type": "function_call_output", "call_id": step.id, "output": step.value})
            case A():
                if step.thought:
                    items.append({"type": "reasoning", "id": f"rs_{step.thought}", "summary": []})
                if step.text or not step.calls:
                    said = {"id": f"msg_{step.text}"} if step.thought else {}
                    items.append({**said, "role": "assistant", "content": step.text or "."})
                items += [
                    {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": call.args}
                    for call in step.calls
                ]
    return items


def anthropic(steps: Sequence[Step], *, joined: bool = True) -> History:
    """As Anthropic Messages have it. `joined`: results in a row, and the words behind them, are one message."""
    return _blocks(steps, joined, "content", "assistant", _anthropic_block)


def _anthropic_block(piece: U | C | R | str) -> dict[str, Any]:
    match piece:
        case U():
            return {"type": "text", "text": piece.text}
        case C():
            return {"type": "tool_use", "id": piece.id, "name": piece.name, "input": _json(piece.args)}
        case R():
            return {"type": "tool_result", "tool_use_id": piece.id, "content": piece.value}
        case thought:
            return {"type": "thinking", "thinking": thought, "signature": f"sig-{thought}"}


def bedrock(steps: Sequence[Step], *, joined: bool = True) -> History:
    """As Bedrock Converse has it."""
    return _blocks(steps, joined, "content", "assistant", _bedrock_block)


def _bedrock_block(piece: U | C | R | str) -> dict[str, Any]:
    match piece:
        case U():
            return {"text": piece.text}
        case C():
            return {"toolUse": {"toolUseId": piece.id, "name": piece.name, "input": _json(piece.args)}}
        case R():
            return {"toolResult": {"toolUseId": piece.id, "content": [{"text": piece.value}]}}
        case thought:
            return {"reasoningContent": {"reasoningText": {"text": thought, "signature": f"sig-{thought}"}}}


def gemini(steps: Sequence[Step], *, joined: bool = True) -> History:
    """As Gemini has it."""
    contents = _blocks(steps, joined, "parts", "model", _gemini_part)
    for content in contents:
        if content["role"] == "model" and content["parts"][0].get("thought"):
            signature = content["parts"].pop(0)["thoughtSignature"]
            content["parts"] = content["parts"] or [{"text": "."}]
            first = next((part for part in content["parts"] if "functionCall" in part), content["parts"][0])
            first["thoughtSignature"] = signature
    return contents


def _gemini_part(piece: U | C | R | str) -> dict[str, Any]:
    match piece:
        case U():
            return {"text": piece.text}
        case C():
            identity = {"id": piece.id} if piece.id else {}
            return {"functionCall": {**identity, "name": piece.name, "args": _json(piece.args)}}
        case R():
            identity = {"id": piece.id} if piece.id else {}
            named = {"name": piece.name} if piece.name else {}
            return {"functionResponse": {**identity, **named, "response": {"output": piece.value}}}
        case thought:
            return {"thought": True, "thoughtSignature": "c2ln" if thought else ""}


def _blocks(steps: Sequence[Step], joined: bool, key: str, model: str, block: Callable[[Any], Any]) -> History:
    messages: History = []
    previous: Step | None = None
    for step in steps:
        pieces: list[Any] = []
        match step:
            case U() | R():
                pieces = [step]
            case A():
                pieces = [
                    *([step.thought] if step.thought else []),
                    *([U(step.text)] if step.text else []),
                    *step.calls,
                ]
                pieces = pieces or [U(".")]
        blocks = [block(piece) for piece in pieces]
        if (
            joined
            and isinstance(previous, R)
            and isinstance(step, (U, R))
            and not (key == "parts" and isinstance(step, U))
        ):
            messages[-1][key] += blocks
        else:
            messages.append({"role": model if isinstance(step, A) else "user", key: blocks})
        previous = step
    return messages


def _json(args: str) -> Any:
    return {} if args == "{}" else args


WRITERS: dict[str, Callable[..., History]] = {
    "openai": chat,
    "deepseek": thinking_chat,
    "kimi": thinking_chat,
    "qwen": chat,
    "minimax": chat,
    "mistral": chat,
    "mistral-11": chat,
    "openai-responses": responses,
    "deepseek-responses": responses,
    "anthropic": anthropic,
    "minimax-anthropic": anthropic,
    "gemini": gemini,
    "gemini-2.5": gemini,
    "gemini-3": gemini,
    "bedrock": bedrock,
}
"""How each format is written."""


# --- what others may have left behind -------------------------------------------------------------------------------

_IDS = ("c1", "c2", "X", "X", "call_0123456789012345678901234567890123456789", "a.b:c", "c3", "")


def numbered(seed: int) -> list[Step]:
    """Return one history of the family: steps at random, most of them broken, of up to ten steps."""
    chance = random.Random(seed)
    steps: list[Step] = [U(f"u{seed}")] if chance.random() < 0.8 else []
    for place in range(chance.randint(1, 9)):
        steps += _phrase(chance, seed, place)
    return steps


def _phrase(chance: random.Random, seed: int, place: int) -> Iterator[Step]:
    kind = chance.randrange(10)
    if kind < 3:
        yield _call_turn(chance, place)
    elif kind < 6:
        yield R(chance.choice(_IDS), f"r{seed}.{place}", chance.choice(("t", "t", "s")))
    elif kind < 7:
        yield R(chance.choice(_IDS), "same")
    elif kind < 8:
        yield U(f"u{seed}.{place}")
    elif kind < 9:
        yield A(text=f"a{seed}.{place}", thought=f"th{place}" if chance.random() < 0.3 else "")
    else:
        call_id = chance.choice(_IDS)
        yield asks(call_id)
        yield R(call_id, f"r{seed}.{place}")


def _call_turn(chance: random.Random, place: int) -> A:
    count = chance.choice((1, 1, 2, 3))
    calls = tuple(
        C(chance.choice(_IDS), chance.choice(("t", "t", "s")), chance.choice(("{}", "{}", "{}", '{"a')))
        for _ in range(count)
    )
    return A(calls, f"a{place}" if chance.random() < 0.3 else "", f"th{place}" if chance.random() < 0.3 else "")


def whole(seed: int) -> list[Step]:
    """Return a history that nobody has broken: every call answered at once, a user first and last."""
    chance = random.Random(seed)
    steps: list[Step] = [U(f"u{seed}")]
    for place in range(chance.randint(0, 5)):
        ids = [f"c{seed % 1000:03}{place}{number:04}" for number in range(chance.randint(0, 3))]
        thought = f"th{place}" if chance.random() < 0.5 and ids else ""
        steps.append(asks(*ids, text=f"a{place}" if not ids or chance.random() < 0.5 else "", thought=thought))
        steps += [R(call_id, f"r{place}.{call_id}") for call_id in ids]
        if not ids:
            steps.append(U(f"u{seed}.{place}"))
    if not isinstance(steps[-1], U):
        steps += [A(text="ok"), U(f"end{seed}")]
    return steps
