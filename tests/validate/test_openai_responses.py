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


def body(*items: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"model": "m", "input": list(items), **more}


BROKEN = {
    "R1": ("R1", body(USER, call("a")), "No tool output found for function call a."),
    "R3": ("R3", body(USER, output("a")), "No tool call found for function call output with call_id a."),
    "R5 last": ("R5", body(USER, REASONING), "Item 'rs_1' of type 'reasoning' was provided without its required"),
    "R5 message without id": ("R5", body(USER, REASONING, {"role": "assistant", "content": "x"}), "Item 'rs_1'"),
    "R7": ("R7", body(call("a", id="fc_1"), call("b", id="fc_1"), output("a"), output("b")), "Duplicate item found"),
    "R9 prefix": ("R9", body(call("a", id="call_1"), output("a")), "Expected an ID that begins with 'fc'."),
    "R9 charset": ("R9", body(call("a", id="fc.1"), output("a")), "letters, numbers, underscores, or dashes"),
    "R10": ("R10", body(call("a" * 65), output("a" * 65)), "string too long"),
}

ACCEPTED = {
    "text": {"model": "m", "input": "hi"},
    "R4 message between": body(USER, call("a"), USER, output("a")),
    "R5 call": body(USER, REASONING, call("a", id="fc_1"), output("a")),
    "R5 message with id": body(USER, REASONING, {"type": "message", "role": "assistant", "id": "msg_1", "content": []}),
    "R10 64 characters": body(call("a" * 64), output("a" * 64)),
    "chained": body(output("a"), previous_response_id="resp_1"),
    "R16 malformed arguments": body(call("a", arguments="{"), output("a")),
}

UNCONFIRMED = {
    "R8 two outputs": ("R8", body(call("a"), output("a"), output("a"))),
    "R8 id again": ("R8", body(call("a"), output("a"), call("a"), output("b"), call("b"))),
    "R4 output first": ("R3", body(output("a"), call("a"))),
}


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
