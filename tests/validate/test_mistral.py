"""The rules of Mistral, each by itself, and all of them beside Mistral's own validator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mistral_common.exceptions import MistralCommonException
from mistral_common.protocol.instruct.request import ChatCompletionRequest
from mistral_common.protocol.instruct.validator import ValidationMode, get_validator
from mistral_common.tokens.tokenizers.base import TokenizerVersion
from tests.effort import examples

from heaveto.core.validate.mistral import VERSIONS, Version, validate

Message = dict[str, Any]
A, B = "abcdefgh1", "abcdefgh2"
USER: Message = {"role": "user", "content": "hi"}
SYSTEM: Message = {"role": "system", "content": "be"}
SAID: Message = {"role": "assistant", "content": "yes"}


def calls(*ids: str, name: str = "t", **more: Any) -> Message:
    made = [{"id": call_id, "type": "function", "function": {"name": name, "arguments": "{}"}} for call_id in ids]
    return {"role": "assistant", "content": "", "tool_calls": made, **more}


def result(call_id: str, content: Any = "ok", **more: Any) -> Message:
    return {"role": "tool", "tool_call_id": call_id, "content": content, **more}


def body(*messages: Message, **more: Any) -> dict[str, Any]:
    return {"model": "m", "messages": list(messages), **more}


PREFIX = {**SAID, "prefix": True}
UNEQUAL = "Not the same number of function calls and responses"
PICTURE = [{"type": "image_url", "image_url": "https://x/y.png"}]
BROKEN: dict[str, tuple[str, Version, dict[str, Any], str]] = {
    "M0 key": ("M0", 13, body({"role": "user", "parts": [{"text": "x"}]}), "messages.0.parts: Extra inputs"),
    "M0 block": ("M0", 13, body({"role": "user", "content": [{"type": "tool_result"}]}), "messages.0.content.0: Extra"),
    "M0 item": ("M0", 13, body({"type": "function_call"}), "messages.0.function_call: Extra inputs"),
    "M1 call": ("M1", 11, body(USER, calls("call_1"), result("call_1")), "Tool call id was call_1 but must be a-z"),
    "M1 null": ("M1", 11, body(USER, calls("null"), result("null")), "has to be defined in serving mode"),
    "M1 none": ("M1", 7, body(USER, calls(A), {"role": "tool", "content": "ok"}), "Tool call id has to be defined."),
    "M1 empty": ("M1", 13, body(USER, calls(""), result("")), "must be a non-empty string other than 'null'"),
    "M2 fewer": ("M2", 7, body(USER, calls(A, B), result(A)), UNEQUAL),
    "M2 more": ("M2", 7, body(USER, calls(A), result(A), result(B)), UNEQUAL),
    "M2 before an answer": ("M2", 13, body(USER, calls(A), SAID, USER), UNEQUAL),
    "M3 unknown": ("M3", 13, body(USER, calls(A), result(B)), f"Unexpected tool call id {B} in tool results"),
    "M3 results": ("M3", 13, body(USER, calls(A), result(A), result(A)), f"Duplicate tool call id {A} in tool results"),
    "M3 calls": ("M3", 13, body(USER, calls(A, A), result(A)), f"Duplicate tool call id {A} in assistant message"),
    "M4 tool after user": ("M4", 13, body(USER, result(A)), "Unexpected role 'tool' after role 'user'"),
    "M4 user after tool": (
        "M4", 13, body(USER, calls(A), result(A), USER), "Unexpected role 'user' after role 'tool'"
    ),
    "M4 no role": ("M4", 13, body({"role": "developer", "content": ""}, USER), "Unexpected role 'developer'"),
    "M5": ("M5", 13, body(USER, SAID), "Expected last role User or Tool (or Assistant with prefix) for serving but"),
    "M5 prefix within": ("M5", 13, body(USER, PREFIX, USER), "prefix True must be last message"),
    "M6 both": ("M6", 3, body(USER, calls(A, content="so"), result(A)), "either content or tool_calls, but not both."),
    "M6 neither": ("M6", 13, body(USER, {"role": "assistant", "content": ""}, USER), "either content or tool_calls"),
    "M7 call": ("M7", 13, body(USER, calls(A, name="a.b"), result(A)), "Function name was a.b but must be a-z"),
    "M7 result": ("M7", 13, body(USER, calls(A), result(A, name="")), "Function name was  but must be"),
    "M7 declared": ("M7", 13, body(USER, tools=[{"function": {"name": "n" * 65}}]), "maximum length of 64."),
    "M8 nothing": ("M8", 13, body(), "Conversation must have at least one message"),
    "M8 only a result": ("M8", 13, body(result(A)), "Conversation must start with a user message or system message"),
    "M9": ("M9", 13, body(USER, calls(A), result(A, PICTURE)), "in tool message: ['ImageURLChunk']"),
}  # fmt: skip

ACCEPTED: dict[str, tuple[Version, dict[str, Any]]] = {
    "M1 any id": (13, body(USER, calls("call_1.x"), result("call_1.x"))),
    "M3 any order": (13, body(USER, calls(A, B), result(B), result(A), SAID, USER)),
    "M3 another id where results are counted": (7, body(USER, calls(A), result(B))),
    "M5 prefix": (13, body(USER, PREFIX)),
    "M6 both": (7, body(USER, calls(A, content="so"), result(A))),
    "M8 the first message's calls are not counted": (7, body(calls(A), USER)),
    "M9 picture": (15, body(USER, calls(A), result(A, PICTURE))),
    "no tools": (13, body(USER, calls(A), result(A))),
}


@pytest.mark.parametrize(("rule", "version", "broken", "words"), BROKEN.values(), ids=BROKEN)
def test_a_broken_rule_is_answered_as_mistral_does(
    rule: str, version: Version, broken: dict[str, Any], words: str
) -> None:
    """Status, envelope and words are the provider's."""
    violation = validate(broken, version=version)
    assert violation is not None
    assert (violation.rule, violation.status, violation.body["object"], violation.body["param"]) == (
        rule, 400, "error", None,
    )  # fmt: skip
    assert words in violation.message == violation.body["message"]


