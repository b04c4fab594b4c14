"""A model that needs no script: it calls the first tool that it is given, once, and says what came of it. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import msgspec

from heaveto.events.contents import Json
from heaveto.testing.emulator.dialects.base import Body, listed
from heaveto.testing.script import Answer, call, say

_EXAMPLES: dict[str, Json] = {"string": "example", "integer": 1, "number": 1.5, "boolean": True, "null": None}
_DEPTH = 5


def echo(body: Body) -> Answer:
    """Answer a request of any API: a tool's result, else a call of the first tool, else what the user said.

    A step for emulators that are not strict: ``Emulator(echo, strict=False)``. The arguments of the call are made from
    the tool's schema.
    """
    turns = listed(body.get("messages") or body.get("contents") or body.get("input"))
    found = list(_results(turns[-1])) if turns else []
    if found:
        return _spoken(f"The tool said: {' '.join(found)}")
    tool = next(_tools(body), None)
    is_new = not body.get("previous_response_id") and not any(list(_results(turn)) for turn in turns)
    if tool is not None and is_new:
        return call(tool[0], **cast("Body", _example(tool[1], _DEPTH)))
    return _spoken(f"You said: {_text(turns[-1]) if turns else ''}")


def _spoken(text: str) -> Answer:
    return say(text, chunks=[word if place == 0 else f" {word}" for place, word in enumerate(text.split(" "))])


def _results(turn: Json) -> Iterator[str]:
    """Yield the results in a message, an item or a content of any API."""
    match turn:
        case {"role": "tool", "content": content} | {"type": "function_call_output", "output": content}:
            yield _words(content)
        case {"content": [*blocks]}:
            for block in blocks:
                if isinstance(block, dict) and cast("Body", block).get("type") == "tool_result":
                    yield _words(cast("Body", block).get("content"))
        case {"parts": [*parts]}:
            for part in parts:
                match part:
                    case {"functionResponse": {"response": response}}:
                        yield _words(response)
                    case _:
                        pass
        case _:
            pass


def _tools(body: Body) -> Iterator[tuple[str, Json]]:
    """Yield the names and schemas of the functions that a request declares."""
    for tool in listed(body.get("tools")):
        match tool:
            case {"function": {"name": str(name), **rest}}:
                yield name, rest.get("parameters")
            case {"functionDeclarations": [*functions]}:
                for function in functions:
                    yield function["name"], function.get("parametersJsonSchema") or function.get("parameters")
            case {"name": str(name), "input_schema": schema} | {"name": str(name), "parameters": schema}:
                yield name, schema
            case _:
                pass


def _example(schema: Json, depth: int) -> Json:
    """Return a value that fits a schema, as far as its types tell."""
    if not isinstance(schema, dict) or depth == 0:
        return {}
    known = cast("Body", schema)
    for key in ("const", "default"):
        if key in known:
            return known[key]
    choices = listed(known.get("enum"))
    if choices:
        return choices[0]
    kind = str(next(iter(listed(known.get("type"))), "object")).lower()
    if kind == "array":
        return [_example(known["items"], depth - 1)] if known.get("minItems") and "items" in known else []
    if kind != "object":
        return _EXAMPLES.get(kind, "example")
    properties: Body = known.get("properties") or {}
    return {name: _example(properties.get(name), depth - 1) for name in listed(known.get("required"))}


def _text(turn: Json) -> str:
    """Return the text of a message, an item or a content."""
    match turn:
        case str():
            return turn
        case {"content": str(text)} | {"text": str(text)}:
            return text
        case {"content": [*pieces]} | {"parts": [*pieces]}:
            return " ".join(text for piece in pieces if (text := _text(piece)))
        case _:
            return ""


def _words(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return " ".join(_text(piece) for piece in cast("list[object]", value))
    return msgspec.json.encode(value).decode()
