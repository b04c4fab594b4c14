"""The shape of Converse bodies as the service model has it: B0 what is required and of which kind, B8 ids and names.

B9, that the input of a call is an object, is not in the service model: it lets any JSON through.
"""

from __future__ import annotations

import re

from heaveto.core.json_values import Body, fields, is_objects, objects, text
from heaveto.core.validate.converse import rejected
from heaveto.core.validate.violation import Violation
from heaveto.core.wire_marks import foreign_mark

_ID, _NAME = "[a-zA-Z0-9_.:-]+", "[a-zA-Z0-9_-]+"
_LENGTH = 64
_BLOCKS = {
    "text", "image", "document", "video", "audio", "toolUse", "toolResult", "guardContent", "cachePoint",
    "reasoningContent", "citationsContent", "searchResult", "toolAddition", "toolRemoval",
}  # fmt: skip
_RESULT_BLOCKS = {"json", "text", "image", "document", "video", "searchResult"}
_CHOICES = {"auto", "any", "tool"}


def shape_violation(body: Body, strict_unconfirmed: bool) -> Violation | None:
    """Return what of a body is not as the service model has it, or None. Images and the like are not looked into."""
    messages = body.get("messages", [])
    if not is_objects(messages):
        return _wrong("messages", "a list of Message objects")
    for index, message in enumerate(objects(messages)):
        broken = _message_violation(f"messages.{index}", message, strict_unconfirmed)
        if broken is not None:
            return broken
    return _tools_violation(body["toolConfig"]) if "toolConfig" in body else None


def _wrong(where: str, expected: str) -> Violation:
    return rejected("B0", f"The format of the value at {where} is invalid. Provide {expected} and try again.")


def _message_violation(where: str, message: Body, strict_unconfirmed: bool) -> Violation | None:
    if message.get("role") not in ("user", "assistant", "system"):
        return _wrong(f"{where}.role", "one of user, assistant, system")
    if not is_objects(message.get("content")):
        return _wrong(f"{where}.content", "a list of ContentBlock objects")
    for place, block in enumerate(objects(message.get("content"))):
        broken = _block_violation(f"{where}.content.{place}", block, strict_unconfirmed)
        if broken is not None:
            return broken
    return None if foreign_mark(message, "bedrock") is None else _wrong(where, "an object with role and content")


def _block_violation(where: str, block: Body, strict_unconfirmed: bool) -> Violation | None:
    if len(block) != 1 or not _BLOCKS.issuperset(block):
        return _wrong(where, "an object with one of the members of ContentBlock")
    (kind,) = block
    value: object = block[kind]
    if not isinstance(value, str if kind == "text" else dict):
        return _wrong(f"{where}.{kind}", "a string" if kind == "text" else "an object")
    if kind == "toolUse":
        return _call_violation(f"{where}.toolUse", fields(block[kind]), strict_unconfirmed)
    return _result_violation(f"{where}.toolResult", fields(block[kind])) if kind == "toolResult" else None


def _call_violation(where: str, call: Body, strict_unconfirmed: bool) -> Violation | None:
    broken = _pattern_violation(f"{where}.toolUseId", call.get("toolUseId"), _ID) or _pattern_violation(
        f"{where}.name", call.get("name"), _NAME
    )
    if broken is not None:
        return broken
    if "input" not in call:
        return _wrong(f"{where}.input", "a json object for the field")
    if strict_unconfirmed and not isinstance(call["input"], dict):
        words = (
            f"The format of the value at {where}.input is invalid. Provide a json object for the field and try again."
        )
        return rejected("B9", words, sure=False)
    return None


def _result_violation(where: str, result: Body) -> Violation | None:
    broken = _pattern_violation(f"{where}.toolUseId", result.get("toolUseId"), _ID)
    if broken is not None:
        return broken
    if not is_objects(result.get("content")):
        return _wrong(f"{where}.content", "a list of ToolResultContentBlock objects")
    for place, block in enumerate(objects(result.get("content"))):
        if len(block) != 1 or not _RESULT_BLOCKS.issuperset(block):
            return _wrong(f"{where}.content.{place}", "an object with one of the members of ToolResultContentBlock")
        if "text" in block and not isinstance(block["text"], str):
            return _wrong(f"{where}.content.{place}.text", "a string")
    if result.get("status", "success") not in ("success", "error"):
        return _wrong(f"{where}.status", "one of success, error")
    return None


def _pattern_violation(where: str, value: object, pattern: str) -> Violation | None:
    given = text(value)
    if given and len(given) <= _LENGTH and re.fullmatch(pattern, given, re.ASCII):
        return None
    members = re.sub(r"\.(\d+)\.", r".\1.member.", where)
    constraint = f"Member must satisfy regular expression pattern: {pattern}"
    if len(given) > _LENGTH:
        constraint = f"Member must have length less than or equal to {_LENGTH}"
    elif not given:
        constraint = "Member must have length greater than or equal to 1"
    words = f"1 validation error detected: Value '{given}' at '{members}' failed to satisfy constraint: {constraint}"
    return rejected("B8", words)


def _tools_violation(config: object) -> Violation | None:
    held = fields(config)
    tools = held.get("tools")
    if not is_objects(tools) or not tools:
        return _wrong("toolConfig.tools", "a list with at least one Tool object")
    for index, tool in enumerate(objects(tools)):
        broken = _tool_violation(f"toolConfig.tools.{index}", tool)
        if broken is not None:
            return broken
    choice = held.get("toolChoice", {"auto": {}})
    if len(fields(choice)) != 1 or not _CHOICES.issuperset(fields(choice)):
        return rejected(
            "B12", "The format of the value at toolConfig.toolChoice is invalid. Provide auto, any or tool."
        )
    return None


def _tool_violation(where: str, tool: Body) -> Violation | None:
    if "toolSpec" not in tool:
        return None
    spec = fields(tool["toolSpec"])
    broken = _pattern_violation(f"{where}.toolSpec.name", spec.get("name"), _NAME)
    if broken is not None:
        return broken
    return None if isinstance(spec.get("inputSchema"), dict) else _wrong(f"{where}.toolSpec.inputSchema", "an object")
