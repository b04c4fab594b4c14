"""Servers that speak Chat Completions in their own way: their words, their envelopes, their rules."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from tests.effort import examples
from tests.models import grammar

from heaveto import validate
from heaveto.core.request import ModelRequest
from heaveto.models.wire.openai_chat import OpenAIChatEncoder

Body = dict[str, Any]
USER: Body = {"role": "user", "content": "hi"}
TEXT: Body = {"type": "text", "text": "x"}


def calls(*ids: str, arguments: str = "{}", **more: Any) -> Body:
    made = [{"id": call_id, "type": "function", "function": {"name": "t", "arguments": arguments}} for call_id in ids]
    return {"role": "assistant", "content": None, "tool_calls": made, "reasoning_content": "", **more}


def result(call_id: str) -> Body:
    return {"role": "tool", "tool_call_id": call_id, "content": "ok"}


def body(*turns: Body, **more: Any) -> Body:
    return {"model": "m", "messages": list(turns), **more}


def block_body(*blocks: list[Body], **more: Any) -> Body:
    roles = ["user", "assistant"] * len(blocks)
    turns = [{"role": role, "content": content} for role, content in zip(roles, blocks, strict=False)]
    return body(*turns, **more)


def use(call_id: str, given: Any = None) -> Body:
    return {"type": "tool_use", "id": call_id, "name": "t", "input": given if given is not None else {}}


def answer(call_id: str) -> Body:
    return {"type": "tool_result", "tool_use_id": call_id, "content": "ok"}


UNTHOUGHT = calls("a")
del UNTHOUGHT["reasoning_content"]
NO_PARAMETERS = [{"type": "function", "function": {"name": "t", "parameters": {}}}]
UNANSWERED, ORPHAN = body(USER, calls("a"), USER), body(USER, result("a"))
LATE = body(USER, calls("a"), USER, result("a"))
MINIMAX = "invalid params, {} (2013)".format
DASHSCOPE = "<400> InternalError.Algo.InvalidParameter: {}".format
BROKEN: dict[str, tuple[str, str, Body, str]] = {
    "deepseek O1": ("O1", "deepseek", UNANSWERED, "(insufficient tool messages following tool_calls message)"),
    "deepseek O2": ("O2", "deepseek", ORPHAN, "Messages with role 'tool' must be a response to a preceding message"),
    "deepseek O3": ("O3", "deepseek", body(USER, calls("a"), result("b")), "'tool_call_id' of 'b' not found"),
    "deepseek Q1": (
        "Q1",
        "deepseek",
        body(USER, UNTHOUGHT, result("a")),
        "The `reasoning_content` in the thinking mode must be passed back to the API.",
    ),
    "deepseek R4": (
        "R4",
        "deepseek-responses",
        {
            "input": [
                {"type": "function_call", "call_id": "a"},
                {"role": "user", "content": "wait"},
                {"type": "function_call_output", "call_id": "a"},
            ]
        },
        "No tool output found for tool call a.",
    ),
    "deepseek R4 one of two": (
        "R4",
        "deepseek-responses",
        {
            "input": [
                {"type": "function_call", "call_id": "a"},
                {"type": "function_call", "call_id": "b"},
                {"type": "function_call_output", "call_id": "a"},
                {"type": "function_call", "call_id": "c"},
                {"type": "function_call_output", "call_id": "c"},
                {"type": "function_call_output", "call_id": "b"},
            ]
        },
        "No tool output found for tool call b.",
    ),
    "kimi O1": ("O1", "kimi", UNANSWERED, "must be followed by tool messages"),
    "kimi Q1": (
        "Q1",
        "kimi",
        body(USER, UNTHOUGHT, result("a"), {"role": "assistant", "content": "x"}, USER),
        "thinking is enabled but reasoning_content is missing in assistant tool call message at index 1",
    ),
    "qwen O1": ("O1", "qwen", UNANSWERED, "did not have response messages: message[2].role"),
    "qwen O2": ("O2", "qwen", ORPHAN, DASHSCOPE('messages with role "tool" must be a response to a preceeding')),
    "qwen O7": ("O7", "qwen", body(USER, calls()), DASHSCOPE("Empty tool_calls is not supported in message")),
    "qwen Q2": (
        "Q2",
        "qwen",
        body(USER, calls("a", arguments='{"q'), result("a")),
        DASHSCOPE('The "function.arguments" parameter of the code model must be in JSON format.'),
    ),
    "minimax O1": ("O1", "minimax", UNANSWERED, MINIMAX("tool call and result not match")),
    "minimax O1 late": ("O1", "minimax", LATE, MINIMAX("tool call result does not follow tool call")),
    "minimax O2": ("O2", "minimax", ORPHAN, MINIMAX("tool call result does not follow tool call")),
    "minimax O3": (
        "O3",
        "minimax",
        body(USER, calls("a"), result("b")),
        MINIMAX("tool result's tool id(b) not found"),
    ),
    "minimax Q2": (
        "Q2",
        "minimax",
        body(USER, calls("a", arguments=""), result("a")),
        MINIMAX("invalid function arguments json string, tool_call_id: a"),
    ),
    "minimax Q4": ("Q4", "minimax", body(USER, tools=NO_PARAMETERS), MINIMAX("function parameters is empty")),
    "minimax Q5": ("Q5", "minimax", body(USER, calls(""), result("")), MINIMAX("tool call id is invalid")),
    "minimax-anthropic O1": (
        "O1",
        "minimax-anthropic",
        block_body([TEXT], [use("a")], [TEXT]),
        MINIMAX("tool call and result not match"),
    ),
    "minimax-anthropic O3": (
        "O3",
        "minimax-anthropic",
        block_body([TEXT], [use("a")], [answer("b")]),
        MINIMAX("tool result's tool id(b) not found"),
    ),
    "minimax-anthropic Q2": (
        "Q2",
        "minimax-anthropic",
        block_body([TEXT], [use("a", "{}")], [answer("a")]),
        MINIMAX("invalid function arguments json string, tool_call_id: a"),
    ),
    "minimax-anthropic Q3": (
        "Q3",
        "minimax-anthropic",
        block_body([TEXT], [use("a")], [answer("a"), TEXT]),
        MINIMAX("tool call result does not follow tool call"),
    ),
    "minimax-anthropic Q4": (
        "Q4",
        "minimax-anthropic",
        block_body([TEXT], tools=[{"name": "t", "input_schema": {}}]),
        MINIMAX("function parameters is empty"),
    ),
}
ACCEPTED: dict[str, tuple[str, Body]] = {
    "deepseek an earlier turn (Q1)": ("deepseek", body(USER, UNTHOUGHT, result("a"), USER)),
    "deepseek thinking disabled (Q1)": (
        "deepseek", body(USER, UNTHOUGHT, result("a"), thinking={"type": "disabled"})
    ),
    "deepseek calls of a turn together (R4)": (
        "deepseek-responses",
        {
            "input": [
                {"type": "function_call", "call_id": "a"},
                {"type": "function_call", "call_id": "b"},
                {"type": "function_call_output", "call_id": "b"},
                {"type": "function_call_output", "call_id": "a"},
                {"role": "user", "content": "x"},
            ]
        },
    ),
    "kimi an id with a dot and a colon": ("kimi", body(USER, calls("functions.t:0"), result("functions.t:0"))),
    "qwen thinking is not wanted": ("qwen", body(USER, UNTHOUGHT, result("a"))),
    "minimax a user behind results": ("minimax", body(USER, calls("a"), result("a"), USER)),
    "minimax-anthropic results alone (Q3)": (
        "minimax-anthropic", block_body([TEXT], [TEXT, use("a"), use("b")], [answer("b"), answer("a")], [TEXT]),
    ),
}  # fmt: skip
ENVELOPES = {
    "deepseek": {"error": {"message", "type", "param", "code"}},
    "kimi": {"error": {"message", "type"}},
    "qwen": {"error": {"message", "type", "param", "code"}, "request_id": set()},
    "minimax": {"error": {"message", "code"}},
    "minimax-anthropic": {"type": set(), "error": {"type", "message", "http_code"}, "request_id": set()},
}


@pytest.mark.parametrize(("rule", "provider", "broken", "words"), BROKEN.values(), ids=BROKEN)
def test_a_broken_rule_is_answered_as_the_server_does(rule: str, provider: str, broken: Body, words: str) -> None:
    """Each has words of its own for what all refuse, and refuses more (O1 to O7, Q1 to Q5, R4)."""
    violation = validate(broken, provider)
    assert violation is not None
    assert (violation.rule, violation.status, violation.unconfirmed) == (rule, 400, False)
    assert words in violation.message


@pytest.mark.parametrize(("provider", "accepted"), ACCEPTED.values(), ids=ACCEPTED)
def test_what_keeps_the_rules_is_accepted(provider: str, accepted: Body) -> None:
    """Nothing is refused that the server takes."""
    assert validate(accepted, provider) is None


@pytest.mark.parametrize("provider", ENVELOPES)
def test_each_server_has_its_envelope(provider: str) -> None:
    """Clients look into different fields."""
    broken = block_body([TEXT], [use("a")], [TEXT]) if provider == "minimax-anthropic" else UNANSWERED
    violation = validate(broken, provider)
    assert violation is not None
    shape = {key: set(value) if isinstance(value, dict) else set() for key, value in violation.body.items()}
    assert shape == ENVELOPES[provider]


def test_codes_are_those_of_the_server() -> None:
    """They tell machines what happened."""
    codes = {}
    for provider in ("openai", "deepseek", "qwen", "minimax"):
        violation = validate(UNANSWERED, provider)
        assert violation is not None
        codes[provider] = violation.body["error"]["code"]
    assert codes == {
        "openai": None,
        "deepseek": "invalid_request_error",
        "qwen": "invalid_parameter_error",
        "minimax": "invalid_prompt",
    }


def test_what_nobody_reported_of_a_server_is_judged_on_demand() -> None:
    """Rules of OpenAI may hold elsewhere too: we keep them, and do not claim them (O4, O9, O11)."""
    broken = body(USER, calls("a" * 41), result("a" * 41))
    for provider in ("deepseek", "kimi", "qwen", "minimax"):
        assert validate(broken, provider) is None
        violation = validate(broken, provider, strict_unconfirmed=True)
        assert violation is not None and violation.rule == "O11" and violation.unconfirmed


def test_arguments_that_are_no_object_are_judged_on_demand() -> None:
    """Only what is no JSON at all has been reported (Q2)."""
    broken = body(USER, calls("a", arguments="[1]"), result("a"))
    assert validate(broken, "qwen") is None
    violation = validate(broken, "qwen", strict_unconfirmed=True)
    assert violation is not None and violation.rule == "Q2" and violation.unconfirmed


@settings(max_examples=examples(50), deadline=None)
@given(grammar.requests)
def test_every_server_accepts_what_the_encoder_makes(request: ModelRequest) -> None:
    """With empty thoughts where they are wanted, which these servers take (Q1)."""
    encoded = OpenAIChatEncoder(reasoning_content=True).encode(request)
    for provider in ("openai", "deepseek", "kimi", "qwen", "minimax"):
        assert validate(encoded, provider, strict_unconfirmed=True) is None
