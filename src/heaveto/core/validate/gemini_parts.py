"""Gemini's parts by themselves (G7, G12, G15 to G18), and what stands beside the contents (G18, G20)."""

from __future__ import annotations

import re
from typing import cast

from heaveto.core.json_values import Body, fields, objects, text
from heaveto.core.validate.violation import Violation

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,127}", re.ASCII)
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]*={0,2}", re.ASCII)
_DATA = (
    "text",
    "inlineData",
    "fileData",
    "functionCall",
    "functionResponse",
    "executableCode",
    "codeExecutionResult",
    "toolCall",
    "toolResponse",
)
_SNAKE = {re.sub(r"[A-Z]", lambda found: f"_{found[0].lower()}", key): key for key in (*_DATA, "thoughtSignature")}
_CACHED = (
    "CachedContent can not be used with GenerateContent request setting system_instruction, tools or tool_config. "
    "Proposed fix: move those values to CachedContent from GenerateContent request."
)


def rejected(rule: str, message: str, *, sure: bool = True) -> Violation:
    """Return the API's INVALID_ARGUMENT."""
    error = {"code": 400, "message": message, "status": "INVALID_ARGUMENT"}
    return Violation(rule, 400, {"error": error}, unconfirmed=not sure)


def with_json_keys(part: Body) -> Body:
    """Return a part with the keys of JSON, where it had those of the SDKs; what is null is not there."""
    return {_SNAKE.get(key, key): value for key, value in part.items() if value is not None}


def part_violation(
    where: str, part: Body, *, strict_unconfirmed: bool, server_calls: bool, vertex: bool
) -> Violation | None:
    """Return what is wrong with a part by itself, or None."""
    return (
        _data_violation(where, part, strict_unconfirmed=strict_unconfirmed, vertex=vertex)
        or _signature_violation(where, part)
        or (None if server_calls else _server_violation(where, part))
        or _function_violation(where, "functionCall", "args", part, strict_unconfirmed)
        or _function_violation(where, "functionResponse", "response", part, strict_unconfirmed)
    )


def _data_violation(where: str, part: Body, *, strict_unconfirmed: bool, vertex: bool) -> Violation | None:
    if not any(key in part for key in _DATA):
        words = "required oneof field 'data' must have one initialized field"
        return rejected("G7", f"* GenerateContentRequest.{where}.data: {words}")
    if part.get("text") == "" and "thoughtSignature" not in part and (vertex or strict_unconfirmed):
        return rejected("G7", "Unable to submit request because Model input cannot be empty.", sure=vertex)
    return None


def _signature_violation(where: str, part: Body) -> Violation | None:
    """Both alphabets are taken, padded or not, as in any JSON of this API; the SDK's contents have bytes."""
    signature = part.get("thoughtSignature", "")
    if isinstance(signature, bytes):
        return None
    is_text = isinstance(signature, str)
    if is_text and _BASE64.fullmatch(signature) and len(signature.rstrip("=")) % 4 != 1:
        return None
    words = f"Invalid value at '{where}.thought_signature' (TYPE_BYTES), "
    return rejected("G12", words + (f'Base64 decoding failed for "{signature}"' if is_text else f"{signature}"))


def _server_violation(where: str, part: Body) -> Violation | None:
    if "toolCall" not in part and "toolResponse" not in part:
        return None
    return rejected("G17", f"Tool call context circulation is not enabled for this model: {where}")


def _function_violation(where: str, key: str, value_key: str, part: Body, strict_unconfirmed: bool) -> Violation | None:
    if key not in part:
        return None
    function, path = fields(part[key]), f"{where}.{'_'.join(re.split('(?=[CR])', key)).lower()}"
    name = text(function.get("name"))
    value: object = function.get(value_key)
    if not name and strict_unconfirmed:
        return rejected("G15", f"* GenerateContentRequest.{path}.name: Name cannot be empty", sure=False)
    if name and not _NAME.fullmatch(name):
        return _wrong_name(f"{path}.name", name)
    if value is not None and not isinstance(value, dict):
        return rejected("G16", f"Invalid value at '{path}.{value_key}' (type.googleapis.com/google.protobuf.Struct)")
    if key == "functionResponse" and _holds_reference(function.get(value_key)):
        return rejected("G16", f"Invalid value at '{path}.response': '$ref' refers to no part of the response")
    return None


def _wrong_name(where: str, name: str) -> Violation:
    words = (
        f"Invalid function name at {where}: '{name}'. Must start with a letter or an underscore. Must be alphanumeric "
        "(a-z, A-Z, 0-9), underscores (_), dots (.), colons (:), or dashes (-), with a maximum length of 128."
    )
    return rejected("G18", words)


def _holds_reference(value: object) -> bool:
    """Whether ``{"$ref": …}`` stands anywhere in a response: it is read as a reference to a part."""
    waiting: list[object] = [value]
    while waiting:
        item = waiting.pop()
        if "$ref" in fields(item):
            return True
        waiting += fields(item).values()
        waiting += cast("list[object]", item) if isinstance(item, list) else ()
    return False


def declared_violation(body: Body) -> Violation | None:
    """Return what is wrong with the declared functions, or with what may not stand beside cached content, or None."""
    for index, tool in enumerate(objects(body.get("tools"))):
        functions = objects(tool.get("functionDeclarations") or tool.get("function_declarations"))
        for place, function in enumerate(functions):
            if not _NAME.fullmatch(text(function.get("name"))):
                where = f"tools[{index}].function_declarations[{place}].name"
                return _wrong_name(where, text(function.get("name")))
    beside = ("tools", "toolConfig", "systemInstruction", "tool_config", "system_instruction")
    if (body.get("cachedContent") or body.get("cached_content")) and any(body.get(key) for key in beside):
        return rejected("G20", _CACHED)
    return None
