"""The rules of Gemini generateContent, G1 to G10: parts and roles, turns, tail, signatures."""

from __future__ import annotations

import re

from heaveto.core.validate.violation import Body, Violation, fields, objects, text

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,127}", re.ASCII)
_DATA = {
    "text",
    "inlineData",
    "fileData",
    "functionCall",
    "functionResponse",
    "executableCode",
    "codeExecutionResult",
    "toolCall",
    "toolResponse",
}
_COUNT = (
    "Please ensure that the number of function response parts is equal to the number of function call parts of the "
    "function call turn."
)
_AFTER_CALL = "Please ensure that function response turn comes immediately after a function call turn."
_AFTER_USER = (
    "Please ensure that function call turn comes immediately after a user turn or after a function response turn."
)


def validate(body: Body, *, strict_unconfirmed: bool = False, signatures: bool = False) -> Violation | None:
    """Return the first rule that a request body breaks, or None. `signatures` is for Gemini 3 and later (G10)."""
    contents = objects(body.get("contents"))
    for index, content in enumerate(contents):
        broken = _content_violation(index, content, strict_unconfirmed)
        if broken is not None:
            return broken
    return _turns_violation(contents) or _tail_violation(contents) or (_unsigned(contents) if signatures else None)


def _rejected(rule: str, message: str, *, sure: bool = True) -> Violation:
    error = {"code": 400, "message": message, "status": "INVALID_ARGUMENT"}
    return Violation(rule, 400, {"error": error}, unconfirmed=not sure)


def _content_violation(index: int, content: Body, strict_unconfirmed: bool) -> Violation | None:
    if content.get("role", "user") not in ("user", "model"):
        return _rejected("G8", "Please use a valid role: user, model.")
    parts = objects(content.get("parts"))
    if not parts:
        where = f"* GenerateContentRequest.contents[{index}].parts"
        return _rejected("G6", f"{where}: contents.parts must not be empty.")
    for place, part in enumerate(parts):
        broken = _part_violation(f"contents[{index}].parts[{place}]", part)
        if broken is None and strict_unconfirmed:
            broken = _unconfirmed_part_violation(f"contents[{index}].parts[{place}]", part)
        if broken is not None:
            return broken
    return _mixed_violation(parts)


def _part_violation(where: str, part: Body) -> Violation | None:
    if _DATA.isdisjoint(part):
        words = "required oneof field 'data' must have one initialized field"
        return _rejected("G7", f"* GenerateContentRequest.{where}.data: {words}")
    return None


def _unconfirmed_part_violation(where: str, part: Body) -> Violation | None:
    if part.get("text") == "":
        return _rejected("G7", "Unable to submit request because Model input cannot be empty.", sure=False)
    for key, value_key in (("functionCall", "args"), ("functionResponse", "response")):
        if key not in part:
            continue
        function = fields(part[key])
        name = function.get("name")
        if not name:
            return _rejected("G15", f"* GenerateContentRequest.{where}.{key}.name: Name cannot be empty", sure=False)
        if not _NAME.fullmatch(text(name)):
            return _rejected("G18", f"Invalid function name at {where}", sure=False)
        if not isinstance(function.get(value_key, {}), dict):
            return _rejected("G16", f"Invalid value at '{where}.{key}.{value_key}' (TYPE_MESSAGE)", sure=False)
    return None


def _mixed_violation(parts: list[Body]) -> Violation | None:
    results = sum("functionResponse" in part for part in parts)
    return _rejected("G9", _COUNT) if 0 < results < len(parts) else None


def _turns_violation(contents: list[Body]) -> Violation | None:
    before: Body | None = None
    for content in contents:
        broken = _turn_violation(before, content)
        if broken is not None:
            return broken
        before = content
    return None


def _turn_violation(before: Body | None, content: Body) -> Violation | None:
    calls = _count(before, "functionCall") if before is not None else 0
    results = _count(content, "functionResponse")
    if results and not calls:
        return _rejected("G2", _AFTER_CALL)
    if calls and not results:
        return _rejected("G4", _COUNT)
    if results != calls:
        return _rejected("G1", _COUNT)
    if _count(content, "functionCall") and (before is None or before.get("role") == "model"):
        return _rejected("G3", _AFTER_USER)
    return None


def _count(content: Body, key: str) -> int:
    return sum(key in part for part in objects(content.get("parts")))


def _tail_violation(contents: list[Body]) -> Violation | None:
    if not contents or contents[-1].get("role") != "model":
        return None
    return _rejected("G5", "Requests ending with a model turn are not supported.")


def _unsigned(contents: list[Body]) -> Violation | None:
    for place in range(_current_turn(contents), len(contents)):
        calls = [part for part in objects(contents[place].get("parts")) if "functionCall" in part]
        if calls and not calls[0].get("thoughtSignature"):
            name = fields(calls[0]["functionCall"]).get("name", "")
            words = (
                "Function call is missing a thought_signature in functionCall parts. "
                f"Additional data, function call `default_api:{name}` , position {place + 1}."
            )
            return _rejected("G10", words)
    return None


def _current_turn(contents: list[Body]) -> int:
    """Return where the current turn begins: after the last user content that holds no result."""
    for place in range(len(contents) - 1, -1, -1):
        if contents[place].get("role", "user") == "user" and not _count(contents[place], "functionResponse"):
            return place + 1
    return 0
