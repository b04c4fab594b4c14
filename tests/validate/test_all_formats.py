"""What holds of all validators: they are total, and they find every broken pair."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.effort import examples
from tests.models import grammar

from heaveto.core.request import ModelRequest
from heaveto.core.validate import FORMATS, anthropic, bedrock, gemini, mistral, openai_chat, openai_responses
from heaveto.core.validate import validate as front
from heaveto.events.contents import FunctionCall
from heaveto.models.wire import anthropic as anthropic_wire
from heaveto.models.wire import gemini as gemini_wire
from heaveto.models.wire import openai_chat as chat_wire
from heaveto.models.wire import openai_responses as responses_wire

Validate = Callable[[dict[str, Any]], Any]
VALIDATORS: list[Validate] = [
    openai_chat.validate,
    openai_responses.validate,
    anthropic.validate,
    gemini.validate,
    *[partial(front, provider=name, strict_unconfirmed=strict) for name in FORMATS for strict in (False, True)],
    *[partial(mistral.validate, version=version) for version in mistral.VERSIONS],
    *[partial(bedrock.validate, family=family) for family in bedrock.FAMILIES],
    lambda body: openai_responses.validate(
        body, strict_unconfirmed=True, chain=[], known_items=(), known_responses=(), reasoning_model=True
    ),
    lambda body: anthropic.validate(body, issued_thinking={}, thinking="manual", tools_required=True, prefill=True),
    lambda body: anthropic.validate(body, thinking="disabled", forced_choice=False, system_messages=False),
    lambda body: gemini.validate(body, issued_signatures=(), server_calls=False, vertex=True, prefill=True),
    lambda body: anthropic.validate(body, strict_unconfirmed=True, prefill=True),
    lambda body: gemini.validate(body, strict_unconfirmed=True, signatures=True),
]
WORDS = [
    "messages",
    "input",
    "contents",
    "role",
    "content",
    "parts",
    "type",
    "id",
    "name",
    "tool_calls",
    "tool_call_id",
    "tool_use_id",
    "call_id",
    "function",
    "text",
    "functionCall",
    "functionResponse",
    "tool_use",
    "tool_result",
    "server_tool_use",
    "function_call",
    "function_call_output",
    "reasoning",
    "user",
    "assistant",
    "model",
    "tool",
    "tools",
]
CONVERSE = ["toolUse", "toolResult", "reasoningContent", "cachePoint"]
KINDS = ["tool_use", "tool_result", "text", "thinking", "function_call", "function_call_output", "reasoning"]
words = st.sampled_from(WORDS) | st.text(max_size=3)
junk = st.recursive(
    st.none() | st.booleans() | st.integers() | words,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(words, inner, max_size=5),
    max_leaves=12,
)
likely = st.fixed_dictionaries(
    {},
    optional={
        "role": st.sampled_from(["user", "assistant", "model", "tool", "system"]),
        "type": st.sampled_from(KINDS) | junk,
        "content": st.lists(st.fixed_dictionaries({}, optional=dict.fromkeys((*WORDS, *CONVERSE), junk))) | junk,
        "parts": st.lists(st.dictionaries(st.sampled_from([*WORDS, "thoughtSignature"]), junk, max_size=2)) | junk,
        "tool_calls": st.lists(st.dictionaries(st.sampled_from(["id", "function"]), junk)) | junk,
        "tool_call_id": junk,
        "call_id": junk,
        "id": junk,
    },
)
"""Messages and items of all formats, more or less."""
bodies = st.dictionaries(
    st.sampled_from(["messages", "input", "contents", "tools", "toolConfig", "thinking", "tool_choice", "system"]),
    junk | st.lists(likely, max_size=4),
    max_size=4,
)


@settings(max_examples=examples(150), deadline=None)
@given(bodies)
def test_a_validator_never_raises(body: dict[str, Any]) -> None:
    """Whatever a client sends, it gets an answer that can be written as JSON."""
    for validate in VALIDATORS:
        violation = validate(body)
        if violation is not None:
            assert violation.status in (400, 404)
            assert violation.message
            msgspec.json.encode(violation.body)


@settings(max_examples=examples(200), deadline=None)
@given(junk, st.sampled_from(sorted(FORMATS)), st.booleans())
def test_any_json_value_is_judged(value: Any, provider: str, strict: bool) -> None:
    """Bodies, lists and what is neither; and nothing is changed by it."""
    before = repr(value)
    violation = front(value, provider, strict_unconfirmed=strict)
    assert repr(value) == before
    if not isinstance(value, (dict, list, str)):
        assert violation is not None


@settings(max_examples=examples(100), deadline=None)
@given(grammar.requests, st.data())
def test_a_lost_result_is_found_in_every_format(request: ModelRequest, data: st.DataObject) -> None:
    """Of an accepted request without one of its results nothing is accepted: the validators have teeth (P1)."""
    calls = [part for turn in request.turns for part in turn.parts if isinstance(part, FunctionCall)]
    assume(calls)
    number = data.draw(st.integers(0, len(calls) - 1))
    for broken, validate in (
        (_without(chat_wire.encode(request), number), openai_chat.validate),
        (_without(responses_wire.encode(request), number), openai_responses.validate),
        (_without(anthropic_wire.encode(request), number), anthropic.validate),
        (_without(gemini_wire.encode(request), number), gemini.validate),
    ):
        assert validate(broken) is not None


def _without(body: dict[str, Any], number: int) -> dict[str, Any]:
    """Return the body without its result of this number."""
    count = 0

    def walk(value: Any) -> Any:
        nonlocal count
        if isinstance(value, dict):
            return {key: walk(item) for key, item in value.items()}
        if not isinstance(value, list):
            return value
        kept: list[Any] = []
        for item in value:
            if _is_result(item):
                count += 1
                if count - 1 == number:
                    continue
            kept.append(walk(item))
        return kept

    return {key: walk(value) if key in ("messages", "input", "contents") else value for key, value in body.items()}


def _is_result(item: Any) -> bool:
    return isinstance(item, dict) and (
        item.get("role") == "tool"
        or (
            item.get("type") in ("tool_result", "function_call_output") and ("tool_use_id" in item or "call_id" in item)
        )
        or set(item) == {"functionResponse"}
    )
