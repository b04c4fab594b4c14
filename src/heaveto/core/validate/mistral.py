"""The rules of Mistral, M0 to M9: structure of the list, then each message, then the tools.

They depend on the tokenizer's version of the model. The order of the checks is that of Mistral's published validator;
what the hosted API refuses besides (`api`) comes with it.
"""

from __future__ import annotations

import re
from typing import Literal

from heaveto.core.json_values import Body, fields, objects, repeated, text
from heaveto.core.validate.violation import Violation
from heaveto.core.wire_marks import foreign_mark

Version = Literal[1, 2, 3, 7, 11, 13, 15]
VERSIONS: tuple[Version, ...] = (1, 2, 3, 7, 11, 13, 15)
_ID = re.compile(r"[a-zA-Z0-9]{9}", re.ASCII)
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}", re.ASCII)
_FOLLOWERS = {
    "system": ("user", "assistant", "system"),
    "user": ("assistant", "system", "user"),
    "assistant": ("assistant", "user", "tool"),
    "tool": ("assistant", "tool", "user"),
}
_UNEQUAL = "Not the same number of function calls and responses"
_EITHER = "Assistant message must have either content or tool_calls, but not both."
_ORDER, _CALL, _OTHER = (
    ("invalid_request_message_order", "3230"),
    ("invalid_function_call", "3280"),
    ("invalid_request_error", None),
)


def validate(
    body: Body, *, strict_unconfirmed: bool = False, version: Version = 13, api: bool = True
) -> Violation | None:
    """Return the first rule that a request body breaks, or None.

    Args:
        body: the body of a chat completion.
        strict_unconfirmed: nothing more is judged for this format; here as in the other formats.
        version: of the model's tokenizer: 3 for the first models with tools, 7, 11, 13 for those of 2025, 15.
        api: judge what the hosted API refuses beyond the published validator: user after tool (M4), and an assistant
            message with nothing in it (M6).
    """
    messages = objects(body.get("messages"))
    return (
        _foreign_violation(messages)
        or _ends_violation(messages)
        or _order_violation(messages, api)
        or (_ids_violation(messages) if version >= 11 else _count_violation(messages))
        or _content_violation(messages, version, api)
        or _declared_violation(body)
    )


def _rejected(rule: str, message: str, kind: tuple[str, str | None] = _ORDER) -> Violation:
    body = {"object": "error", "message": message, "type": kind[0], "param": None, "code": kind[1]}
    return Violation(rule, 400, body)


def _foreign_violation(messages: list[Body]) -> Violation | None:
    """What only other formats have; the published validator's types allow nothing besides their own (M0)."""
    for index, message in enumerate(messages):
        mark = foreign_mark(message, "chat")
        if mark is not None and mark.kind != "role":  # a role is refused where roles are (M4)
            place = f".content.{mark.block}" if mark.kind == "block" else f".{mark.name}"
            return _rejected("M0", f"messages.{index}{place}: Extra inputs are not permitted", _OTHER)
    return None


def _ends_violation(messages: list[Body]) -> Violation | None:
    if not messages:
        return _rejected("M8", "Conversation must have at least one message")
    last = messages[-1]
    if len(messages) == 1:
        if last.get("role") in ("user", "system"):
            return None
        return _rejected("M8", "Conversation must start with a user message or system message")
    if last.get("role") == "assistant" and not last.get("prefix"):
        words = "Expected last role User or Tool (or Assistant with prefix) for serving but got assistant"
        return _rejected("M5", words)
    return None


def _order_violation(messages: list[Body], api: bool) -> Violation | None:
    previous = ""
    for message in messages:
        role = text(message.get("role"))
        allowed = role in (_FOLLOWERS.get(previous, ()) if previous else _FOLLOWERS)
        if not allowed or (api and previous == "tool" and role == "user"):
            after = f" after role '{previous}'" if previous else ""
            return _rejected("M4", f"Unexpected role '{role}'{after}")
        previous = role
    return None


def _count_violation(messages: list[Body]) -> Violation | None:
    """Up to version 7 results are only counted; the first message is skipped (M8)."""
    open_calls = 0
    for message in messages[1:]:
        if message.get("role") == "tool":
            open_calls -= 1
        elif message.get("role") == "assistant":
            if open_calls:
                return _rejected("M2", _UNEQUAL)
            open_calls = len(objects(message.get("tool_calls")))
    return _rejected("M2", _UNEQUAL) if open_calls else None


