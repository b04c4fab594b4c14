"""What a message of any format says: words, calls, results. The rest is told as words, or named as left out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, cast

from heaveto.core.wire_kinds import OUTPUT_OF, THINKING
from heaveto.core.wire_marks import is_item
from heaveto.events.contents import Json
from heaveto.histories.work import Body, is_body, is_list, json_words, text_of


@dataclass(frozen=True, slots=True)
class Words:
    """What somebody says."""

    text: str


@dataclass(frozen=True, slots=True)
class Asked:
    """A call, with its arguments as they came."""

    id: str
    name: str
    args: object


@dataclass(frozen=True, slots=True)
class Given:
    """A result; `value` is an object where it was one, else text."""

    id: str
    name: str
    value: Json
    is_error: bool = False


Piece: TypeAlias = "Words | Asked | Given"
Speaker: TypeAlias = Literal["user", "model", "system"]


@dataclass(slots=True)
class Reading:
    """A message: who speaks, what is said, in order, and what kinds of things were left out."""

    speaker: Speaker
    pieces: list[Piece] = field(default_factory=list[Piece])
    lost: list[str] = field(default_factory=list[str])


_MODELS, _SYSTEMS = ("assistant", "model"), ("system", "developer")
_TEXTS = ("text", "input_text", "output_text", "refusal")
_MEDIA: Mapping[str, str] = {
    "image": "image", "image_url": "image", "input_image": "image", "document": "document", "file": "file",
    "input_file": "file", "input_audio": "audio", "audio": "audio", "video": "video", "inlineData": "file",
    "inline_data": "file", "fileData": "file", "file_data": "file",
}  # fmt: skip
_EXECUTED = frozenset(("type", "id", "call_id", "name", "status"))


def reading_of(message: Body) -> Reading:
    """Read a message of any format. Thinking is left out: nobody but who signed it can read it (A15, G12, R13)."""
    role, kind = message.get("role"), text_of(message.get("type"))
    if is_item(kind):
        return _item(message, kind)
    told = Reading("model" if role in _MODELS else "system" if role in _SYSTEMS else "user")
    if role in ("tool", "function"):
        value = _value_of(message.get("content"), told)
        told.pieces.append(Given(_id_of(message.get("tool_call_id")), text_of(message.get("name")), value))
        return told
    for key in ("content", "parts"):
        _read_blocks(told, message.get(key))
    if not told.pieces and (refusal := text_of(message.get("refusal"))):
        told.pieces.append(Words(refusal))
    calls = message.get("tool_calls")
    told.pieces += [_chat_call(call) for call in calls if is_body(call)] if is_list(calls) else []
    if is_body(legacy := message.get("function_call")):
        told.pieces.append(Asked("", text_of(legacy.get("name")), legacy.get("arguments")))
    return told


def _item(item: Body, kind: str) -> Reading:
    told = Reading("user" if kind.endswith("_output") else "model")
    call_id = _id_of(item.get("call_id") or item.get("id"))
    if kind.endswith("_output"):
        told.pieces.append(Given(call_id, "", _value_of(item.get("output"), told)))
    elif kind == "function_call":
        told.pieces.append(Asked(call_id, text_of(item.get("name")), item.get("arguments")))
    elif kind in OUTPUT_OF and item.get("execution") != "server":
        args = {key: value for key, value in item.items() if key not in _EXECUTED}
        told.pieces.append(Asked(call_id, text_of(item.get("name")) or kind, args))
    elif kind in ("reasoning", "item_reference"):
        told.lost.append("thinking" if kind == "reasoning" else "a reference to a stored item")
    else:
        told.pieces.append(_quoted(kind, item))
    return told


def _chat_call(call: Body) -> Asked:
    custom, function = call.get("custom"), call.get("function")
    if is_body(custom):
        return Asked(_id_of(call.get("id")), text_of(custom.get("name")), {"input": custom.get("input")})
    held = function if is_body(function) else {}
    return Asked(_id_of(call.get("id")), text_of(held.get("name")), held.get("arguments"))


def _read_blocks(told: Reading, content: object) -> None:
    if isinstance(content, str):
        told.pieces += [Words(content)] if content.strip() else []
        return
    for block in content if is_list(content) else ():
        if not is_body(block):
            told.pieces.append(Words(block if isinstance(block, str) else json_words(block)))
        elif (piece := _block(told, block)) is not None:
            told.pieces.append(piece)


def _block(told: Reading, block: Body) -> Piece | None:
    kind = text_of(block.get("type"))
    if kind in THINKING or block.get("thought") or "reasoningContent" in block:
        told.lost.append("thinking")
        return None
    if kind in _TEXTS or (not kind and isinstance(block.get("text"), str)):
        words = text_of(block.get("text")) or text_of(block.get("refusal"))
        return Words(words) if words.strip() else None
    if kind == "tool_use":
        return Asked(_id_of(block.get("id")), text_of(block.get("name")), block.get("input"))
    if kind == "tool_result":
        value = _value_of(block.get("content"), told)
        return Given(_id_of(block.get("tool_use_id")), "", value, block.get("is_error") is True)
    return _keyed(told, block) if not kind else _other(told, kind, block)


def _keyed(told: Reading, block: Body) -> Piece | None:
    """A part of Gemini, or a block of Bedrock: its key tells what it is."""
    key = next((key for key, value in block.items() if value is not None and key not in _BESIDE), "")
    held: object = block.get(key)
    inner = held if is_body(held) else {}
    match key:
        case "functionCall" | "function_call":
            return Asked(_id_of(inner.get("id")), text_of(inner.get("name")), inner.get("args"))
        case "functionResponse" | "function_response":
            value = inner.get("response")
            return Given(_id_of(inner.get("id")), text_of(inner.get("name")), value if is_body(value) else _text(value))
        case "toolUse":
            return Asked(_id_of(inner.get("toolUseId")), text_of(inner.get("name")), inner.get("input"))
        case "toolResult":
            value = _value_of(inner.get("content"), told)
            return Given(_id_of(inner.get("toolUseId")), "", value, inner.get("status") == "error")
        case "":
            return None
        case _:
            return _other(told, key, block)


_BESIDE = ("thoughtSignature", "thought_signature", "cachePoint")


def _other(told: Reading, kind: str, block: Body) -> Piece:
    medium = _MEDIA.get(kind)
    if medium is None:
        return _quoted(kind, block)
    told.lost.append(medium)
    return Words(f"[Here stood {'an' if medium[0] in 'aeiou' else 'a'} {medium}, which is not shown any more.]")


def _quoted(kind: str, value: Body) -> Words:
    return Words(f"[{kind}: {json_words(value)}]")


def _value_of(content: object, told: Reading) -> Json:
    """Return a result as text, or as the object that it is."""
    if not is_list(content):
        return cast("Json", content) if is_body(content) else _text(content)
    return "\n".join(_texts_in(content, told))


def _texts_in(content: list[object], told: Reading) -> Iterable[str]:
    for block in content:
        if is_body(block) and "json" in block:
            yield json_words(block["json"])
        elif is_body(block):
            piece = _block(told, block)
            yield piece.text if isinstance(piece, Words) else json_words(block)
        else:
            yield _text(block)


def _text(value: object) -> str:
    return value if isinstance(value, str) else "" if value is None else json_words(value)


def _id_of(value: object) -> str:
    return str(value) if type(value) is int else text_of(value)
