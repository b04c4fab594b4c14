"""The rules of OpenAI Chat Completions, O1 to O16: first the schema, then the sequence."""

from __future__ import annotations

import re

from heaveto.core.validate.violation import Body, Violation, fields, objects, repeated, text

_NAME = re.compile(r"[a-zA-Z0-9_-]+", re.ASCII)
_ID_LENGTH, _NAME_LENGTH = 40, 64
_NO_ARRAY = "empty array. Expected an array with minimum length 1, but got an empty array instead."


def validate(body: Body, *, strict_unconfirmed: bool = False) -> Violation | None:
    """Return the first rule that a request body breaks, or None."""
    messages = objects(body.get("messages"))
    if not messages:
        return _rejected("O8", f"Invalid 'messages': {_NO_ARRAY}", "messages", "empty_array")
    for index, message in enumerate(messages):
        broken = _message_violation(index, message)
        if broken is not None:
            return broken
    return _sequence_violation(messages, strict_unconfirmed) or (_tools_violation(body) if strict_unconfirmed else None)


def _rejected(rule: str, message: str, param: str | None, code: str | None = None, *, sure: bool = True) -> Violation:
    error = {"message": message, "type": "invalid_request_error", "param": param, "code": code}
    return Violation(rule, 400, {"error": error}, unconfirmed=not sure)


def _message_violation(index: int, message: Body) -> Violation | None:
    where = f"messages[{index}]"
    if message.get("tool_calls") == []:
        return _rejected("O7", f"Invalid '{where}.tool_calls': {_NO_ARRAY}", f"{where}.tool_calls", "empty_array")
    calls = objects(message.get("tool_calls"))
    if message.get("content") is None and not (message.get("role") == "assistant" and calls):
        words = "Invalid value for 'content': expected a string, got null."
        return _rejected("O9", words, f"messages.[{index}].content")
    for number, call in enumerate(calls):
        broken = _call_violation(f"{where}.tool_calls[{number}]", call)
        if broken is not None:
            return broken
    if message.get("role") != "tool":
        return None
    return _id_violation(f"{where}.tool_call_id", text(message.get("tool_call_id"))) or _image_violation(where, message)


def _call_violation(where: str, call: Body) -> Violation | None:
    name = text(fields(call.get("function")).get("name"))
    return _id_violation(f"{where}.id", text(call.get("id"))) or _name_violation(f"{where}.function.name", name)


def _id_violation(where: str, value: str) -> Violation | None:
    return _too_long("O11", where, value, _ID_LENGTH) if len(value) > _ID_LENGTH else None


def _name_violation(where: str, name: str) -> Violation | None:
    if not name:
        words = "empty string. Expected a string with minimum length 1, but got an empty string instead."
        return _rejected("O12", f"Invalid '{where}': {words}", where, "empty_string")
    if len(name) > _NAME_LENGTH:
        return _too_long("O12", where, name, _NAME_LENGTH)
    if not _NAME.fullmatch(name):
        words = "string does not match pattern. Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'."
        return _rejected("O12", f"Invalid '{where}': {words}", where, "invalid_value")
    return None


def _too_long(rule: str, where: str, value: str, limit: int) -> Violation:
    words = (
        f"Invalid '{where}': string too long. Expected a string with maximum length {limit}, "
        f"but got a string with length {len(value)} instead."
    )
    return _rejected(rule, words, where, "string_above_max_length")


def _image_violation(where: str, message: Body) -> Violation | None:
    if not any(part.get("type") == "image_url" for part in objects(message.get("content"))):
        return None
    words = (
        f"Invalid '{where}'. Image URLs are only allowed for messages with role 'user', "
        "but this message with role 'tool' contains an image URL."
    )
    return _rejected("O14", words, where, "invalid_value")


def _sequence_violation(messages: list[Body], strict_unconfirmed: bool) -> Violation | None:
    asked: list[str] = []
    answered: dict[str, int] = {}
    for index, message in enumerate(messages):
        if message.get("role") == "tool":
            broken = _result_violation(index, text(message.get("tool_call_id")), asked, answered)
            if broken is not None:
                return broken
            continue
        broken = _unanswered(index, asked, answered)
        if broken is not None:
            return broken
        asked, answered = [text(call.get("id")) for call in objects(message.get("tool_calls"))], {}
        twice = repeated(asked)
        if twice is not None and strict_unconfirmed:
            words = f"Duplicate value for 'tool_call_id' of '{twice}' in 'tool_calls'."
            return _rejected("O5", words, f"messages.[{index}].tool_calls", sure=False)
    return _unanswered(len(messages), asked, answered)


def _result_violation(index: int, call_id: str, asked: list[str], answered: dict[str, int]) -> Violation | None:
    if not asked:
        words = (
            "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls'."
        )
        return _rejected("O2", words, f"messages.[{index}].role")
    if call_id not in asked:
        words = f"Invalid parameter: 'tool_call_id' of '{call_id}' not found in 'tool_calls' of previous message."
        return _rejected("O3", words, f"messages.[{index}].tool_call_id")
    if call_id in answered:
        both = f"messages[{answered[call_id]}] and messages[{index}]"
        words = f"Invalid parameter: Duplicate value for 'tool_call_id' of '{call_id}', in {both}."
        return _rejected("O4", words, f"messages.[{index}].tool_call_id")
    answered[call_id] = index
    return None


def _unanswered(index: int, asked: list[str], answered: dict[str, int]) -> Violation | None:
    missing = [call_id for call_id in asked if call_id not in answered]
    if not missing:
        return None
    words = (
        "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. "
        f"The following tool_call_ids did not have response messages: {', '.join(missing)}"
    )
    return _rejected("O1", words, f"messages.[{index}].role")


def _tools_violation(body: Body) -> Violation | None:
    if body.get("tools") == []:
        return _rejected("O16", f"Invalid 'tools': {_NO_ARRAY}", "tools", "empty_array", sure=False)
    for key in ("tool_choice", "parallel_tool_calls"):
        if key in body and not body.get("tools"):
            words = f"Invalid value for '{key}': '{key}' is only allowed when 'tools' are specified."
            return _rejected("O16", words, key, sure=False)
    return None