def _ids_violation(messages: list[Body]) -> Violation | None:
    """From version 11 results are matched by id; the first message is skipped (M8)."""
    asked: set[str] = set()
    answered: set[str | None] = set()
    for message in messages[1:]:
        if message.get("role") == "tool":
            given = message.get("tool_call_id")
            call_id = given if isinstance(given, str) else None
            if call_id in answered:
                return _rejected("M3", f"Duplicate tool call id {call_id} in tool results")
            if call_id not in asked:
                return _rejected("M3", f"Unexpected tool call id {call_id} in tool results")
            answered.add(call_id)
        elif message.get("role") == "assistant":
            if len(asked) != len(answered):
                return _rejected("M2", _UNEQUAL)
            asked, answered = set(), set()
            ids = _call_ids(message)
            twice = repeated(ids)
            if twice is not None:
                return _rejected("M3", f"Duplicate tool call id {twice} in assistant message")
            asked.update(ids)
    return _rejected("M2", _UNEQUAL) if len(asked) != len(answered) else None


def _call_ids(message: Body) -> list[str]:
    return [text(call.get("id", "null")) for call in objects(message.get("tool_calls"))]


def _content_violation(messages: list[Body], version: Version, api: bool) -> Violation | None:
    for index, message in enumerate(messages):
        match message.get("role"):
            case "assistant":
                broken = _assistant_violation(message, version, api, is_last=index == len(messages) - 1)
            case "tool":
                broken = _tool_violation(message, version)
            case _:
                broken = None
        if broken is not None:
            return broken
    return None


def _assistant_violation(message: Body, version: Version, api: bool, *, is_last: bool) -> Violation | None:
    has_content, calls = bool(message.get("content")), objects(message.get("tool_calls"))
    if has_content == bool(calls) and (version <= 3 or (api and not has_content)):
        return _rejected("M6", _EITHER, _OTHER)
    for call in calls:
        broken = _call_violation(call, version)
        if broken is not None:
            return broken
    if message.get("prefix") and not is_last:
        return _rejected("M5", "Assistant message with prefix True must be last message", _OTHER)
    return None


def _call_violation(call: Body, version: Version) -> Violation | None:
    call_id = text(call.get("id", "null"))
    if call_id == "null" and 3 <= version < 13:
        return _rejected("M1", "Tool call id has to be defined in serving mode.", _CALL)
    return _id_violation(call_id, version) or _name_violation(text(fields(call.get("function")).get("name")))


def _tool_violation(message: Body, version: Version) -> Violation | None:
    kinds = sorted({text(chunk.get("type")) for chunk in objects(message.get("content"))} - {"text"})
    if kinds and version < 15:
        named = [_CHUNKS.get(kind, kind) for kind in kinds]
        return _rejected("M9", f"Unexpected content chunk types in tool message: {sorted(named)}", _OTHER)
    if message.get("name") is not None:
        broken = _name_violation(text(message.get("name")))
        if broken is not None:
            return broken
    if message.get("tool_call_id") is None and 3 <= version < 13:
        return _rejected("M1", "Tool call id has to be defined.", _OTHER)
    return _id_violation(text(message.get("tool_call_id")), version)


_CHUNKS = {
    "image": "ImageChunk",
    "image_url": "ImageURLChunk",
    "input_audio": "AudioChunk",
    "audio_url": "AudioURLChunk",
    "thinking": "ThinkChunk",
}


def _id_violation(call_id: str, version: Version) -> Violation | None:
    if version < 3:
        return None
    if version < 13:
        words = f"Tool call id was {call_id} but must be a-z, A-Z, 0-9, with a length of 9."
        return None if _ID.fullmatch(call_id) else _rejected("M1", words, _CALL)
    if call_id and call_id != "null":
        return None
    words = "Tool call id must be a non-empty string other than 'null' for tokenizer version 13 or newer."
    return _rejected("M1", words, _CALL)


def _name_violation(name: str) -> Violation | None:
    if _NAME.fullmatch(name):
        return None
    words = (
        f"Function name was {name} but must be a-z, A-Z, 0-9, or contain underscores and dashes, with a maximum length "
        "of 64."
    )
    return _rejected("M7", words, _CALL)


def _declared_violation(body: Body) -> Violation | None:
    for tool in objects(body.get("tools")):
        broken = _name_violation(text(fields(tool.get("function")).get("name")))
        if broken is not None:
            return broken
    return None
