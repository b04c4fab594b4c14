"""The rules of Gemini generateContent, G0 to G20: parts and roles, turns, tail, signatures, what stands beside.

Keys may be written as in JSON (``functionCall``) or as in the SDKs (``function_call``), as the API takes both.
"""

from __future__ import annotations

from collections.abc import Collection

from heaveto.core.json_values import Body, fields, is_objects, objects, repeated, text
from heaveto.core.validate.gemini_parts import declared_violation, part_violation, rejected, with_json_keys
from heaveto.core.validate.violation import Violation
from heaveto.core.wire_marks import foreign_mark

NO_SIGNATURE = ("skip_thought_signature_validator", "c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I=")
_COUNT = (
    "Please ensure that the number of function response parts is equal to the number of function call parts of the "
    "function call turn."
)
_AFTER_CALL = "Please ensure that function response turn comes immediately after a function call turn."
_AFTER_USER = (
    "Please ensure that function call turn comes immediately after a user turn or after a function response turn."
)


def validate(
    body: Body,
    *,
    strict_unconfirmed: bool = False,
    signatures: bool = False,
    issued_signatures: Collection[str] | None = None,
    prefill: bool = False,
    results_alone: bool = True,
    server_calls: bool = True,
    vertex: bool = False,
) -> Violation | None:
    """Return the first rule that a request body breaks, or None.

    Args:
        body: the body of a request.
        strict_unconfirmed: judge what no public report confirms too.
        signatures: the model wants its calls signed, as Gemini 3 and later do (G10).
        issued_signatures: the signatures that the model has given; others are refused, but for the stand-ins (G12).
        prefill: the model goes on from a last model turn, as those before Gemini 3 do (G5).
        results_alone: text beside results is refused, as Vertex does; AI Studio takes it for the model's (G9).
        server_calls: the model takes calls that the provider executed back, as Gemini 3 and later do (G17).
        vertex: Vertex and its words; it refuses empty texts too (G6, G7, G12).
    """
    if not is_objects(body.get("contents", [])):
        return rejected("G0", "* GenerateContentRequest.contents: contents is not specified")
    for index, content in enumerate(objects(body.get("contents"))):
        mark = foreign_mark(content, "gemini")
        if mark is not None:
            name = mark.name if mark.kind == "key" else "type" if mark.kind == "item" else "content"
            words = f"Unknown name \"{name}\" at 'contents[{index}]': Cannot find field."
            return rejected("G0", f"Invalid JSON payload received. {words}")
    contents = [_content(content) for content in objects(body.get("contents"))]
    for index, content in enumerate(contents):
        broken = _content_violation(
            index, content, strict_unconfirmed=strict_unconfirmed, server_calls=server_calls, vertex=vertex
        )
        if broken is not None:
            return broken
        if results_alone and 0 < _count(content, "functionResponse") < len(content["parts"]):
            return rejected("G9", _COUNT)
    return (
        _turns_violation(contents, strict_unconfirmed)
        or (None if prefill else _tail_violation(contents))
        or (_unsigned(contents) if signatures else None)
        or (_foreign(contents, issued_signatures, vertex) if issued_signatures is not None else None)
        or declared_violation(body)
    )


def _content(content: Body) -> Body:
    return {**content, "parts": [with_json_keys(part) for part in objects(content.get("parts"))]}


def _content_violation(
    index: int, content: Body, *, strict_unconfirmed: bool, server_calls: bool, vertex: bool
) -> Violation | None:
    if (content.get("role") or "user") not in ("user", "model"):
        return rejected("G8", "Please use a valid role: user, model.")
    if not content["parts"]:
        where = f"* GenerateContentRequest.contents[{index}].parts"
        of_vertex = "Unable to submit request because it must include at least one parts field"
        return rejected("G6", of_vertex if vertex else f"{where}: contents.parts must not be empty.")
    for place, part in enumerate(content["parts"]):
        broken = part_violation(
            f"contents[{index}].parts[{place}]",
            part,
            strict_unconfirmed=strict_unconfirmed,
            server_calls=server_calls,
            vertex=vertex,
        )
        if broken is not None:
            return broken
    return None


def _turns_violation(contents: list[Body], strict_unconfirmed: bool) -> Violation | None:
    before: Body | None = None
    for content in contents:
        broken = _turn_violation(before, content)
        if broken is None and strict_unconfirmed and before is not None:
            broken = _ids_violation(before, content)
        if broken is not None:
            return broken
        before = content
    return None


def _turn_violation(before: Body | None, content: Body) -> Violation | None:
    calls = _count(before, "functionCall") if before is not None else 0
    results = _count(content, "functionResponse")
    if results and not calls:
        return rejected("G2", _AFTER_CALL)
    if calls and not results:
        return rejected("G4", _COUNT)
    if results != calls:
        return rejected("G1", _COUNT)
    if _count(content, "functionCall") and (before is None or before.get("role") == "model"):
        return rejected("G3", _AFTER_USER)
    return None


def _ids_violation(before: Body, content: Body) -> Violation | None:
    """Ids are optional; where both sides have them, they should be the same (G14)."""
    asked, answered = _ids(before, "functionCall"), _ids(content, "functionResponse")
    if not asked or not answered or (set(answered) <= set(asked) and repeated(answered) is None):
        return None
    return rejected("G14", _COUNT, sure=False)


def _ids(content: Body, key: str) -> list[str]:
    ids = [fields(part[key]).get("id") for part in content["parts"] if key in part]
    return [text(value) for value in ids if value] if all(ids) else []


def _count(content: Body, key: str) -> int:
    return sum(key in part for part in content["parts"])


def _tail_violation(contents: list[Body]) -> Violation | None:
    if not contents or contents[-1].get("role") != "model":
        return None
    if len(contents) == 1:
        return rejected(
            "G5", "Please ensure that single turn requests end with a user role or the role field is empty."
        )
    return rejected("G5", "Requests ending with a model turn are not supported.")


def _unsigned(contents: list[Body]) -> Violation | None:
    for place in range(_current_turn(contents), len(contents)):
        calls = [part for part in contents[place]["parts"] if "functionCall" in part]
        if calls and not calls[0].get("thoughtSignature"):
            name = text(fields(calls[0]["functionCall"]).get("name"))
            words = (
                "Function call is missing a thought_signature in functionCall parts. "
                f"Additional data, function call `default_api:{name}` , position {place + 1}."
            )
            return rejected("G10", words)
    return None


def _current_turn(contents: list[Body]) -> int:
    """Return where the current turn begins: after the last user content that holds no result."""
    for place in range(len(contents) - 1, -1, -1):
        if (contents[place].get("role") or "user") == "user" and not _count(contents[place], "functionResponse"):
            return place + 1
    return 0


def _foreign(contents: list[Body], issued: Collection[str], vertex: bool) -> Violation | None:
    for content in contents:
        for part in content["parts"]:
            signature = text(part.get("thoughtSignature"))
            if signature and signature not in issued and signature not in NO_SIGNATURE:
                return rejected("G12", "Invalid thought signature." if vertex else "Corrupted thought signature.")
    return None
