"""The rules of Gemini generateContent."""

from __future__ import annotations

from typing import Any

import pytest

from heaveto.core.validate.gemini import validate

TEXT = {"text": "x"}


def call(name: str = "t", **more: Any) -> dict[str, Any]:
    return {"functionCall": {"name": name, "args": {}}, **more}


def response(name: str = "t", value: Any = None) -> dict[str, Any]:
    return {"functionResponse": {"name": name, "response": value if value is not None else {"x": 1}}}


def user(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "parts": list(parts)}


def model(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"role": "model", "parts": list(parts)}


def body(*contents: dict[str, Any]) -> dict[str, Any]:
    return {"contents": list(contents)}


COUNT = "Please ensure that the number of function response parts is equal to the number of function call parts"
BROKEN = {
    "G1 fewer": ("G1", body(user(TEXT), model(call(), call()), user(response())), COUNT),
    "G1 more": ("G1", body(user(TEXT), model(call()), user(response(), response())), COUNT),
    "G2 orphan": ("G2", body(user(TEXT), user(response())), "function response turn comes immediately after"),
    "G2 second content": ("G2", body(user(TEXT), model(call()), user(response()), user(response())), "response turn"),
    "G3 first": ("G3", body(model(call()), user(response())), "function call turn comes immediately after a user turn"),
    "G3 after text": ("G3", body(user(TEXT), model(TEXT), model(call()), user(response())), "function call turn"),
    "G4": ("G4", body(user(TEXT), model(call()), user(TEXT)), COUNT),
    "G5 text": ("G5", body(user(TEXT), model(TEXT)), "Requests ending with a model turn are not supported."),
    "G5 call": ("G5", body(user(TEXT), model(call())), "Requests ending with a model turn are not supported."),
    "G6": (
        "G6",
        body(user(TEXT), user()),
        "* GenerateContentRequest.contents[1].parts: contents.parts must not be empty.",
    ),
    "G7": (
        "G7",
        body(user({})),
        "contents[0].parts[0].data: required oneof field 'data' must have one initialized field",
    ),
    "G8": ("G8", body({"role": "tool", "parts": [TEXT]}), "Please use a valid role: user, model."),
    "G9": ("G9", body(user(TEXT), model(call()), user(response(), TEXT)), COUNT),
}

ACCEPTED = {
    "one step": body(user(TEXT), model(TEXT, call(), call()), user(response(), response()), user(TEXT)),
    "call after results": body(user(TEXT), model(call()), user(response()), model(call()), user(response())),
    "G13 no signatures": body(user(TEXT), model(call()), user(response())),
    "no role": body({"parts": [TEXT]}),
}

UNCONFIRMED = {
    "G7 empty text": ("G7", body(user({"text": ""}))),
    "G15 no name": ("G15", body(user(TEXT), model(call("")), user(response()))),
    "G16 no object": ("G16", body(user(TEXT), model(call()), user(response(value=[1])))),
    "G18 name": ("G18", body(user(TEXT), model(call("2fa")), user(response("2fa")))),
}


@pytest.mark.parametrize(("rule", "broken", "words"), BROKEN.values(), ids=BROKEN)
def test_a_broken_rule_is_answered_as_gemini_does(rule: str, broken: dict[str, Any], words: str) -> None:
    """Status, envelope and words are the provider's."""
    violation = validate(broken)
    assert violation is not None
    error = violation.body["error"]
    assert (violation.rule, violation.status, error["code"], error["status"]) == (rule, 400, 400, "INVALID_ARGUMENT")
    assert words in error["message"]


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


def test_newer_models_want_a_signature_on_the_first_call_of_the_current_turn() -> None:
    """Siblings and earlier turns need none (G10, G11, G13)."""
    earlier = (user(TEXT), model(call()), user(response()), user(TEXT))
    unsigned = validate(body(*earlier, model(call()), user(response())), signatures=True)
    assert unsigned is not None and unsigned.rule == "G10"
    signed = model(call(thoughtSignature="cw=="), call())
    assert validate(body(*earlier, signed, user(response(), response())), signatures=True) is None
