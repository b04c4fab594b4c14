"""The rules of Bedrock Converse, each by itself, and the shape beside the SDK's model of the service."""

from __future__ import annotations

import copy
from typing import Any

import botocore.session
import pytest
from botocore.validate import ParamValidator
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.effort import examples

from heaveto.core.validate.bedrock import FAMILIES, Family, validate

TEXT = {"text": "x"}


def use(call_id: str, **more: Any) -> dict[str, Any]:
    return {"toolUse": {"toolUseId": call_id, "name": "t", "input": {}, **more}}


def result(call_id: str, **more: Any) -> dict[str, Any]:
    return {"toolResult": {"toolUseId": call_id, "content": [{"text": "ok"}], **more}}


def user(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def assistant(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


TOOLS = {"tools": [{"toolSpec": {"name": "t", "inputSchema": {"json": {}}}}]}
USER = user(TEXT)


def body(*messages: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"messages": list(messages), "toolConfig": TOOLS, **more}


def thinking(mode: str) -> dict[str, Any]:
    return {"additionalModelRequestFields": {"thinking": {"type": mode}}}


THOUGHT = {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "c2ln"}}}
DOCUMENT = {"document": {"name": "d", "source": {"text": "x"}}}
CLAUDE: Family = "anthropic"
BROKEN: dict[str, tuple[str, Family, dict[str, Any], str]] = {
    "B0 no list": ("B0", CLAUDE, {"messages": {}}, "The format of the value at messages is invalid."),
    "B0 role": ("B0", CLAUDE, body({"role": "tool", "content": []}), "messages.0.role"),
    "B0 key": ("B0", CLAUDE, body({**USER, "tool_calls": [{}]}), "messages.0"),
    "B0 content": ("B0", CLAUDE, body({"role": "user", "content": "hi"}), "messages.0.content"),
    "B0 block": ("B0", CLAUDE, body(user({"type": "text", "text": "x"})), "messages.0.content.0"),
    "B0 text": ("B0", CLAUDE, body(user({"text": 1})), "messages.0.content.0.text"),
    "B0 no tools": ("B0", CLAUDE, body(USER, toolConfig={"tools": []}), "toolConfig.tools"),
    "B0 result": ("B0", CLAUDE, body(USER, assistant(use("a")), user(result("a", content="x"))), "toolResult.content"),
    "B1": (
        "B1",
        CLAUDE,
        body(USER, assistant(use("a"), use("b")), user(result("a"))),
        "Expected toolResult blocks at messages.2.content for the following Ids: b",
    ),
    "B1 text": ("B1", CLAUDE, body(USER, assistant(use("a")), USER), "for the following Ids: a"),
    "B2 orphan": (
        "B2",
        CLAUDE,
        body(user(TEXT, result("a"))),
        "The number of toolResult blocks at messages.0.content exceeds the number of toolUse blocks of previous turn.",
    ),
    "B2 twice": ("B2", CLAUDE, body(USER, assistant(use("a")), user(result("a"), result("a"))), "exceeds the number"),
    "B3": (
        "B3",
        CLAUDE,
        body(USER, assistant(use("a"), use("a")), user(result("a"), result("a"))),
        "The toolUse blocks at messages.1.content contain duplicate Ids: a",
    ),
    "B4": (
        "B4",
        CLAUDE,
        {"messages": [USER, assistant(use("a")), user(result("a"))]},
        "The toolConfig field must be defined when using toolUse and toolResult content blocks.",
    ),
    "B5 error": (
        "B5",
        CLAUDE,
        body(USER, assistant(use("a")), user(result("a", status="error", content=[]))),
        "The content field at messages.2.content.0.toolResult cannot be empty when status value is error.",
    ),
    "B5": ("B5", CLAUDE, body(USER, assistant(use("a")), user(result("a", content=[]))), "cannot be empty."),
    "B6 users": ("B6", CLAUDE, body(USER, USER), "A conversation must alternate between user and assistant roles."),
    "B6 head": ("B6", "nova", body(assistant(TEXT), USER), "A conversation must start with a user message."),
    "B7 blank": ("B7", CLAUDE, body(user({"text": " "})), "ContentBlock object at messages.0.content.0 is blank."),
    "B7 empty": ("B7", CLAUDE, body(user()), "The content field in the Message object at messages.0 is empty."),
    "B8 id": ("B8", CLAUDE, body(USER, assistant(use("a b"))), "regular expression pattern: [a-zA-Z0-9_.:-]+"),
    "B8 long": ("B8", CLAUDE, body(USER, assistant(use("a" * 65))), "length less than or equal to 64"),
    "B8 name": ("B8", CLAUDE, body(USER, assistant(use("a", name="a.b"))), "pattern: [a-zA-Z0-9_-]+"),
    "B8 declared": (
        "B8",
        CLAUDE,
        body(USER, toolConfig={"tools": [{"toolSpec": {"name": "", "inputSchema": {"json": {}}}}]}),
        "length greater than or equal to 1",
    ),
    "B10 text": (
        "B10",
        "llama",
        body(USER, assistant(use("a")), user(result("a"), TEXT)),
        "messages.2.content: Conversation blocks and tool result blocks cannot be provided in the same turn.",
    ),
    "B10 call": ("B10", "mistral", body(USER, assistant(TEXT, use("a")), user(result("a"))), "and tool use blocks"),
    "B10 document": ("B10", CLAUDE, body(USER, assistant(use("a")), user(result("a"), DOCUMENT)), "and tool result"),
    "B11 tail (A12)": (
        "B11",
        CLAUDE,
        body(USER, assistant(TEXT)),
        "The model returned the following errors: This model does not support assistant message prefill.",
    ),
    "B11 no thinking (A14)": (
        "B11",
        CLAUDE,
        body(USER, assistant(use("a")), user(result("a")), **thinking("enabled")),
        "The model returned the following errors: messages.1.content.0.type: Expected `thinking` or",
    ),
    "B11 thinking (A14')": (
        "B11",
        CLAUDE,
        body(USER, assistant(THOUGHT, use("a")), user(result("a")), **thinking("disabled")),
        "The model returned the following errors: messages.1.content.0.type: When thinking is disabled",
    ),
    "B12 status": ("B12", "palmyra", body(USER, assistant(use("a")), user(result("a", status="success"))), "status"),
    "B12 choice": (
        "B12",
        CLAUDE,
        body(USER, toolConfig={**TOOLS, "toolChoice": {"none": {}}}),
        "toolConfig.toolChoice",
    ),
}

