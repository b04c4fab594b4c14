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


def thinking(mode: str) -> dict[str, Any]:
    return {"thinking": {"type": mode}}


def body(*messages: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"model": "m", "max_tokens": 1, "messages": list(messages), **more}


SERVER_USE = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
SEARCH = {"type": "web_search_20260318", "name": "web_search"}
THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
ADVICE = {"type": "advisor_tool_result", "tool_use_id": "srvtoolu_1", "content": {}}
SYSTEM = {"role": "system", "content": "be"}
CACHED = {"cache_control": {"type": "ephemeral"}}
MARKED = {**TEXT, **CACHED}
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
    "A0 no list": ("A0", {"messages": "hi"}, "messages: Input should be a valid list"),
    "A0 role": ("A0", {"messages": [{"role": "tool", "content": "ok"}]}, "messages.0.role: Input should be 'user'"),
    "A0 key": (
        "A0",
        {"messages": [{"role": "assistant", "content": "so", "tool_calls": [{}]}]},
        "messages.0.tool_calls: Extra inputs are not permitted",
    ),
    "A0 block": (
        "A0",
        {"messages": [{"role": "user", "content": [{"type": "input_text", "text": "hi"}]}]},
        "messages.0.content.0: Input tag 'input_text'",
    ),
    "A0 untyped": (
        "A0",
        {"messages": [{"role": "user", "content": [{"text": "hi"}]}]},
        "messages.0.content.0.type: Field required",
    ),
    "A0 item": ("A0", {"messages": [{"type": "function_call", "call_id": "a"}]}, "messages.0.type: Extra inputs"),
    "A0 no objects": ("A0", {"messages": ["hi"]}, "messages: Input should be a valid list"),
    "A11' image": (
        "A11'",
        body(USER, assistant(use("a")), user(result("a", is_error=True, content=[TEXT, {"type": "image"}]))),
        "messages.2.content.0.tool_result: images are not allowed",
    ),
    "A14": (
        "A14",
        body(USER, assistant(TEXT, use("a")), user(result("a")), **thinking("enabled")),
        "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `text`. When `thinking` is",
    ),
    "A14'": (
        "A14'",
        body(USER, assistant(THOUGHT, use("a")), user(result("a")), **thinking("disabled")),
        "When thinking is disabled, an `assistant` message in the final position cannot contain `thinking`",
    ),
    "A16 missing": (
        "A16",
        body(USER, assistant({"type": "thinking", "thinking": "hm"}, TEXT), USER),
        "messages.1.content.0.thinking.signature: Field required",
    ),
    "A16 empty": (
        "A16",
        body(USER, assistant({**THOUGHT, "signature": ""}, TEXT), USER),
        "messages.1.content.0: Invalid `signature` in `thinking` block",
    ),
    "A16 redacted": ("A16", body(USER, assistant({"type": "redacted_thinking"}, TEXT), USER), "data: Field required"),
    "A19": (
        "A19",
        body(USER, assistant(SERVER_USE, use("a")), user(result("a"), TEXT), tools=[SEARCH]),
        "`web_search` tool use with id `srvtoolu_1` was found without a corresponding `web_search_tool_result` block",
    ),
    "A20 pending": ("A20", body(USER, assistant(SERVER_USE, use("a")), user(result("a"))), "`web_search` is used here"),
    "A20 advisor": (
        "A20",
        body(USER, assistant({**SERVER_USE, "name": "advisor"}, ADVICE, TEXT), USER),
        "`advisor` is used here",
    ),
    "A20 reference": (
        "A20",
        body(USER, assistant(use("a")), user(result("a", content=[{"type": "tool_reference", "tool_name": "gone"}]))),
        "`gone` is used here",
    ),
    "A20 addition": (
        "A20",
        body(user(TEXT, {"type": "tool_addition", "tool": {"type": "tool_reference", "name": "gone"}})),
        "tool_addition/tool_removal references unknown tool 'gone'",
    ),
    "A25": ("A25", body(USER, SYSTEM, USER), "messages.1: `system` messages must directly precede"),
    "A26": ("A26", body(user(*[MARKED] * 3), tools=[MARKED], system=[MARKED]), "A maximum of 4 blocks with cache_con"),
    "A26 thinking": (
        "A26",
        body(USER, assistant({**THOUGHT, **CACHED}, TEXT), USER),
        "cache_control cannot be set for `thinking` blocks",
    ),
    "A28": ("A28", body(*[USER] * 100_001), "at most 100000 items"),
    "A30": (
        "A30",
        body(USER, tool_choice={"type": "any"}, **thinking("enabled")),
        "Thinking may not be enabled when tool_choice forces tool use.",
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
    "A12 a paused turn": body(USER, assistant(TEXT, SERVER_USE), tools=[SEARCH]),
    "A17 only results after it": body(USER, assistant(SERVER_USE, use("a")), user(result("a")), tools=[SEARCH]),
    "A14 after a result": body(
        USER,
        assistant(THOUGHT, use("a")),
        user(result("a")),
        assistant(use("b")),
        user(result("b")),
        **thinking("enabled"),
    ),
    "A14 earlier turns": body(
        USER, assistant(use("a")), user(result("a")), assistant(TEXT), USER, **thinking("enabled")
    ),
    "A14' earlier turns": body(USER, assistant(THOUGHT, TEXT), USER, **thinking("disabled")),
    "A20 declared": body(
        USER,
        assistant({**SERVER_USE, "name": "bash_code_execution"}, use("a")),
        user(result("a")),
        tools=[{"type": "code_execution_20260521", "name": "code_execution"}],
    ),
    "A20 defined on the way": body(
        user(TEXT, {"type": "tool_addition", "tool": {"type": "tool_definition", "definition": {"name": "t"}}}),
        user({"type": "tool_removal", "tool": {"type": "tool_reference", "name": "t"}}),
    ),
    "A25 before an answer": body(USER, SYSTEM, assistant(TEXT), USER),
    "A25 at the end": body(USER, SYSTEM),
    "A26 four": body(user(*[MARKED] * 4)),
    "A22 a name that is not declared": body(
        USER, assistant(use("a")), user(result("a")), tools=[{"name": "other", "input_schema": {}}]
    ),
    "A21 no tools": body(USER, assistant(use("a")), user(result("a"))),
}