@pytest.mark.parametrize(("version", "accepted"), ACCEPTED.values(), ids=ACCEPTED)
def test_what_keeps_the_rules_is_accepted(version: Version, accepted: dict[str, Any]) -> None:
    """Nothing is refused that the provider takes."""
    assert validate(accepted, version=version, strict_unconfirmed=True) is None


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("M4 tool after user", ("invalid_request_message_order", "3230")),
        ("M1 call", ("invalid_function_call", "3280")),
        ("M6 both", ("invalid_request_error", None)),
    ],
)
def test_errors_have_a_type_and_a_code(name: str, kind: tuple[str, str | None]) -> None:
    """One for the order of messages, one for calls (M1, M4, M6)."""
    _, version, broken, _ = BROKEN[name]
    violation = validate(broken, version=version)
    assert violation is not None and (violation.body["type"], violation.body["code"]) == kind


def test_what_only_the_hosted_api_refuses_can_be_left_out() -> None:
    """Mistral's published validator takes a user behind results, and nothing said (M4, M6)."""
    for name in ("M4 user after tool", "M6 neither"):
        assert validate(BROKEN[name][2], api=False) is None


ids = st.sampled_from([A, B, "abcdefgh3", "call_1", "null", ""])
names = st.sampled_from(["t", "t", "t", "a.b", ""])
made_calls = st.builds(
    lambda ids, name, content: calls(*ids, name=name, content=content),
    st.lists(ids, min_size=1, max_size=3),
    names,
    st.sampled_from(["", "so"]),
)
messages = st.one_of(
    st.just(USER),
    st.just(SYSTEM),
    st.sampled_from([SAID, PREFIX, {"role": "assistant", "content": ""}]),
    made_calls,
    st.builds(result, ids, st.just("ok") | st.just([{"type": "text", "text": "x"}])),
    st.just({"role": "tool", "content": "ok"}),
    st.builds(lambda name: result(A, name=name), names),
)


@st.composite
def histories(draw: st.DrawFn) -> list[Message]:
    """Mostly good steps, with a few that are not."""
    steps = [[USER], [USER, SAID], [USER, calls(A, B), result(A), result(B)], [USER, calls(A), result(A), SAID, USER]]
    made = [message for step in draw(st.lists(st.sampled_from(steps), max_size=3)) for message in step]
    for _ in range(draw(st.integers(0, 3))):
        place = draw(st.integers(0, len(made)))
        change: Callable[[list[Message]], list[Message]] = draw(
            st.sampled_from([lambda rest: rest[1:], lambda rest: [draw(messages), *rest]])
        )
        made = made[:place] + change(made[place:])
    return made


@settings(max_examples=examples(400), deadline=None)
@given(histories(), st.sampled_from(VERSIONS))
def test_mistrals_own_validator_says_the_same(history: list[Message], version: Version) -> None:
    """To the letter, of the first rule that is broken, for each version of the tokenizer (M1 to M9)."""
    ours = validate({"model": "m", "messages": history}, version=version, api=False)
    assert (ours.message if ours is not None else None) == _told(history, version)


def _told(history: list[Message], version: Version) -> str | None:
    """What Mistral's package says of the history."""
    request: Any = ChatCompletionRequest(model="m", messages=history)  # type: ignore[var-annotated]
    validator: Any = get_validator(TokenizerVersion(f"v{version}"), mode=ValidationMode.serving)
    try:
        validator.validate_request(request)
    except MistralCommonException as error:
        return error.message
    return None