ACCEPTED: dict[str, tuple[Family, dict[str, Any]]] = {
    "B1 any order": (CLAUDE, body(USER, assistant(use("a"), use("b")), user(result("b"), result("a"), TEXT))),
    "B4 another tool": (CLAUDE, body(USER, assistant(use("a", name="gone")), user(result("a")))),
    "B6 Claude after its own": (CLAUDE, body(assistant(TEXT), USER)),
    "B6 Qwen after its own": ("qwen", body(assistant(TEXT), USER)),
    "B8 colon": (CLAUDE, body(USER, assistant(use("a.b:c-d")), user(result("a.b:c-d")))),
    "B10 text": (CLAUDE, body(USER, assistant(TEXT, use("a")), user(result("a"), TEXT))),
    "B10 a document elsewhere": ("nova", body(USER, assistant(use("a")), user(result("a"), DOCUMENT))),
    "B11 thinking": (
        CLAUDE,
        body(USER, assistant(THOUGHT, use("a")), user(result("a")), **thinking("enabled")),
    ),
    "B11 the tail of others": ("nova", body(USER, assistant(TEXT))),
    "no messages": (CLAUDE, {}),
}

UNCONFIRMED = {
    "B3 results": ("B3", body(USER, assistant(use("a"), use("b")), user(result("a"), result("b"), result("a")))),
    "B9": ("B9", body(USER, assistant(use("a", input="{}")), user(result("a")))),
}


