"""The rules of OpenAI Responses."""

from __future__ import annotations

from typing import Any

import pytest

from heaveto.core.validate.openai_responses import validate

USER = {"role": "user", "content": "hi"}
REASONING = {"type": "reasoning", "id": "rs_1", "summary": []}


def call(call_id: str, **more: Any) -> dict[str, Any]:
    return {"type": "function_call", "call_id": call_id, "name": "t", "arguments": "{}", **more}


def output(call_id: str) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": "ok"}


def typed(kind: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "call_id": "a", **more}


def choose(name: str) -> dict[str, Any]:
    return {"tool_choice": {"type": "function", "name": name}}


def body(*items: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"model": "m", "input": list(items), **more}


ADDED = {"type": "additional_tools", "role": "developer", "tools": [{"type": "function", "name": "t"}]}
REFERENCE = {"type": "item_reference", "id": "rs_1"}
STORED_CALL = call("a", id="fc_1")

BROKEN = {
    "R1": ("R1", body(USER, call("a")), "No tool output found for function call a."),
    "R3": ("R3", body(USER, output("a")), "No tool call found for function call output with call_id a."),
    "R0": ("R0", {"input": ["x"]}, "Invalid type for 'input'"),
    "R0 role": ("R0", body(USER, {"role": "tool", "content": "ok"}), "Invalid value: 'tool'."),
    "R0 key": ("R0", body({"role": "assistant", "tool_calls": [{}]}), "Unknown parameter: 'input[0].tool_calls'."),
    "R0 block": ("R0", body({"role": "user", "content": [{"type": "text", "text": "hi"}]}), "Invalid value: 'text'."),
    "R2 custom": ("R2", body(typed("custom_tool_call")), "No tool output found for custom tool call a."),
    "R2 patch": ("R2", body(typed("apply_patch_call")), "No tool output found for apply patch call a."),
    "R2 search": ("R2", body(typed("tool_search_call")), "No tool output found for tool search call a."),
    "R2 shell": ("R2", body(typed("local_shell_call")), "No tool output found for local shell call a."),
    "R2 other kind": (
        "R3",
        body(typed("custom_tool_call"), output("a")),
        "No tool call found for function call output",
    ),
    "R3 custom": (
        "R3",
        body(USER, typed("custom_tool_call_output")),
        "No tool call found for custom tool call output with call_id a.",
    ),
    "R17": ("R17", body(USER, **choose("t")), "Tool choice 't' not found in 'tools' parameter."),
    "R5 last": ("R5", body(USER, REASONING), "Item 'rs_1' of type 'reasoning' was provided without its required"),
    "R5 message without id": ("R5", body(USER, REASONING, {"role": "assistant", "content": "x"}), "Item 'rs_1'"),
    "R7": ("R7", body(call("a", id="fc_1"), call("b", id="fc_1"), output("a"), output("b")), "Duplicate item found"),
    "R9 prefix": ("R9", body(call("a", id="call_1"), output("a")), "Expected an ID that begins with 'fc'."),
    "R9 charset": ("R9", body(call("a", id="fc.1"), output("a")), "letters, numbers, underscores, or dashes"),
    "R18 empty": ("R18", body(call("a", name=""), output("a")), "Invalid 'input[0].name': empty string."),
    "R18 long": ("R18", body(call("a", name="n" * 65), output("a")), "string too long. Expected a string with"),
    "R18 charset": ("R18", body(call("a", name="pay now"), output("a")), "string does not match pattern."),
    "R18 custom": ("R18", body(typed("custom_tool_call", name="")), "empty string"),
    "R10": ("R10", body(call("a" * 65), output("a" * 65)), "string too long"),
}

ACCEPTED = {
    "text": {"model": "m", "input": "hi"},
    "R4 message between": body(USER, call("a"), USER, output("a")),
    "R5 call": body(USER, REASONING, call("a", id="fc_1"), output("a")),
    "R5 message with id": body(USER, REASONING, {"type": "message", "role": "assistant", "id": "msg_1", "content": []}),
    "R2 answered": body(
        typed("custom_tool_call"),
        typed("custom_tool_call_output"),
        {"type": "local_shell_call", "call_id": "sh_1"},
        {"type": "local_shell_call_output", "id": "sh_1"},
    ),
    "R2 executed by the provider": body(typed("tool_search_call", call_id=None, execution="server")),
    "R11 not kept, but here": body(USER, {**REASONING, "encrypted_content": "x"}, call("a"), output("a"), store=False),
    "R15 images": body(call("a"), {**output("a"), "output": [{"type": "input_image", "image_url": "https://x/y"}]}),
    "R17 declared": body(USER, tools=[{"type": "function", "name": "t"}], **choose("t")),
    "R17 with the input": body(ADDED, **choose("t")),
    "R10 64 characters": body(call("a" * 64), output("a" * 64)),
    "chained": body(output("a"), previous_response_id="resp_1"),
    "R16 malformed arguments": body(call("a", arguments="{"), output("a")),
}

