"""The rules of Anthropic Messages."""

from __future__ import annotations

from typing import Any

import pytest

from heaveto.core.validate.anthropic import validate

USER = {"role": "user", "content": "hi"}
TEXT = {"type": "text", "text": "x"}


def use(call_id: str, **more: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": "t", "input": {}, **more}


def result(call_id: str, **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": "ok", **more}


def user(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def assistant(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


def body(*messages: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"model": "m", "max_tokens": 1, "messages": list(messages), **more}


SERVER_USE = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
SEARCH = {"type": "web_search_20260318", "name": "web_search"}
SERVER_RESULT = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
UNANSWERED = "`tool_use` ids were found without `tool_result` blocks immediately after: "

BROKEN = {
    "A1": ("A1", body(USER, assistant(use("a")), USER), f"messages.2: {UNANSWERED}a. Each"),
    "A1 one of two": ("A1", body(USER, assistant(use("a"), use("b")), user(result("a"))), UNANSWERED + "b. Each"),
    "A2": (
        "A2",
        body(user(TEXT, result("a"))),
        "messages.0.content.1: unexpected `tool_use_id` found in `tool_result`",
    ),
    "A3": ("A3", body(USER, assistant(use("a")), user(TEXT, result("a"))), UNANSWERED + "a. Each"),
    "A4": (
        "A4",
        body(USER, assistant(use("a")), user(result("a"), result("a"))),
        "messages.2.content.1: each tool_use must have a single result. Found multiple `tool_result` blocks with id: a",
    ),
    "A5": (
        "A5",
        body(USER, assistant(use("a"), use("a")), user(result("a"))),
        "messages.1.content.1: `tool_use` ids must be unique",
    ),
    "A6": (
        "A6",
        body(USER, assistant(use("a.b")), user(result("a.b"))),
        "messages.1.content.0.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'",
    ),
    "A7 empty": ("A7", body(USER, assistant(use("a", name="")), user(result("a"))), "at least 1 character"),
    "A7 long": ("A7", body(USER, assistant(use("a", name="n" * 201)), user(result("a"))), "at most 200 characters"),
    "A7 declared": (
        "A7",
        body(USER, tools=[{"name": "a.b", "input_schema": {}}]),
        "tools.0.custom.name: String should match pattern '^[a-zA-Z0-9_-]{1,128}$'",
    ),
    "A8": ("A8", body(USER, assistant(use("a", input="{}")), user(result("a"))), "Input should be a valid dictionary"),
    "A9": ("A9", body(user(), USER), "messages.0: all messages must have non-empty content except for the optional"),
    "A10 empty": ("A10", body(user({"type": "text", "text": ""})), "messages: text content blocks must be non-empty"),
    "A10 blank": ("A10", body(user({"type": "text", "text": " \n"})), "must contain non-whitespace text"),
    "A11": (
        "A11",
        body(USER, assistant(use("a")), user(result("a", is_error=True, content=""))),
        "messages.2.content.0.tool_result: content cannot be empty if `is_error` is true",
    ),
    "A12": ("A12", body(USER, assistant(TEXT)), "This model does not support assistant message prefill."),
    "A12 with a call": (
        "A12",
        body(USER, assistant(use("a"))),
        "This model does not support assistant message prefill.",
    ),
    "A17": ("A17", body(USER, assistant(SERVER_USE), USER), "without a corresponding"),
    "A18": (
        "A18",
        body(USER, assistant(SERVER_RESULT, TEXT), USER),
        "messages.1.content.0: unexpected `tool_use_id` found in `web_search_tool_result` blocks: srvtoolu_1. Each",
    ),
}

ACCEPTED = {
    "A1 split over two user messages (A23)": body(
        USER, assistant(use("a"), use("b")), user(result("a")), user(result("b"), TEXT)
    ),
    "A5 again in a later turn": body(
        USER, assistant(use("a")), user(result("a")), assistant(use("a")), user(result("a"))
    ),
    "A7 200 characters": body(USER, assistant(use("a", name="n" * 200)), user(result("a"))),
    "A11 empty without error": body(USER, assistant(use("a")), user(result("a", content=""))),
    "A17 answered": body(USER, assistant(SERVER_USE, SERVER_RESULT, TEXT), USER),
    "A17 only results after it": body(USER, assistant(SERVER_USE, use("a")), user(result("a")), tools=[SEARCH]),
    "A21 no tools": body(USER, assistant(use("a")), user(result("a"))),
}

UNCONFIRMED = {
    "A5 again in a later turn": ("A5", ACCEPTED["A5 again in a later turn"]),
    "A24 assistant first": ("A24", body(assistant(TEXT), USER)),
    "A27 call of the user": ("A27", body(user(use("a")))),
    "A29 no messages": ("A29", body()),
}


@pytest.mark.parametrize(("rule", "broken", "words"), BROKEN.values(), ids=BROKEN)
def test_a_broken_rule_is_answered_as_anthropic_does(rule: str, broken: dict[str, Any], words: str) -> None:
    """Status, envelope and words are the provider's."""
    violation = validate(broken)
    assert violation is not None
    assert (violation.rule, violation.status, violation.body["type"]) == (rule, 400, "error")
    assert violation.body["error"]["type"] == "invalid_request_error"
    assert words in violation.body["error"]["message"]


@pytest.mark.parametrize("accepted", ACCEPTED.values(), ids=ACCEPTED)
def test_what_keeps_the_rules_is_accepted(accepted: dict[str, Any]) -> None:
    """Nothing is refused that the provider takes."""
    assert validate(accepted) is None


@pytest.mark.parametrize(("rule", "broken"), UNCONFIRMED.values(), ids=UNCONFIRMED)
def test_unconfirmed_rules_are_applied_on_demand(rule: str, broken: dict[str, Any]) -> None:
    """We keep them; others need not."""
    violation = validate(broken, strict_unconfirmed=True)
    assert violation is not None and violation.rule == rule and violation.unconfirmed
    assert validate(broken) is None


def test_models_with_prefill_go_on_from_the_last_answer() -> None:
    """Then a trailing answer is fine, but not one that calls (A12, A1)."""
    assert validate(body(USER, assistant(TEXT)), prefill=True) is None
    assert validate(body(USER, assistant()), prefill=True) is None
    violation = validate(body(USER, assistant(use("a"))), prefill=True)
    assert violation is not None and violation.rule == "A1"
