"""The model that needs no script, asked through every SDK's format."""

from __future__ import annotations

from typing import Any

import pytest

from heaveto.testing import echo
from heaveto.testing.script import Call, Say

SCHEMA = {
    "type": "object",
    "required": ["name", "count", "tags", "kind", "at"],
    "properties": {
        "name": {"type": "string"}, "count": {"type": ["integer", "null"]}, "more": {"type": "string"},
        "tags": {"type": "array", "items": {"type": "number"}, "minItems": 1}, "kind": {"enum": ["b", "c"]},
        "at": {"type": "object", "required": ["x"], "properties": {"x": {"type": "boolean"}}},
    },
}  # fmt: skip
ARGS = '{"name":"example","count":1,"tags":[1.5],"kind":"b","at":{"x":true}}'


BODIES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "openai": (
        {"messages": [{"role": "user", "content": "hi there"}],
         "tools": [{"type": "function", "function": {"name": "f", "parameters": SCHEMA}}]},
        {"role": "tool", "tool_call_id": "call_1", "content": "42"},
    ),
    "openai-responses": (
        {"input": [{"role": "user", "content": [{"type": "input_text", "text": "hi there"}]}],
         "tools": [{"type": "function", "name": "f", "parameters": SCHEMA}]},
        {"type": "function_call_output", "call_id": "call_1", "output": "42"},
    ),
    "anthropic": (
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "hi there"}]}],
         "tools": [{"name": "f", "input_schema": SCHEMA}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1",
                                      "content": [{"type": "text", "text": "42"}]}]},
    ),
    "gemini": (
        {"contents": [{"role": "user", "parts": [{"text": "hi there"}]}],
         "tools": [{"functionDeclarations": [{"name": "f", "parametersJsonSchema": SCHEMA}]}]},
        {"role": "user", "parts": [{"functionResponse": {"name": "f", "response": {"result": 42}}}]},
    ),
}  # fmt: skip


@pytest.mark.parametrize("api", BODIES)
def test_it_calls_the_first_tool_once_and_says_what_came(api: str) -> None:
    """With arguments that fit the schema; afterwards it repeats what the user says."""
    body, result = BODIES[api]
    key = next(key for key in ("messages", "input", "contents") if key in body)
    called = echo(body)
    assert isinstance(called, Call)
    assert (called.name, "".join(called.fragments)) == ("f", ARGS)
    answered = {**body, key: [*body[key], result]}
    told = spoken(echo(answered))
    assert told == ('The tool said: {"result":42}' if api == "gemini" else "The tool said: 42")
    assert spoken(echo({**answered, key: [*answered[key], *body[key]]})) == "You said: hi there"


def test_it_repeats_what_was_said_where_there_is_no_tool() -> None:
    """A plain text, and a response that goes on behind a stored one, call nothing."""
    assert spoken(echo({"input": "hello"})) == "You said: hello"
    body = {**BODIES["openai-responses"][0], "previous_response_id": "resp_1"}
    assert spoken(echo(body)) == "You said: hi there"


def spoken(answer: Any) -> str:
    assert isinstance(answer, Say)
    return "".join(answer.fragments)
