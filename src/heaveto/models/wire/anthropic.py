"""Request bodies for Anthropic Messages."""

from __future__ import annotations

from typing import Any, assert_never

from heaveto.core.request import Generation, ModelRequest, Turn
from heaveto.core.wire_names import NOTHING, wire_id, wire_name
from heaveto.events.contents import (
    Blob,
    FileRef,
    FunctionCall,
    FunctionResponse,
    Opaque,
    Part,
    ProviderCall,
    ProviderResult,
    Text,
    Thought,
)
from heaveto.models.wire.fields import (
    base64_text,
    described,
    json_text,
    own_block,
    plain_text,
    sendable_text,
    split_images,
)
from heaveto.models.wire.memory import TurnMemory

Block = dict[str, Any]
DEFAULT_MAX_TOKENS = 8192
_IMAGES = ("image/jpeg", "image/png", "image/gif", "image/webp")
_THINKING = ("thinking", "redacted_thinking")
_CHOICES = {"auto": "auto", "none": "none", "required": "any"}
_NOTHING = {"type": "text", "text": NOTHING}
"""What stands for a user turn without content: the turn must be there, and must not be empty (A9, A24)."""


class AnthropicEncoder:
    """Encodes requests, remembering the turns it has seen.

    A turn of results and the user turn after it are one message, results first (A1, A3). Signed thinking of this
    provider goes back verbatim; unsigned thinking and that of others never does (F25).
    """

    def __init__(self, *, provider: str = "anthropic") -> None:
        self._provider = provider
        self._memory = TurnMemory(self._encode_turn)

    def encode(self, request: ModelRequest) -> dict[str, Any]:
        """Return the request body without ``model`` and ``stream``. Its blocks are shared: do not change them."""
        messages: list[dict[str, Any]] = []
        for turn in request.turns:
            _append(messages, "assistant" if turn.role == "model" else "user", self._memory.form(turn))
        body: dict[str, Any] = {"messages": messages or [{"role": "user", "content": [_NOTHING]}]}
        if sendable_text(request.instruction):
            body["system"] = request.instruction
        return {**body, **_tools(request), **_settings(request.generation)}

    def _encode_turn(self, turn: Turn) -> list[Block]:
        match turn.role:
            case "user":
                return [block for part in turn.parts if (block := _user_block(part)) is not None]
            case "model":
                return self._model_blocks(turn.parts)
            case "tool":
                return _result_blocks(turn.responses)
            case _:
                assert_never(turn.role)

    def _model_blocks(self, parts: tuple[Part, ...]) -> list[Block]:
        paired = _paired_ids(parts)
        blocks = [block for part in parts if (block := self._model_block(part, paired)) is not None]
        while blocks and blocks[-1].get("type") in _THINKING:
            blocks.pop()  # a stop came right after it: nothing that it led to is there (F28)
        return blocks

    def _model_block(self, part: Part, paired: set[str]) -> Block | None:
        match part:
            case Text(text=text):
                return {"type": "text", "text": text} if sendable_text(text) else None
            case Blob() | FileRef():
                return {"type": "text", "text": described(part).text}
            case Thought(signature=str(signature)) if part.provider == self._provider and signature:
                return own_block(part, self._provider) or {
                    "type": "thinking",
                    "thinking": part.text,
                    "signature": signature,
                }
            case FunctionCall():
                call = {"id": wire_id(part.call_id), "name": wire_name(part.name), "input": part.args}
                return {"type": "tool_use", **call}
            case ProviderCall(id=call_id) | ProviderResult(id=call_id):
                return own_block(part, self._provider) if call_id in paired else None
            case Opaque():
                return own_block(part, self._provider)
            case _:
                return None


def encode(request: ModelRequest, *, provider: str = "anthropic") -> dict[str, Any]:
    """Return the body of one request, remembering nothing."""
    return AnthropicEncoder(provider=provider).encode(request)


def _append(messages: list[dict[str, Any]], role: str, blocks: list[Block]) -> None:
    last = messages[-1] if messages else None
    if last is not None and last["role"] == role:
        if blocks:
            messages[-1] = {"role": role, "content": [*last["content"], *blocks]}
    elif blocks:
        messages.append({"role": role, "content": blocks})
    elif role == "user":
        messages.append({"role": role, "content": [_NOTHING]})


def _paired_ids(parts: tuple[Part, ...]) -> set[str]:
    """The provider's own calls that have their result in the same turn: others are refused (A17, A18)."""
    called: set[str] = set()
    paired: set[str] = set()
    for part in parts:
        match part:
            case ProviderCall(id=call_id):
                called.add(call_id)
            case ProviderResult(id=call_id) if call_id in called:
                paired.add(call_id)
            case _:
                pass
    return paired


def _user_block(part: Part) -> Block | None:
    match part:
        case Text(text=text):
            return {"type": "text", "text": text} if sendable_text(text) else None
        case Blob():
            return _blob_block(part)
        case FileRef():
            return _file_block(part)
        case _:
            return None


def _blob_block(blob: Blob) -> Block:
    source = {"type": "base64", "media_type": blob.mime_type, "data": base64_text(blob.content)}
    if blob.mime_type in _IMAGES:
        return {"type": "image", "source": source}
    if blob.mime_type == "application/pdf":
        return {"type": "document", "source": source}
    words = plain_text(blob)
    if words is None or not sendable_text(words.text):
        words = described(blob)
    return {"type": "text", "text": words.text}


def _file_block(file: FileRef) -> Block:
    source = {"type": "url", "url": file.uri}
    if file.uri.startswith("https://") and file.mime_type in _IMAGES:
        return {"type": "image", "source": source}
    if file.uri.startswith("https://") and file.mime_type == "application/pdf":
        return {"type": "document", "source": source}
    return {"type": "text", "text": described(file).text}


def _result_blocks(responses: tuple[FunctionResponse, ...]) -> list[Block]:
    results: list[Block] = []
    images: list[Block] = []
    for response in responses:
        value, found = split_images(response)
        images += [_blob_block(image) for image in found]  # A11': not within an error, so nowhere within results
        result = {"tool_use_id": wire_id(response.call_id), "content": json_text(value)}
        flag = {"is_error": True} if response.is_error else {}
        results.append({"type": "tool_result", **result, **flag})
    return results + images


def _tools(request: ModelRequest) -> dict[str, Any]:
    if not request.tools:
        return {}
    tools = [
        {"name": wire_name(tool.name), "description": tool.description, "input_schema": tool.parameters}
        for tool in request.tools
    ]
    choice = request.generation.tool_choice
    return {"tools": tools} if choice is None else {"tools": tools, "tool_choice": {"type": _CHOICES[choice]}}


def _settings(generation: Generation) -> dict[str, Any]:
    settings = {
        "max_tokens": generation.max_output_tokens or DEFAULT_MAX_TOKENS,
        "temperature": generation.temperature,
        "top_p": generation.top_p,
        "stop_sequences": list(generation.stop) or None,
    }
    return {**{name: value for name, value in settings.items() if value is not None}, **generation.extra}
