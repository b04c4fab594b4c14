"""Request bodies for OpenAI Responses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple, assert_never

import msgspec

from heaveto.core.request import Generation, Held, ModelRequest, ToolDeclaration, Turn
from heaveto.core.wire_names import wire_id, wire_name
from heaveto.events.contents import Blob, FileRef, FunctionCall, FunctionResponse, Json, Part, Text, Thought
from heaveto.models.wire.fields import (
    data_uri,
    described,
    json_text,
    own_block,
    own_data,
    plain_text,
    split_images,
    with_extra,
)
from heaveto.models.wire.memory import TurnMemory
from heaveto.models.wire.schema import OUTPUT_NAME, closed_schema, is_strict_schema

Item = dict[str, Any]
_BODY = msgspec.json.Decoder(Item)
_CALLS = ("function_call", "custom_tool_call")
_COMPLETE = ("web_search_call",)
"""Items of the provider that are taken back without encrypted content, and without their ids."""
_NO_IDS: Mapping[str, str] = {}
_KEPT_BY_PROVIDER = ("id", "created_by")
"""Fields of an item that refer to what the provider stores; refused where it does not (R6, R9, R11)."""


class _Form(NamedTuple):
    """The wire form of a turn: its items as JSON, the ids of its calls of custom tools, and its calls' own ids.

    `held_ids` has the provider's ids of its calls, by those on the wire, where they differ.
    """

    items: list[msgspec.Raw]
    custom: frozenset[str]
    held_ids: Mapping[str, str]


class OpenAIResponsesEncoder:
    """Encodes requests as input items, remembering the turns it has seen.

    Items carry no ids of items: they are optional, and a wrong one is refused (R6, R9, R11). Reasoning goes back with
    its encrypted content and only together with what it led to (R5). Of what the provider executed, a web search goes
    back; other items say nothing without what the provider stores for them, or would want an output (R2), and are left
    out, as are items that this package does not know, unless they carry encrypted content.

    Args:
        provider: the family whose own items are sent.
        provider_tools: declarations of tools that the provider executes, and of custom tools; they stand behind the
            functions. A function of the name of a custom tool is what is called for it, and is not declared itself.
        thoughts: whether earlier reasoning is sent.
    """

    def __init__(
        self,
        *,
        provider: str = "openai-responses",
        provider_tools: Sequence[dict[str, Json]] = (),
        thoughts: bool = True,
    ) -> None:
        self._provider, self._provider_tools, self._thoughts = provider, tuple(provider_tools), thoughts
        self._memory = TurnMemory(self._form)

    def encode(self, request: ModelRequest, held: Held | None = None) -> dict[str, Any]:
        """Return the request body without ``model`` and ``stream``, for a look at it; see `encode_json`."""
        return _BODY.decode(self.encode_json(request, held))

    def encode_json(
        self, request: ModelRequest, held: Held | None = None, settings: Mapping[str, Json] | None = None
    ) -> bytes:
        """Return the request body as JSON, with more settings, which win.

        With `held`, the input is what came after the turns that the provider holds. A turn becomes JSON once, so the
        rest of a conversation costs what copying its bytes costs (P9).
        """
        items: list[msgspec.Raw] = []
        for form in self._forms(request, held):
            items += form.items
        body: dict[str, Any] = {"input": items or [{"role": "user", "content": ""}]}
        if request.instruction:
            body["instructions"] = request.instruction
        if held is not None and held.response_id:
            body["previous_response_id"] = held.response_id
        body |= self._tools(request)
        return msgspec.json.encode({**body, **_settings(request.generation), **(settings or {})})

    def _forms(self, request: ModelRequest, held: Held | None) -> Iterator[_Form]:
        turns, custom, held_ids = iter(request.turns), frozenset[str](), _NO_IDS
        if held is not None and held.turns:
            turns = islice(request.turns[held.turns - 1 :], 1, None)
            answer = self._memory.form(request.turns[held.turns - 1])
            custom, held_ids = answer.custom, answer.held_ids
        for turn in turns:
            form = self._memory.form(turn)
            yield _for_calls(form, custom, held_ids) if custom or held_ids else form
            custom, held_ids = form.custom, _NO_IDS

    def _form(self, turn: Turn) -> _Form:
        items = self._items(turn)
        custom = frozenset(item["call_id"] for item in items if item.get("type") == "custom_tool_call")
        return _Form(_raw(items), custom, _held_ids(turn))

    def _items(self, turn: Turn) -> list[Item]:
        match turn.role:
            case "user":
                content = [block for part in turn.parts if (block := _user_block(part)) is not None]
                return [{"role": "user", "content": content}] if content else []
            case "model":
                return _in_whole_units([self._model_item(part) for part in turn.parts])
            case "tool":
                return [_output(response) for response in turn.responses]
            case _:
                assert_never(turn.role)

    def _model_item(self, part: Part) -> Item | None:
        match part:
            case Text(text=""):
                return None
            case Text(text=text):
                return {**own_data(part, self._provider), **_said(text)}
            case Blob() | FileRef():
                return _said(described(part).text)
            case FunctionCall():
                return self._call(part)
            case Thought() if not self._thoughts:
                return None
            case _:
                return _own_item(own_block(part, self._provider))

    def _call(self, part: FunctionCall) -> Item:
        own = own_data(part, self._provider)
        call = {**own, "call_id": wire_id(part.call_id), "name": wire_name(part.name)}
        if own.get("type") == "custom_tool_call":
            return {**call, "input": str(part.args.get("input", ""))}
        return {**call, "type": "function_call", "arguments": json_text(part.args)}

    def _tools(self, request: ModelRequest) -> dict[str, Any]:
        custom = {tool.get("name") for tool in self._provider_tools if tool.get("type") == "custom"}
        tools = [*(_tool(tool) for tool in request.tools if tool.name not in custom), *self._provider_tools]
        if not tools:
            return {}
        choice = request.generation.tool_choice
        return {"tools": tools} if choice is None else {"tools": tools, "tool_choice": choice}


def encode(request: ModelRequest, *, provider: str = "openai-responses") -> dict[str, Any]:
    """Return the body of one request, remembering nothing."""
    return OpenAIResponsesEncoder(provider=provider).encode(request)


def _raw(items: list[Item]) -> list[msgspec.Raw]:
    return [msgspec.Raw(msgspec.json.encode(item)) for item in items]


def _said(text: str) -> Item:
    return {"role": "assistant", "content": [{"type": "output_text", "text": text}]}


def _own_item(item: Item | None) -> Item | None:
    if item is None or not (item.get("encrypted_content") or item.get("type") in _COMPLETE):
        return None
    return {key: value for key, value in item.items() if key not in _KEPT_BY_PROVIDER and value is not None}


def _in_whole_units(items: list[Item | None]) -> list[Item]:
    """Drop reasoning that is not followed by what it produced: cut by a stop, or not sendable (R5). None is that."""
    kept: list[Item] = []
    follows_product = False
    for item in reversed(items):
        kind = item.get("type") if item is not None else None
        if kind == "reasoning" and not follows_product:
            continue
        follows_product = kind in ("reasoning", *_CALLS, *_COMPLETE)
        if item is not None:
            kept.append(item)
    return kept[::-1]


def _held_ids(turn: Turn) -> Mapping[str, str]:
    """Return the ids by which the provider knows the calls of its answer: it does not see those that we give them."""
    calls = [part for part in turn.parts if isinstance(part, FunctionCall)]
    ids = {wire_id(call.call_id): call.provider_id or call.call_id for call in calls if call.provider}
    return {on_wire: own for on_wire, own in ids.items() if own != on_wire} or _NO_IDS


def _for_calls(form: _Form, custom: frozenset[str], held_ids: Mapping[str, str]) -> _Form:
    """A custom tool's call wants an output of its own type (R2), one that the provider holds the id that it has there.

    On the wire ids are unique and within what all providers take; what is held is as the model said it.
    """
    items = [_BODY.decode(item) for item in form.items]
    for item in items:
        call_id: object = item.get("call_id")
        if call_id in custom:
            item["type"] = "custom_tool_call_output"
        if isinstance(call_id, str) and call_id in held_ids:
            item["call_id"] = held_ids[call_id]
    return _Form(_raw(items), form.custom, form.held_ids)


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


def _tool(tool: ToolDeclaration) -> dict[str, Json]:
    function = {"name": wire_name(tool.name), "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", **function, "strict": False}


def _text_format(schema: dict[str, Json] | None) -> dict[str, Json] | None:
    if schema is None:
        return None
    closed = closed_schema(schema)
    named = {"name": OUTPUT_NAME, "schema": closed, "strict": is_strict_schema(closed)}
    return {"format": {"type": "json_schema", **named}}


def _settings(generation: Generation) -> dict[str, Any]:
    settings = {
        "temperature": generation.temperature,
        "top_p": generation.top_p,
        "max_output_tokens": generation.max_output_tokens,
        "text": _text_format(generation.output_schema),
    }
    return with_extra(settings, generation.extra)
