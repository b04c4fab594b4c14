"""Request bodies for Anthropic Messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias, assert_never

from heaveto.core.request import Generation, ModelRequest, Turn
from heaveto.core.wire_kinds import THINKING
from heaveto.core.wire_names import NOTHING, wire_id, wire_name
from heaveto.events.contents import (
    Blob,
    FileRef,
    FunctionCall,
    FunctionResponse,
    Json,
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
    own_data,
    plain_text,
    sendable_text,
    split_images,
    with_extra,
)
from heaveto.models.wire.memory import TurnMemory
from heaveto.models.wire.schema import closed_schema

Block = dict[str, Any]
CacheTime: TypeAlias = Literal["5m", "1h"]
DEFAULT_MAX_TOKENS = 8192
_IMAGES = ("image/jpeg", "image/png", "image/gif", "image/webp")
_CHOICES = {"auto": "auto", "none": "none", "required": "any"}
_NOTHING = {"type": "text", "text": NOTHING}
"""What stands for a user turn without content: the turn must be there, and must not be empty (A9, A24)."""


class AnthropicEncoder:
    """Encodes requests, remembering the turns it has seen.

    A turn of results and the user turn after it are one message, results first (A1, A3). Signed thinking of this
    provider goes back verbatim; unsigned thinking and that of others never does (F25). Blocks that are kept whole go
    back as they came (F26, F27). Calls of the provider's own that a stop left without a result stay out (A17).

    Args:
        provider: the family whose provider data is sent back.
        max_tokens: the limit of an answer where the request names none: this API wants one.
        cache: how long what is said is to stay in the provider's cache, if at all.
        provider_tools: declarations of tools that the provider executes itself, as it wants them.
    """

    def __init__(
        self,
        *,
        provider: str = "anthropic",
        max_tokens: int = DEFAULT_MAX_TOKENS,
        cache: CacheTime | None = None,
        provider_tools: Sequence[dict[str, Json]] = (),
    ) -> None:
        self._provider, self._max_tokens = provider, max_tokens
        self._cache: CacheTime | None = cache
        self._provider_tools = tuple(provider_tools)
        self._memory = TurnMemory(self._encode_turn)

    def encode(self, request: ModelRequest) -> dict[str, Any]:
        """Return the request body without ``model`` and ``stream``. Its blocks are shared: do not change them."""
        messages: list[dict[str, Any]] = []
        for turn in request.turns:
            _append(messages, "assistant" if turn.role == "model" else "user", self._memory.form(turn))
        body: dict[str, Any] = {"messages": messages or [{"role": "user", "content": [_NOTHING]}]}
        if sendable_text(request.instruction):
            body["system"] = request.instruction
        body |= _tools(request, self._provider_tools)
        if self._cache is not None:
            _mark_for_cache(body, self._cache)
        return {**body, **_settings(request.generation, self._max_tokens)}

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
        while blocks and blocks[-1].get("type") in THINKING:
            blocks.pop()  # a stop came right after it: nothing that it led to is there (F28)
        return blocks

    def _model_block(self, part: Part, paired: set[str]) -> Block | None:
        match part:
            case Text(text=text) if not sendable_text(text):
                return None
            case Text(text=text):
                return own_block(part, self._provider) or {"type": "text", "text": text}
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
                return {**own_data(part, self._provider), "type": "tool_use", **call}
            case ProviderCall(id=call_id) | ProviderResult(id=call_id):
                return own_block(part, self._provider) if call_id in paired else None
            case Opaque():
                return own_block(part, self._provider)
            case _:
                return None


def encode(request: ModelRequest, *, provider: str = "anthropic") -> dict[str, Any]:
    """Return the body of one request, remembering nothing."""
    return AnthropicEncoder(provider=provider).encode(request)


def continued(body: dict[str, Any], blocks: Sequence[Block], container: str) -> dict[str, Any]:
    """Return the request that has a paused answer go on: the same, with what was answered so far at its end (F22).

    Empty texts, which the provider gives and does not take (A10), stay out. If nothing came so far, the same is asked.
    """
    content = [block for block in blocks if block.get("type") != "text" or sendable_text(str(block.get("text", "")))]
    so_far = [{"role": "assistant", "content": content}] if content else []
    further = {**body, "messages": [*body["messages"], *so_far]}
    return {"container": container, **further} if container else further


def _mark_for_cache(body: dict[str, Any], time: CacheTime) -> None:
    """Set the four breakpoints that there may be (A26): behind tools, system, and the last two user messages.

    The last one is what the next request finds again. The one before it is what this request finds again, also where
    a step has brought more blocks than the provider looks back over. Costs what is marked, and not the rest (P9).
    """
    mark = {"cache_control": {"type": "ephemeral"} if time == "5m" else {"type": "ephemeral", "ttl": time}}
    messages = body["messages"]
    for place in [place for place in (-1, -3) if place >= -len(messages)]:
        *blocks, last = messages[place]["content"]
        messages[place] = {**messages[place], "content": [*blocks, {**last, **mark}]}
    if "system" in body:
        body["system"] = [{"type": "text", "text": body["system"], **mark}]
    if "tools" in body:
        *tools, last = body["tools"]
        body["tools"] = [*tools, {**last, **mark}]


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


def _tools(request: ModelRequest, provider_tools: Sequence[dict[str, Json]]) -> dict[str, Any]:
    if not (request.tools or provider_tools):
        return {}
    tools = [
        *provider_tools,
        *(
            {"name": wire_name(tool.name), "description": tool.description, "input_schema": tool.parameters}
            for tool in request.tools
        ),
    ]
    choice = request.generation.tool_choice
    return {"tools": tools} if choice is None else {"tools": tools, "tool_choice": {"type": _CHOICES[choice]}}


def _output_config(schema: dict[str, Json] | None) -> dict[str, Json] | None:
    return None if schema is None else {"format": {"type": "json_schema", "schema": closed_schema(schema)}}


def _settings(generation: Generation, max_tokens: int) -> dict[str, Any]:
    settings = {
        "max_tokens": generation.max_output_tokens or max_tokens,
        "temperature": generation.temperature,
        "top_p": generation.top_p,
        "stop_sequences": list(generation.stop) or None,
        "output_config": _output_config(generation.output_schema),
    }
    return with_extra(settings, generation.extra)