UNCONFIRMED = {
    "A5 again in a later turn": ("A5", ACCEPTED["A5 again in a later turn"]),
    "A6 long": ("A6", body(USER, assistant(use("a" * 65)), user(result("a" * 65)))),
    "A24 assistant first": ("A24", body(assistant(TEXT), USER)),
    "A27 call of the user": ("A27", body(user(use("a")))),
    "A29 no messages": ("A29", body()),
}

STEP = (USER, assistant(THOUGHT, use("a")), user(result("a")))
BY_OPTION: dict[str, tuple[str, dict[str, Any], dict[str, Any], str]] = {
    "A1'": (
        "A1'",
        BROKEN["A1"][1],
        {"older_wording": True},
        "messages.2: Did not find 1 `tool_result` block(s) at the",
    ),
    "A14 by default": ("A14", body(USER, assistant(use("a")), user(result("a"))), {"thinking": "manual"}, "Expected"),
    "A14' by default": ("A14'", body(*STEP), {"thinking": "disabled"}, "When thinking is disabled"),
    "A15 never given": ("A15", body(*STEP), {"issued_thinking": {}}, "messages.1.content.0: Invalid `signature` in"),
    "A15 edited": (
        "A15",
        body(*STEP),
        {"issued_thinking": {"c2ln": "hm?"}},
        "blocks in the latest assistant message cannot be modified.",
    ),
    "A15 edited earlier": (
        "A15",
        body(*STEP, assistant(TEXT), USER),
        {"issued_thinking": {"c2ln": "hm?"}},
        "messages.1.content.0: Invalid `signature` in `thinking` block",
    ),
    "A21": ("A21", body(*STEP), {"tools_required": True}, "must define tools."),
    "A25 old models": ("A25", body(USER, SYSTEM), {"system_messages": False}, 'Unexpected role "system".'),
    "A30 by model": ("A30", body(USER, tool_choice={"type": "tool"}), {"forced_choice": False}, "forced tool use"),
}


@pytest.mark.parametrize(("rule", "broken", "options", "words"), BY_OPTION.values(), ids=BY_OPTION)
def test_what_depends_on_the_model_is_an_option(
    rule: str, broken: dict[str, Any], options: dict[str, Any], words: str
) -> None:
    """The same body passes with other models."""
    violation = validate(broken, **options)
    assert violation is not None and violation.rule == rule and words in violation.message
    default = validate(broken)
    assert default is None or default.rule != rule


def test_thinking_that_the_model_has_had_goes_back() -> None:
    """As it was (A15)."""
    assert validate(body(*STEP), issued_thinking={"c2ln": "hm"}) is None


@pytest.mark.parametrize(("rule", "broken", "words"), BROKEN.values(), ids=BROKEN)
def test_a_broken_rule_is_answered_as_anthropic_does(rule: str, broken: dict[str, Any], words: str) -> None:
    """Status, envelope and words are the provider's."""
    violation = validate(broken)
    assert violation is not None
    assert (violation.rule, violation.status, violation.body["type"]) == (rule, 400, "error")
    assert violation.headers == {"request-id": violation.body["request_id"]} and not violation.unconfirmed
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
    assert validate(body(USER, assistant({**TEXT, "text": "x "})), prefill=True) is None
    violation = validate(body(USER, assistant(use("a"))), prefill=True)
    assert violation is not None and violation.rule == "A1"


def test_white_space_at_the_end_of_a_last_answer_is_refused_on_demand() -> None:
    """By models that go on from it (A13)."""
    violation = validate(body(USER, assistant({**TEXT, "text": "x "})), prefill=True, strict_unconfirmed=True)
    assert violation is not None and violation.rule == "A13" and violation.unconfirmed
