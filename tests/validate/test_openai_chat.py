"""The rules of OpenAI Chat Completions, each with a body that breaks it and one that does not."""

from __future__ import annotations

from typing import Any

import pytest

from heaveto.core.validate.openai_chat import validate

USER = {"role": "user", "content": "hi"}


def calls(*ids: str, name: str = "t", **more: Any) -> dict[str, Any]:
    made = [{"id": call_id, "type": "function", "function": {"name": name, "arguments": "{}"}} for call_id in ids]
    return {"role": "assistant", "content": None, "tool_calls": made, **more}


def result(call_id: str, content: Any = "ok") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def body(*turns: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"model": "m", "messages": list(turns), **more}


BROKEN = {
    "O1 unanswered": ("O1", body(USER, calls("a")), "messages.[2].role"),
    "O1 one of two": ("O1", body(USER, calls("a", "b"), result("a"), USER), "messages.[3].role"),
    "O1 text between (O18)": ("O1", body(USER, calls("a"), USER, result("a")), "messages.[2].role"),
    "O0 no list": ("O0", body(messages={}), "messages"),
    "O0 key": ("O0", body({"role": "model", "parts": []}, USER), "messages[0].parts"),
    "O0 role": ("O0", body({"role": "model", "content": "hi"}), "messages[0].role"),
    "O0 block": (
        "O0",
        body(USER, {"role": "user", "content": [{"type": "tool_result"}]}),
        "messages[1].content[0].type",
    ),
    "O0 item": ("O0", body(USER, {"type": "function_call", "call_id": "a"}), "messages[1].role"),
    "O2 orphan": ("O2", body(USER, result("a")), "messages.[1].role"),
    "O3 wrong id": ("O3", body(USER, calls("a"), result("b")), "messages.[2].tool_call_id"),
    "O4 twice": ("O4", body(USER, calls("a"), result("a"), result("a")), "messages.[3].tool_call_id"),
    "O7 no calls": ("O7", body(USER, calls()), "messages[1].tool_calls"),
    "O8 no messages": ("O8", body(), "messages"),
    "O9 null": ("O9", body({"role": "user", "content": None}), "messages.[0].content"),
    "O9 null assistant": ("O9", body(USER, {"role": "assistant", "content": None}), "messages.[1].content"),
    "O9 null result": ("O9", body(USER, calls("a"), result("a", None)), "messages.[2].content"),
    "O11 call": ("O11", body(USER, calls("a" * 41), result("a" * 41)), "messages[1].tool_calls[0].id"),
    "O11 result": ("O11", body(USER, calls("a"), result("a" * 41)), "messages[2].tool_call_id"),
    "O12 empty": ("O12", body(USER, calls("a", name=""), result("a")), "messages[1].tool_calls[0].function.name"),
    "O12 dot": ("O12", body(USER, calls("a", name="a.b"), result("a")), "messages[1].tool_calls[0].function.name"),
    "O12 long": ("O12", body(USER, calls("a", name="n" * 65), result("a")), "messages[1].tool_calls[0].function.name"),
    "O12 declared": ("O12", body(USER, tools=[{"function": {"name": "a.b"}}]), "tools[0].function.name"),
    "O14 image": ("O14", body(USER, calls("a"), result("a", [{"type": "image_url"}])), "messages[2]"),
}

ACCEPTED = {
    "O1 any order": body(USER, calls("a", "b"), result("b"), result("a"), USER),
    "O6 id again in a later turn": body(USER, calls("a"), result("a"), calls("a"), result("a")),
    "O9 empty text": body(USER, {"role": "assistant", "content": ""}),
    "O10 null with calls": body(USER, calls("a"), result("a")),
    "O11 40 characters": body(USER, calls("a" * 40), result("a" * 40)),
    "O12 64 characters": body(USER, calls("a", name="n-" * 32), result("a")),
    "O13 malformed arguments": body(
        USER, calls("a", tool_calls=[{"id": "a", "function": {"name": "t", "arguments": '{"q'}}]), result("a")
    ),
    "O15 no tools": body(USER, calls("a"), result("a")),
    "O17 assistant first, last, and twice": body(
        {"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b"}
    ),
}

UNCONFIRMED = {
    "O5 same id twice": ("O5", body(USER, calls("a", "a"), result("a"))),
    "O18 instruction between": ("O18", body(USER, calls("a"), {"role": "system", "content": "x"}, result("a"))),
    "O16 empty tools": ("O16", body(USER, tools=[])),
    "O16 choice without tools": ("O16", body(USER, tool_choice="auto")),
}

BY_OPTION = {
    "O11 long ids": (BROKEN["O11 call"][1], {"long_ids": True}),
    "O14 images": (BROKEN["O14 image"][1], {"images_in_results": True}),
}


@pytest.mark.parametrize(("rule", "broken", "param"), BROKEN.values(), ids=BROKEN)
def test_a_broken_rule_is_answered_as_openai_does(rule: str, broken: dict[str, Any], param: str) -> None:
    """Status, envelope and place are the provider's."""
    violation = validate(broken)
    assert violation is not None
    assert (violation.rule, violation.status, violation.unconfirmed) == (rule, 400, False)
    error = violation.body["error"]
    assert (error["type"], error["param"]) == ("invalid_request_error", param)


@pytest.mark.parametrize("accepted", ACCEPTED.values(), ids=ACCEPTED)
def test_what_keeps_the_rules_is_accepted(accepted: dict[str, Any]) -> None:
    """Nothing is refused that the provider takes."""
    assert validate(accepted) is None
    assert validate(accepted, strict_unconfirmed=True) is None


@pytest.mark.parametrize(("rule", "broken"), UNCONFIRMED.values(), ids=UNCONFIRMED)
def test_unconfirmed_rules_are_applied_on_demand(rule: str, broken: dict[str, Any]) -> None:
    """We keep them; others need not."""
    violation = validate(broken, strict_unconfirmed=True)
    assert violation is not None and violation.rule == rule and violation.unconfirmed
    assert validate(broken) is None


@pytest.mark.parametrize(("accepted", "options"), BY_OPTION.values(), ids=BY_OPTION)
def test_limits_that_may_have_gone_can_be_left_out(accepted: dict[str, Any], options: dict[str, Any]) -> None:
    """Servers and models that take more are an option (O11, O14)."""
    assert validate(accepted, **options) is None


def test_the_words_are_openais() -> None:
    """With the provider's own spelling."""
    unanswered = validate(body(USER, calls("a", "b"), USER))
    assert unanswered is not None
    assert unanswered.message == (
        "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. "
        "The following tool_call_ids did not have response messages: a, b"
    )
    orphan = validate(body(USER, result("a")))
    assert orphan is not None and "preceeding" in orphan.message
    assert str(orphan).startswith("O2: Invalid parameter")


@pytest.mark.parametrize("junk", [{}, {"messages": 1}, body({}), body({"role": "assistant", "tool_calls": [{}]})])
def test_junk_is_refused_and_never_raises(junk: dict[str, Any]) -> None:
    """A validator is total."""
    assert validate(junk) is not None
