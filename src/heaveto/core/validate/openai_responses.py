"""The rules of OpenAI Responses, R1 to R10: schema, duplicates, pairing, reasoning."""

from __future__ import annotations

import re

from heaveto.core.validate.violation import Body, Violation, objects, repeated, text

_ID = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)
_ID_LENGTH = 64
_CALL, _OUTPUT = "function_call", "function_call_output"


def validate(body: Body, *, strict_unconfirmed: bool = False) -> Violation | None:
    """Return the first rule that a request body breaks, or None.

    With ``previous_response_id`` the pairing is not judged: the stored chain is not known here.
    """
    items = objects(body.get("input"))
    for index, item in enumerate(items):
        broken = _item_violation(index, item)
        if broken is not None:
            return broken
    chained = bool(body.get("previous_response_id"))
    return (
        _duplicate_violation(items)
        or (_unconfirmed_violation(items) if strict_unconfirmed else None)
        or (None if chained else _pairing_violation(items))
        or _reasoning_violation(items)
    )


def _rejected(
    rule: str, message: str, param: str = "input", code: str | None = None, *, sure: bool = True
) -> Violation:
    error = {"message": message, "type": "invalid_request_error", "param": param, "code": code}
    return Violation(rule, 400, {"error": error}, unconfirmed=not sure)


def _item_violation(index: int, item: Body) -> Violation | None:
    where = f"input[{index}]"
    for key in ("id", "call_id"):
        value = text(item.get(key))
        if len(value) > _ID_LENGTH:
            words = (
                f"Invalid '{where}.{key}': string too long. Expected a string with maximum length {_ID_LENGTH}, "
                f"but got a string with length {len(value)} instead."
            )
            return _rejected("R10", words, f"{where}.{key}", "string_above_max_length")
    return _id_violation(where, item) if "id" in item else None


def _id_violation(where: str, item: Body) -> Violation | None:
    value = text(item.get("id"))
    words = f"Invalid '{where}.id': '{value}'. "
    if not _ID.fullmatch(value):
        words += "Expected an ID that contains letters, numbers, underscores, or dashes, "
        words += "but this value contained additional characters."
        return _rejected("R9", words, f"{where}.id", "invalid_value")
    if item.get("type") == _CALL and not value.startswith("fc"):
        return _rejected("R9", words + "Expected an ID that begins with 'fc'.", f"{where}.id", "invalid_value")
    return None


def _duplicate_violation(items: list[Body]) -> Violation | None:
    twice = repeated([text(item.get("id")) for item in items if item.get("id")])
    if twice is None:
        return None
    words = f"Duplicate item found with id {twice}. Remove duplicate items from your input and try again."
    return _rejected("R7", words)


def _unconfirmed_violation(items: list[Body]) -> Violation | None:
    if repeated(_call_ids(items, _OUTPUT)) is not None:
        return _rejected("R8", "Duplicate function_call_output for call_id", sure=False)
    if repeated(_call_ids(items, _CALL)) is not None:
        return _rejected("R8", "Duplicate 'call_id'", sure=False)
    called: set[str] = set()
    for item in items:
        call_id = text(item.get("call_id"))
        if item.get("type") == _CALL:
            called.add(call_id)
        if item.get("type") == _OUTPUT and call_id not in called:
            return _orphan(call_id)
    return None


def _pairing_violation(items: list[Body]) -> Violation | None:
    called, answered = _call_ids(items, _CALL), _call_ids(items, _OUTPUT)
    for call_id in answered:
        if call_id not in called:
            return _orphan(call_id)
    for call_id in called:
        if call_id not in answered:
            return _rejected("R1", f"No tool output found for function call {call_id}.")
    return None


def _orphan(call_id: str) -> Violation:
    return _rejected("R3", f"No tool call found for function call output with call_id {call_id}.")


def _call_ids(items: list[Body], kind: str) -> list[str]:
    return [text(item.get("call_id")) for item in items if item.get("type") == kind]


def _reasoning_violation(items: list[Body]) -> Violation | None:
    for index, item in enumerate(items):
        following = items[index + 1] if index + 1 < len(items) else None
        if item.get("type") == "reasoning" and not _is_product(following):
            words = f"Item '{item.get('id', '')}' of type 'reasoning' was provided without its required following item."
            return _rejected("R5", words)
    return None


def _is_product(item: Body | None) -> bool:
    """Whether an item is something that reasoning produced: a call, more reasoning, or a message with its id."""
    if item is None:
        return False
    kind = text(item.get("type")) or "message"
    if kind == "message":
        return item.get("role") == "assistant" and bool(item.get("id"))
    return kind == "reasoning" or kind.endswith("_call")
