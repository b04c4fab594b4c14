"""One function for all formats: names, bodies and bare lists."""

from __future__ import annotations

from typing import Any

import pytest

from heaveto import validate
from heaveto.core.validate import ALIASES, FORMATS
from heaveto.errors import ConfigError, UnknownFormatError

ORPHANS: dict[str, tuple[str, list[dict[str, Any]]]] = {
    "openai": ("O2", [{"role": "tool", "tool_call_id": "a", "content": "ok"}]),
    "openai-responses": ("R3", [{"type": "function_call_output", "call_id": "a", "output": "ok"}]),
    "anthropic": ("A2", [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a"}]}]),
    "gemini": ("G2", [{"role": "user", "parts": [{"functionResponse": {"name": "t", "response": {}}}]}]),
    "bedrock": ("B2", [{"role": "user", "content": [{"toolResult": {"toolUseId": "a", "content": [{"text": "x"}]}}]}]),
    "mistral": ("M8", [{"role": "tool", "tool_call_id": "a", "content": "ok"}]),
}
KEYS = {"openai-responses": "input", "gemini": "contents"}


@pytest.mark.parametrize("provider", ORPHANS)
def test_a_body_and_its_list_are_judged_alike(provider: str) -> None:
    """Whatever the list is called in the body."""
    rule, history = ORPHANS[provider]
    of_list, of_body = validate(history, provider), validate({KEYS.get(provider, "messages"): history}, provider)
    assert of_list is not None and of_list == of_body and of_list.rule == rule


@pytest.mark.parametrize(("alias", "name"), ALIASES.items())
def test_formats_have_other_names(alias: str, name: str) -> None:
    """As people call the providers."""
    assert validate([], alias) == validate([], name)


def test_an_unknown_format_is_named_with_those_that_are_known() -> None:
    """Who mistypes one sees the right one."""
    with pytest.raises(
        UnknownFormatError, match=r"'antropic' \(did you mean 'anthropic'\?\); known are anthropic, bedrock"
    ) as caught:
        validate([], "antropic")
    assert isinstance(caught.value, ConfigError)
    assert caught.value.name == "antropic" and set(caught.value.known) == {*FORMATS, *ALIASES}


def test_options_are_those_of_the_format() -> None:
    """What depends on the model is told by name; a wrong name is an error of Python's."""
    last = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Well,"}]
    assert validate(last, "anthropic", prefill=True) is None
    assert validate(last, "anthropic") is not None
    with pytest.raises(TypeError, match="prefil"):
        validate(last, "anthropic", prefil=True)


def test_a_bare_list_says_nothing_of_tools() -> None:
    """Only a whole body without them is refused for it (B4)."""
    history = [
        {"role": "user", "content": [{"text": "hi"}]},
        {"role": "assistant", "content": [{"toolUse": {"toolUseId": "a", "name": "t", "input": {}}}]},
        {"role": "user", "content": [{"toolResult": {"toolUseId": "a", "content": [{"text": "ok"}]}}]},
    ]
    assert validate(history, "bedrock") is None
    violation = validate({"messages": history}, "bedrock")
    assert violation is not None and violation.rule == "B4"


def test_the_words_of_every_envelope_can_be_read() -> None:
    """A violation tells them in one way, wherever the provider puts them."""
    for provider, (_, history) in ORPHANS.items():
        violation = validate(history, provider)
        assert violation is not None and str(violation) == f"{violation.rule}: {violation.message}" != ": "
        assert violation.message
