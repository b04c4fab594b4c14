"""How the servers that speak Chat Completions differ: words, envelopes, limits and rules of their own, as data."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from heaveto.core.json_values import Body
from heaveto.core.validate.violation import Violation


class Words(msgspec.Struct, frozen=True):
    """What a server says of a broken rule: templates over what is known of the breach."""

    message: str
    param: str | None = None
    code: str | None = None
    confirmed: bool = True


class Breach(msgspec.Struct, frozen=True):
    """A broken rule before it is put in words: `key` is its id, and a word behind it tells its cases apart."""

    key: str
    known: dict[str, str | int] = {}
    confirmed: bool = True

    @property
    def rule(self) -> str:
        """The rule's id."""
        return self.key.partition(" ")[0]


class Dialect(msgspec.Struct, frozen=True):
    """A server's way with Chat Completions.

    It has the rules that it has `words` for, by id and case, such as ``O12 empty``. The other rules of OpenAI it may
    have too: nobody has reported it. In `envelope`, the error body, ``{message}``, ``{param}`` and ``{code}`` stand for
    those of the words.
    """

    name: str
    words: dict[str, Words]
    envelope: Body
    reasoning: Literal["current turn", "always"] | None = None

    def has(self, rule: str) -> bool:
        """Whether the server is known to have a rule."""
        return rule in self.words

    def told(self, breach: Breach) -> Violation:
        """Return the violation as this server reports it."""
        own = self.words.get(breach.key) or self.words.get(breach.rule)
        words = own or OPENAI_WORDS.get(breach.key) or OPENAI_WORDS[breach.rule]
        values = {
            "message": words.message.format_map(breach.known),
            "param": words.param.format_map(breach.known) if words.param is not None else None,
            "code": words.code,
        }
        sure = own is not None and words.confirmed and breach.confirmed
        return Violation(breach.rule, 400, _filled(self.envelope, values), unconfirmed=not sure)


def _filled(envelope: Body, values: dict[str, str | None]) -> Body:
    return {key: _filled_value(value, values) for key, value in envelope.items()}


def _filled_value(value: Any, values: dict[str, str | None]) -> Any:
    if isinstance(value, str):
        return values[value[1:-1]] if value.startswith("{") else value
    return _filled(value, values) if value is not None else None


_EMPTY_ARRAY = "empty array. Expected an array with minimum length 1, but got an empty array instead."
_TOO_LONG = (
    "Invalid '{where}': string too long. Expected a string with maximum length {limit}, but got a string with length "
    "{length} instead."
)
_UNANSWERED = (
    "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. The "
    "following tool_call_ids did not have response messages: {missing}"
)
OPENAI_WORDS = {
    "O0": Words("Invalid type for 'messages': expected an array of objects.", "messages", "invalid_type"),
    "O0 role": Words(
        "Invalid value: '{name}'. Supported values are: 'system', 'assistant', 'user', 'function', 'tool', and "
        "'developer'.",
        "messages[{index}].role",
        "invalid_value",
    ),
    "O0 key": Words("Unknown parameter: 'messages[{index}].{name}'.", "messages[{index}].{name}", "unknown_parameter"),
    "O0 block": Words(
        "Invalid value: '{name}'. Supported values are: 'text', 'image_url', 'input_audio', 'refusal', 'audio', and "
        "'file'.",
        "messages[{index}].content[{block}].type",
        "invalid_value",
    ),
    "O0 item": Words(
        "Missing required parameter: 'messages[{index}].role'.", "messages[{index}].role", "missing_required_parameter"
    ),
    "O1": Words(_UNANSWERED, "messages.[{index}].role"),
    "O2": Words(
        "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls'.",
        "messages.[{index}].role",
    ),
    "O3": Words(
        "Invalid parameter: 'tool_call_id' of '{id}' not found in 'tool_calls' of previous message.",
        "messages.[{index}].tool_call_id",
    ),
    "O4": Words(
        "Invalid parameter: Duplicate value for 'tool_call_id' of '{id}', in messages[{first}] and messages[{index}].",
        "messages.[{index}].tool_call_id",
    ),
    "O5": Words(
        "Duplicate value for 'tool_call_id' of '{id}' in 'tool_calls'.",
        "messages.[{index}].tool_calls",
        confirmed=False,
    ),
    "O7": Words(
        f"Invalid 'messages[{{index}}].tool_calls': {_EMPTY_ARRAY}", "messages[{index}].tool_calls", "empty_array"
    ),
    "O8": Words(f"Invalid 'messages': {_EMPTY_ARRAY}", "messages", "empty_array"),
    "O9": Words("Invalid value for 'content': expected a string, got null.", "messages.[{index}].content"),
    "O11": Words(_TOO_LONG, "{where}", "string_above_max_length"),
    "O12 empty": Words(
        "Invalid '{where}': empty string. Expected a string with minimum length 1, but got an empty string instead.",
        "{where}",
        "empty_string",
    ),
    "O12 long": Words(_TOO_LONG, "{where}", "string_above_max_length"),
    "O12": Words(
        "Invalid '{where}': string does not match pattern. Expected a string that matches the pattern "
        "'^[a-zA-Z0-9_-]+$'.",
        "{where}",
        "invalid_value",
    ),
    "O14": Words(
        "Invalid '{where}'. Image URLs are only allowed for messages with role 'user', but this message with role "
        "'tool' contains an image URL.",
        "{where}",
        "invalid_value",
    ),
    "O18": Words(_UNANSWERED, "messages.[{index}].role", confirmed=False),
    "O16": Words(f"Invalid 'tools': {_EMPTY_ARRAY}", "tools", "empty_array", confirmed=False),
    "O16 alone": Words(
        "Invalid value for '{key}': '{key}' is only allowed when 'tools' are specified.", "{key}", confirmed=False
    ),
}
"""What OpenAI says, and others where they have no words of their own."""

OPENAI = Dialect(
    name="openai",
    words=OPENAI_WORDS,
    envelope={"error": {"message": "{message}", "type": "invalid_request_error", "param": "{param}", "code": "{code}"}},
)
