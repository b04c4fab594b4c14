"""Words, calls and results in each format, as plainly as it has them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Literal

from heaveto.core.wire_marks import Family
from heaveto.histories.neutral import Asked, Given, Piece, Reading, Words
from heaveto.histories.work import Body, as_object, is_body, json_words, words_of

Block = Callable[[Piece], Body]


def written(reading: Reading, family: Family) -> list[Body]:
    """Return a message as a format has it: several where it has results apart, none if nothing is left to say."""
    told = Reading(reading.speaker, [_as_it_may(piece, reading) for piece in reading.pieces])
    return _WRITERS[family](told) if told.pieces else []


def _as_it_may(piece: Piece, reading: Reading) -> Piece:
    """Only the model calls."""
    if isinstance(piece, Asked) and reading.speaker != "model":
        return Words(f"[Call of {piece.name} with {_json_of(piece.args)}]")
    return piece


def _json_of(args: object) -> str:
    if args is None:
        return "{}"
    return args if isinstance(args, str) else json_words(args)


def _object_of(args: object) -> object:
    """Arguments as an object; what is none stays, to be seen to as in any message (A8)."""
    value, raw = as_object(args)
    return value if raw is None else args


def _chat(told: Reading) -> list[Body]:
    results: list[Body] = []
    words = "\n".join(piece.text for piece in told.pieces if isinstance(piece, Words))
    calls = [
        {"id": piece.id, "type": "function", "function": {"name": piece.name, "arguments": _json_of(piece.args)}}
        for piece in told.pieces
        if isinstance(piece, Asked)
    ]
    for piece in told.pieces:
        if isinstance(piece, Given):
            named = {} if piece.id or not piece.name else {"name": piece.name}
            results.append({"role": "tool", "tool_call_id": piece.id, **named, "content": words_of(piece.value)})
    role = "assistant" if told.speaker == "model" else told.speaker
    said: Body = {"role": role, "content": words or None, "tool_calls": calls}
    if not calls:
        said = {"role": role, "content": words}
    spoken = [said] if words or calls else []
    return [*spoken, *results] if told.speaker == "model" else [*results, *spoken]


def _responses(told: Reading) -> list[Body]:
    role = "assistant" if told.speaker == "model" else told.speaker
    return [_item(role, piece) for piece in told.pieces]


def _item(role: str, piece: Piece) -> Body:
    match piece:
        case Words():
            return {"role": role, "content": piece.text}
        case Asked():
            call = {"type": "function_call", "call_id": piece.id, "name": piece.name}
            return {**call, "arguments": _json_of(piece.args)}
        case Given():
            return {"type": "function_call_output", "call_id": piece.id, "output": words_of(piece.value)}


def _blocks(key: Literal["content", "parts"], model: str, block: Block) -> Callable[[Reading], list[Body]]:
    def write(told: Reading) -> list[Body]:
        role = model if told.speaker == "model" else "user"
        first = [block(piece) for piece in _results_first(told)]
        return [{"role": role, key: first}]

    return write


def _results_first(told: Reading) -> Iterable[Piece]:
    if told.speaker == "model":
        return told.pieces
    return sorted(told.pieces, key=lambda piece: not isinstance(piece, Given))


def _anthropic(told: Reading) -> list[Body]:
    if told.speaker == "system" and all(isinstance(piece, Words) for piece in told.pieces):
        return [{"role": "system", "content": "\n".join(p.text for p in told.pieces if isinstance(p, Words))}]
    return _anthropic_blocks(told)


def _anthropic_block(piece: Piece) -> Body:
    match piece:
        case Words():
            return {"type": "text", "text": piece.text}
        case Asked():
            return {"type": "tool_use", "id": piece.id, "name": piece.name, "input": _object_of(piece.args)}
        case Given():
            failed = {"is_error": True} if piece.is_error else {}
            return {"type": "tool_result", "tool_use_id": piece.id, "content": words_of(piece.value), **failed}


def _gemini_part(piece: Piece) -> Body:
    match piece:
        case Words():
            return {"text": piece.text}
        case Asked():
            return {"functionCall": {**_ids(piece), "name": piece.name, "args": _object_of(piece.args)}}
        case Given():
            key = "error" if piece.is_error else "output"
            response = piece.value if is_body(piece.value) else {key: piece.value}
            return {"functionResponse": {**_ids(piece), "name": piece.name, "response": response}}


def _ids(piece: Asked | Given) -> Body:
    return {"id": piece.id} if piece.id else {}


def _bedrock_block(piece: Piece) -> Body:
    match piece:
        case Words():
            return {"text": piece.text}
        case Asked():
            return {"toolUse": {"toolUseId": piece.id, "name": piece.name, "input": _object_of(piece.args)}}
        case Given():
            words = words_of(piece.value)
            content: list[Body] = [{"text": words} if words.strip() else {"json": {}}]
            failed = {"status": "error"} if piece.is_error else {}
            return {"toolResult": {"toolUseId": piece.id, "content": content, **failed}}


_anthropic_blocks = _blocks("content", "assistant", _anthropic_block)
_WRITERS: Mapping[Family, Callable[[Reading], list[Body]]] = {
    "chat": _chat,
    "responses": _responses,
    "anthropic": _anthropic,
    "gemini": _blocks("parts", "model", _gemini_part),
    "bedrock": _blocks("content", "assistant", _bedrock_block),
}
