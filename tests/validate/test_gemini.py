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


def with_id(call_id: str, part: dict[str, Any]) -> dict[str, Any]:
    return {key: {**value, "id": call_id} for key, value in part.items()}


def user(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "parts": list(parts)}


def model(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"role": "model", "parts": list(parts)}


def body(*contents: dict[str, Any]) -> dict[str, Any]:
    return {"contents": list(contents)}


SIGNED = body(user(TEXT), model(call(thoughtSignature="c2ln")), user(response()))
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
    "G0 no list": ("G0", {"contents": {}}, "contents is not specified"),
    "G0 content": ("G0", {"contents": [{"role": "user", "content": "x"}]}, "Unknown name \"content\" at 'contents[0]'"),
    "G0 calls": (
        "G0",
        {"contents": [{"role": "assistant", "tool_calls": [{}]}]},
        "Unknown name \"tool_calls\" at 'contents[0]'",
    ),
    "G0 no objects": ("G0", {"contents": ["x"]}, "contents is not specified"),
    "G5 only a model": ("G5", body(model(TEXT)), "single turn requests end with a user role"),
    "G12 no base64": (
        "G12",
        body(user(TEXT), model(call(thoughtSignature="c!")), user(response())),
        "Invalid value at 'contents[1].parts[0].thought_signature' (TYPE_BYTES), Base64 decoding failed for",
    ),
    "G12 cut": ("G12", body(user(TEXT), model(call(thoughtSignature="c2lnc")), user(response())), "Base64 decoding"),
    "G12 no text": ("G12", body(user(TEXT), model(call(thoughtSignature=[1])), user(response())), "TYPE_BYTES"),
    "G16 no object": (
        "G16",
        body(user(TEXT), model(call()), user(response(value=[1]))),
        "Invalid value at 'contents[2].parts[0].function_response.response'",
    ),
    "G16 arguments": (
        "G16",
        body(user(TEXT), model({"functionCall": {"name": "t", "args": "{}"}}), user(response())),
        "Invalid value at 'contents[1].parts[0].function_call.args'",
    ),
    "G16 reference": (
        "G16",
        body(user(TEXT), model(call()), user(response(value={"rows": [{"$ref": "#/a"}]}))),
        "'$ref'",
    ),
    "G18 name": ("G18", body(user(TEXT), model(call("2fa")), user(response("2fa"))), "Invalid function name"),
    "G18 long": ("G18", body(user(TEXT), model(call("n" * 129)), user(response("n" * 129))), "Invalid function name"),
    "G18 declared": (
        "G18",
        {**body(user(TEXT)), "tools": [{"functionDeclarations": [{"name": "a b"}]}]},
        "tools[0].function_declarations[0].name",
    ),
    "G20 tools": ("G20", {**body(user(TEXT)), "cachedContent": "c", "tools": [{}]}, "CachedContent can not be used"),
    "G20 instruction": ("G20", {**body(user(TEXT)), "cachedContent": "c", "systemInstruction": user(TEXT)}, "Cached"),
    "G9": ("G9", body(user(TEXT), model(call()), user(response(), TEXT)), COUNT),
}

ACCEPTED = {
    "one step": body(user(TEXT), model(TEXT, call(), call()), user(response(), response()), user(TEXT)),
    "call after results": body(user(TEXT), model(call()), user(response()), model(call()), user(response())),
    "G13 no signatures": body(user(TEXT), model(call()), user(response())),
    "G12 the stand-in": body(
        user(TEXT), model(call(thoughtSignature="skip_thought_signature_validator")), user(response())
    ),
    "G14 ids": body(user(TEXT), model(with_id("a", call())), user(with_id("a", response()))),
    "G14 no ids on one side": body(user(TEXT), model(with_id("a", call())), user(response())),
    "G17 the provider's calls": body(user(TEXT), model({"toolCall": {}}, {"toolResponse": {}}, TEXT), user(TEXT)),
    "G19 no tools": body(user(TEXT), model(call("gone")), user(response("gone"))),
    "G20 nothing beside": {**body(user(TEXT)), "cachedContent": "c"},
    "keys of the SDKs": body(
        user(TEXT),
        model({"function_call": {"name": "t", "args": {}}, "text": None, "thought_signature": b"sig"}),
        user({"function_response": {"name": "t", "response": {}}}),
    ),
    "no role": body({"parts": [TEXT]}),
}

UNCONFIRMED = {
    "G7 empty text": ("G7", body(user({"text": ""}))),
    "G15 no name": ("G15", body(user(TEXT), model(call("")), user(response()))),
    "G14 another id": ("G14", body(user(TEXT), model(with_id("a", call())), user(with_id("b", response())))),
}

BY_OPTION: dict[str, tuple[str, dict[str, Any], dict[str, Any], str]] = {
    "G6 on Vertex": ("G6", body(user()), {"vertex": True}, "it must include at least one parts field"),
    "G7 on Vertex": ("G7", body(user({"text": ""})), {"vertex": True}, "Model input cannot be empty."),
    "G10": (
        "G10",
        body(user(TEXT), model(call()), user(response())),
        {"signatures": True},
        "a thought_signature in functionCall parts. Additional data, function call `default_api:t` , position 2",
    ),
    "G12 in AI Studio": ("G12", SIGNED, {"issued_signatures": ()}, "Corrupted thought signature."),
    "G12 on Vertex": ("G12", SIGNED, {"issued_signatures": (), "vertex": True}, "Invalid thought signature."),
    "G17": ("G17", body(user(TEXT), model({"toolCall": {}}), user(TEXT)), {"server_calls": False}, "not enabled"),
}


@pytest.mark.parametrize(("rule", "broken", "options", "words"), BY_OPTION.values(), ids=BY_OPTION)
def test_what_depends_on_the_model_or_the_service_is_an_option(
    rule: str, broken: dict[str, Any], options: dict[str, Any], words: str
) -> None:
    """The words too."""
    violation = validate(broken, **options)
    assert violation is not None and (violation.rule, violation.unconfirmed) == (rule, False)
    assert words in violation.message


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


def test_models_before_gemini_3_go_on_from_a_last_model_turn() -> None:
    """As an option, for it depends on the model (G5)."""
    assert validate(body(user(TEXT), model(TEXT)), prefill=True) is None


def test_signatures_that_the_model_has_given_go_back() -> None:
    """So do the documented stand-ins (G12)."""
    assert validate(SIGNED, issued_signatures={"c2ln"}) is None
    stand_in = body(user(TEXT), model(call(thoughtSignature="skip_thought_signature_validator")), user(response()))
    assert validate(stand_in, issued_signatures=()) is None


def test_ai_studio_takes_text_beside_results() -> None:
    """It reads it as the model's, so that it is refused unless asked for (G9)."""
    beside = body(user(TEXT), model(call()), user(response(), TEXT))
    assert validate(beside, results_alone=False) is None
