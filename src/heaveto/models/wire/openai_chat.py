"""Request bodies for OpenAI Chat Completions and the many servers that speak it."""

from __future__ import annotations

from typing import Any, assert_never

from heaveto.core.request import Generation, ModelRequest, ToolDeclaration, Turn
from heaveto.core.wire_names import wire_id, wire_name
from heaveto.events.contents import Blob, FileRef, FunctionCall, FunctionResponse, Json, Part, Text
from heaveto.models.wire.fields import (
    base64_text,
    data_uri,
    described,
    json_text,
    own_data,
    plain_text,
    split_images,
    with_extra,
)
from heaveto.models.wire.memory import TurnMemory
from heaveto.models.wire.schema import OUTPUT_NAME, closed_schema, is_strict_schema

_AUDIO_FORMATS = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}


class OpenAIChatEncoder:
    """Encodes requests, and remembers the wire form of the turns it has seen, so that a request costs what is new (P9).

    Args:
        provider: the family whose provider data is sent back.
        reasoning_content: send the key with turns that call, as DeepSeek's and Moonshot's thinking modes want.
        remembered_turns: the bound on what is remembered; the results do not depend on it.
    """

    def __init__(
        self, *, provider: str = "openai", reasoning_content: bool = False, remembered_turns: int = 20_000
    ) -> None:
        self._provider, self._reasoning_content = provider, reasoning_content
        self._memory = TurnMemory(self._encode_turn, remembered_turns)

    def encode(self, request: ModelRequest) -> dict[str, Any]:
        """Return the request body without ``model`` and ``stream``. Its messages are shared: do not change them."""
        messages: list[dict[str, Any]] = []
        if request.instruction:
            messages.append({"role": "system", "content": request.instruction})
        head = len(messages)
        for turn in request.turns:
            messages += self._memory.form(turn)
        if len(messages) == head:
            messages.append({"role": "user", "content": ""})  # O8: something must be asked
        return {"messages": messages, **_tools(request), **_settings(request.generation)}

    def _encode_turn(self, turn: Turn) -> list[dict[str, Any]]:
        match turn.role:
            case "user":
                return _user_messages(turn.parts)
            case "model":
                return self._assistant_messages(turn)
            case "tool":
                return _tool_messages(turn.responses)
            case _:
                assert_never(turn.role)

    def _assistant_messages(self, turn: Turn) -> list[dict[str, Any]]:
        calls = [self._tool_call(part) for part in turn.parts if isinstance(part, FunctionCall)]
        text = "".join(_words(part) for part in turn.parts)
        if not calls and not text:
            return []  # a turn with nothing to send vanishes (F28)
        message: dict[str, Any] = {"role": "assistant", "content": text or None}
        if calls:
            message["tool_calls"] = calls
            if self._reasoning_content:
                message["reasoning_content"] = ""
        return [message]

    def _tool_call(self, call: FunctionCall) -> dict[str, Any]:
        return {
            **own_data(call, self._provider),
            "id": wire_id(call.call_id),
            "type": "function",
            "function": {"name": wire_name(call.name), "arguments": json_text(call.args)},
        }


def encode(request: ModelRequest, *, provider: str = "openai") -> dict[str, Any]:
    """Return the body of one request, remembering nothing."""
    return OpenAIChatEncoder(provider=provider).encode(request)


def _words(part: Part) -> str:
    match part:
        case Text(text=text):
            return text
        case Blob() | FileRef():
            return described(part).text
        case _:
            return ""  # thoughts and foreign parts are not sent


def _user_messages(parts: tuple[Part, ...]) -> list[dict[str, Any]]:
    texts = [part.text for part in parts if isinstance(part, Text) and part.text]
    blocks = [block for part in parts if (block := _user_block(part)) is not None]
    if not blocks:
        return []
    if len(texts) == len(blocks):
        return [{"role": "user", "content": "\n\n".join(texts)}]  # a string is what every server takes
    return [{"role": "user", "content": blocks}]


def _user_block(part: Part) -> dict[str, Any] | None:
    match part:
        case Text(text=""):
            return None
        case Text(text=text):
            return {"type": "text", "text": text}
        case Blob():
            return _blob_block(part)
        case FileRef(uri=uri) if part.mime_type.startswith("image/") and uri.startswith(("https://", "http://")):
            return {"type": "image_url", "image_url": {"url": uri}}
        case FileRef():
            return {"type": "text", "text": described(part).text}
        case _:
            return None


def _blob_block(blob: Blob) -> dict[str, Any]:
    if blob.mime_type.startswith("image/"):
        return {"type": "image_url", "image_url": {"url": data_uri(blob)}}
    if blob.mime_type in _AUDIO_FORMATS:
        audio = {"data": base64_text(blob.content), "format": _AUDIO_FORMATS[blob.mime_type]}
        return {"type": "input_audio", "input_audio": audio}
    if blob.mime_type == "application/pdf":
        return {"type": "file", "file": {"filename": "document.pdf", "file_data": data_uri(blob)}}
    return {"type": "text", "text": (plain_text(blob) or described(blob)).text}


def _tool_messages(responses: tuple[FunctionResponse, ...]) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    images: list[Blob] = []
    for response in responses:
        value, found = split_images(response)
        images += found
        messages.append({"role": "tool", "tool_call_id": wire_id(response.call_id), "content": json_text(value)})
    if images:  # O14: only users may send images, and only after the whole run of results
        messages.append({"role": "user", "content": [_blob_block(image) for image in images]})
    return messages


def _tools(request: ModelRequest) -> dict[str, Any]:
    if not request.tools:
        return {}  # O16: neither an empty list nor a choice without tools
    body: dict[str, Any] = {"tools": [_tool(tool) for tool in request.tools]}
    if request.generation.tool_choice is not None:
        body["tool_choice"] = request.generation.tool_choice
    return body


def _tool(tool: ToolDeclaration) -> dict[str, Json]:
    function = {"name": wire_name(tool.name), "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": function}


def _response_format(schema: dict[str, Json] | None) -> dict[str, Json] | None:
    if schema is None:
        return None
    closed = closed_schema(schema)
    named = {"name": OUTPUT_NAME, "schema": closed, "strict": is_strict_schema(closed)}
    return {"type": "json_schema", "json_schema": named}


def _settings(generation: Generation) -> dict[str, Any]:
    settings = {
        "temperature": generation.temperature,
        "top_p": generation.top_p,
        "max_completion_tokens": generation.max_output_tokens,
        "stop": list(generation.stop) or None,
        "seed": generation.seed,
        "response_format": _response_format(generation.output_schema),
    }
    return with_extra(settings, generation.extra)
