"""Request bodies for OpenAI Responses."""

from __future__ import annotations

from typing import Any, assert_never

from heaveto.core.request import Generation, ModelRequest, ToolDeclaration, Turn
from heaveto.core.wire_names import wire_id, wire_name
from heaveto.events.contents import Blob, FileRef, FunctionCall, FunctionResponse, Json, Part, Text
from heaveto.models.wire.fields import (
    data_uri,
    described,
    json_text,
    own_block,
    plain_text,
    split_images,
)
from heaveto.models.wire.memory import TurnMemory

Item = dict[str, Any]


class OpenAIResponsesEncoder:
    """Encodes requests as stateless input items, remembering the turns it has seen.

    Items carry no ids of ours: they are optional, and a wrong one is refused (R6, R9).
    """

    def __init__(self, *, provider: str = "openai-responses") -> None:
        self._provider = provider
        self._memory = TurnMemory(self._encode_turn)

    def encode(self, request: ModelRequest) -> dict[str, Any]:
        """Return the request body without ``model`` and ``stream``. Its items are shared: do not change them."""
        items: list[Item] = []
        for turn in request.turns:
            items += self._memory.form(turn)
        body: dict[str, Any] = {"input": items or [{"role": "user", "content": ""}]}
        if request.instruction:
            body["instructions"] = request.instruction
        return {**body, **_tools(request), **_settings(request.generation)}

    def _encode_turn(self, turn: Turn) -> list[Item]:
        match turn.role:
            case "user":
                content = [block for part in turn.parts if (block := _user_block(part)) is not None]
                return [{"role": "user", "content": content}] if content else []
            case "model":
                items = [item for part in turn.parts if (item := self._model_item(part)) is not None]
                return _with_products_only(items)
            case "tool":
                return [_output(response) for response in turn.responses]
            case _:
                assert_never(turn.role)

    def _model_item(self, part: Part) -> Item | None:
        match part:
            case Text(text=""):
                return None
            case Text(text=text):
                return _said(text)
            case Blob() | FileRef():
                return _said(described(part).text)
            case FunctionCall():
                call = {"call_id": wire_id(part.call_id), "name": wire_name(part.name)}
                return {"type": "function_call", **call, "arguments": json_text(part.args)}
            case _:
                return own_block(part, self._provider)


def encode(request: ModelRequest, *, provider: str = "openai-responses") -> dict[str, Any]:
    """Return the body of one request, remembering nothing."""
    return OpenAIResponsesEncoder(provider=provider).encode(request)


def _said(text: str) -> Item:
    return {"role": "assistant", "content": [{"type": "output_text", "text": text}]}


def _with_products_only(items: list[Item]) -> list[Item]:
    """Drop reasoning that is not followed by a call: a stop may have cut the unit that they form (R5)."""
    kept: list[Item] = []
    follows_product = False
    for item in reversed(items):
        if item.get("type") == "reasoning" and not follows_product:
            continue
        follows_product = item.get("type") in ("function_call", "reasoning")
        kept.append(item)
    return kept[::-1]


def _user_block(part: Part) -> Item | None:
    match part:
        case Text(text=""):
            return None
        case Text(text=text):
            return {"type": "input_text", "text": text}
        case Blob():
            return _blob_block(part)
        case FileRef(uri=uri) if uri.startswith(("https://", "http://")):
            if part.mime_type.startswith("image/"):
                return {"type": "input_image", "image_url": uri, "detail": "auto"}
            return {"type": "input_file", "file_url": uri}
        case FileRef():
            return {"type": "input_text", "text": described(part).text}
        case _:
            return None


def _blob_block(blob: Blob) -> Item:
    if blob.mime_type.startswith("image/"):
        return {"type": "input_image", "image_url": data_uri(blob), "detail": "auto"}
    if blob.mime_type == "application/pdf":
        return {"type": "input_file", "filename": "document.pdf", "file_data": data_uri(blob)}
    return {"type": "input_text", "text": (plain_text(blob) or described(blob)).text}


def _output(response: FunctionResponse) -> Item:
    value, images = split_images(response)
    output: Json = json_text(value)
    if images:  # R15: results may hold images
        output = [{"type": "input_text", "text": output}, *(_blob_block(image) for image in images)]
    return {"type": "function_call_output", "call_id": wire_id(response.call_id), "output": output}


def _tools(request: ModelRequest) -> dict[str, Any]:
    if not request.tools:
        return {}
    body: dict[str, Any] = {"tools": [_tool(tool) for tool in request.tools]}
    if request.generation.tool_choice is not None:
        body["tool_choice"] = request.generation.tool_choice
    return body


def _tool(tool: ToolDeclaration) -> dict[str, Json]:
    function = {"name": wire_name(tool.name), "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", **function, "strict": False}


def _settings(generation: Generation) -> dict[str, Any]:
    settings = {
        "temperature": generation.temperature,
        "top_p": generation.top_p,
        "max_output_tokens": generation.max_output_tokens,
    }
    return {**{name: value for name, value in settings.items() if value is not None}, **generation.extra}