UNCONFIRMED = {
    "R8 two outputs": ("R8", body(call("a"), output("a"), output("a"))),
    "R8 id again": ("R8", body(call("a"), output("a"), call("a"), output("b"), call("b"))),
    "R4 output first": ("R3", body(output("a"), call("a"))),
}

BY_OPTION: dict[str, tuple[str, dict[str, Any], dict[str, Any], str]] = {
    "R1 of the chain": (
        "R1",
        body(USER, previous_response_id="resp_1"),
        {"chain": [STORED_CALL]},
        "No tool output found for function call a.",
    ),
    "R3 of the chain": ("R3", body(output("b"), previous_response_id="resp_1"), {"chain": []}, "call_id b."),
    "R6": (
        "R6",
        body(USER, STORED_CALL, output("a")),
        {"reasoning_model": True},
        "Item 'fc_1' of type 'function_call' was provided without its required 'reasoning' item: 'rs_1'.",
    ),
    "R7 sent again": (
        "R7",
        body(STORED_CALL, output("a"), previous_response_id="resp_1"),
        {"chain": [STORED_CALL]},
        "Duplicate item found with id fc_1.",
    ),
    "R17 with the input": ("R17", body(ADDED, **choose("t")), {"additional_tools_choice": False}, "Tool choice 't'"),
}
NOT_STORED: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "R11 nothing is": ("R11", body(USER, REFERENCE, store=False), {}),
    "R11 reasoning by id": ("R11", body(USER, REASONING, call("a"), output("a"), store=False), {}),
    "R11 known items": ("R11", body(USER, REFERENCE), {"known_items": {"rs_2"}}),
}


@pytest.mark.parametrize(("rule", "broken", "options", "words"), BY_OPTION.values(), ids=BY_OPTION)
def test_what_the_provider_has_stored_is_an_option(
    rule: str, broken: dict[str, Any], options: dict[str, Any], words: str
) -> None:
    """A body alone does not tell it; then the rule is not judged."""
    violation = validate(broken, **options)
    assert violation is not None and violation.rule == rule and words in violation.message
    assert validate(broken) is None


@pytest.mark.parametrize(("rule", "broken", "options"), NOT_STORED.values(), ids=NOT_STORED)
def test_an_item_that_is_not_stored_is_not_found(rule: str, broken: dict[str, Any], options: dict[str, Any]) -> None:
    """With the status of things that are not there (R11)."""
    violation = validate(broken, **options)
    assert violation is not None and (violation.rule, violation.status) == (rule, 404)
    assert violation.message.startswith("Item with id 'rs_1' not found. Items are not persisted when `store` is set")
    assert validate(broken, known_items={"rs_1"}) is None


def test_reasoning_before_it_makes_a_stored_call_acceptable() -> None:
    """One reasoning item is enough for the calls behind it, but not for those of the next response (R6)."""
    unit = [REASONING, STORED_CALL, call("b", id="fc_2")]
    assert validate(body(USER, *unit, output("a"), output("b")), reasoning_model=True) is None
    later = body(USER, *unit, output("a"), output("b"), call("c", id="fc_3"), output("c"))
    violation = validate(later, reasoning_model=True)
    assert violation is not None and violation.rule == "R6" and "'fc_3'" in violation.message


def test_an_unknown_response_cannot_be_gone_on_from() -> None:
    """With the code that clients look for (R12)."""
    chained = body(USER, previous_response_id="resp_1")
    violation = validate(chained, known_responses=())
    assert violation is not None and violation.rule == "R12" and violation.unconfirmed
    assert violation.body["error"]["code"] == "previous_response_not_found"
    assert validate(chained, known_responses={"resp_1"}) is None


@pytest.mark.parametrize(("rule", "broken", "words"), BROKEN.values(), ids=BROKEN)
def test_a_broken_rule_is_answered_as_openai_does(rule: str, broken: dict[str, Any], words: str) -> None:
    """Status, envelope and words are the provider's."""
    violation = validate(broken)
    assert violation is not None
    assert (violation.rule, violation.status) == (rule, 400)
    assert words in violation.body["error"]["message"]


@pytest.mark.parametrize("accepted", ACCEPTED.values(), ids=ACCEPTED)
def test_what_keeps_the_rules_is_accepted(accepted: dict[str, Any]) -> None:
    """Nothing is refused that the provider takes."""
    assert validate(accepted) is None


@pytest.mark.parametrize(("rule", "broken"), UNCONFIRMED.values(), ids=UNCONFIRMED)
def test_unconfirmed_rules_are_applied_on_demand(rule: str, broken: dict[str, Any]) -> None:
    """We keep them; others need not."""
    violation = validate(broken, strict_unconfirmed=True)
    assert violation is not None and violation.rule == rule
    assert validate(broken) is None