@pytest.mark.parametrize(("rule", "family", "broken", "words"), BROKEN.values(), ids=BROKEN)
def test_a_broken_rule_is_answered_as_bedrock_does(
    rule: str, family: Family, broken: dict[str, Any], words: str
) -> None:
    """Status, body and the header that names the exception are the provider's."""
    violation = validate(broken, family=family)
    assert violation is not None
    assert (violation.rule, violation.status, violation.unconfirmed) == (rule, 400, False)
    assert violation.headers == {"x-amzn-errortype": "ValidationException"}
    assert list(violation.body) == ["message"] and words in violation.message


@pytest.mark.parametrize(("family", "accepted"), ACCEPTED.values(), ids=ACCEPTED)
def test_what_keeps_the_rules_is_accepted(family: Family, accepted: dict[str, Any]) -> None:
    """Nothing is refused that the provider takes."""
    assert validate(accepted, family=family, strict_unconfirmed=True) is None


@pytest.mark.parametrize(("rule", "broken"), UNCONFIRMED.values(), ids=UNCONFIRMED)
def test_unconfirmed_rules_are_applied_on_demand(rule: str, broken: dict[str, Any]) -> None:
    """We keep them; others need not."""
    violation = validate(broken, strict_unconfirmed=True)
    assert violation is not None and violation.rule == rule and violation.unconfirmed
    lenient = validate(broken)
    assert lenient is None or lenient.rule != rule


def test_claude_before_4_6_goes_on_from_a_last_answer() -> None:
    """As an option, for it depends on the model (B11, A12)."""
    assert validate(body(USER, assistant(TEXT)), prefill=True) is None


# --- beside the service model -------------------------------------------------------------------------------------

SHAPE = botocore.session.get_session().get_service_model("bedrock-runtime").operation_model("Converse").input_shape
VALID = body(
    user(TEXT, DOCUMENT),
    assistant(THOUGHT, TEXT, use("a"), use("b")),
    user(result("a", status="error"), result("b", content=[{"json": {"x": [1]}}]), {"cachePoint": {"type": "default"}}),
    assistant(TEXT),
    USER,
)


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Every place in a body that can be changed: container and key. Of other blocks than ours we look at no more."""
    found: list[tuple[Any, Any]] = []
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in entries:
        if key in ("document", "reasoningContent", "cachePoint", "toolConfig", "json", "input"):
            continue
        found += [(value, key), *_places(item)]
    return found


@settings(max_examples=examples(300), deadline=None)
@given(st.data())
def test_what_the_service_model_refuses_is_refused(data: st.DataObject) -> None:
    """Of a good body with one thing taken away or replaced: the SDK would not even send it (B0, B8)."""
    broken = copy.deepcopy(VALID)
    container, key = data.draw(st.sampled_from(_places(broken)))
    if data.draw(st.booleans()):
        container.pop(key)
    else:
        junk = st.none() | st.integers() | st.just("x") | st.just([]) | st.just({}) | st.just({"x": 1}) | st.just([1])
        container[key] = data.draw(junk)
    if _refused_by_the_sdk(broken):
        assert validate(broken) is not None


@pytest.mark.parametrize("name", ACCEPTED)
def test_what_is_accepted_has_the_shape_of_the_service(name: str) -> None:
    """The bodies that these tests call good are so for the SDK too."""
    assert not _refused_by_the_sdk(ACCEPTED[name][1])


def test_the_good_body_is_good() -> None:
    """For every family that takes all of it, and for the SDK."""
    assert not _refused_by_the_sdk(VALID)
    assert [family for family in FAMILIES if validate(VALID, family=family) is None] == [
        "anthropic", "qwen", "nova", "other",
    ]  # fmt: skip


def _refused_by_the_sdk(converse: dict[str, Any]) -> bool:
    return bool(ParamValidator().validate({"modelId": "m", **converse}, SHAPE).has_errors())
