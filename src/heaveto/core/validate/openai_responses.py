"""The rules of Responses, R0 to R12, R17 and R18: schema, duplicates, pairing, reasoning, store, choice."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from heaveto.core.json_values import Body, fields, is_objects, objects, repeated, text
from heaveto.core.validate.responses_dialect import (
    CALLS,
    OPENAI_RESPONSES,
    OUTPUTS,
    Dialect,
    call_id_of,
    is_open,
    kind_of,
)
from heaveto.core.validate.responses_state import reasoning_violation, state_violation
from heaveto.core.validate.violation import Violation
from heaveto.core.wire_kinds import LOCAL_SHELL_OUTPUT
from heaveto.core.wire_marks import foreign_mark

_ID = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)
_ID_LENGTH = 64
_NAME_LENGTH = 64
_NAMED = ("function_call", "custom_tool_call")


def validate(
    body: Body,
    *,
    strict_unconfirmed: bool = False,
    dialect: Dialect = OPENAI_RESPONSES,
    chain: Sequence[Body] | None = None,
    known_responses: Collection[str] | None = None,
    known_items: Collection[str] | None = None,
    reasoning_model: bool = False,
    additional_tools_choice: bool = True,
) -> Violation | None:
    """Return the first rule that a request body breaks, or None.

    Args:
        body: the body of a request.
        strict_unconfirmed: judge what no public report confirms too.
        dialect: the server.
        chain: the stored items that come before these, by ``previous_response_id`` or a conversation. Where it is not
            given and the body names one, pairs are not judged.
        known_responses: ids of the responses that are stored (R12); None where nobody knows.
        known_items: ids of the items that are stored (R11); None where nobody knows, then only ``store`` counts.
        reasoning_model: every call and answer of the model was made with reasoning, so that an item sent with its
            stored id needs its reasoning item before it (R6).
        additional_tools_choice: tools that come with the input can be chosen, as from GPT-5.6 on (R17).
    """
    if not isinstance(body.get("input", ""), str) and not is_objects(body.get("input")):
        return dialect.rejected("R0", "Invalid type for 'input': expected a string or an array of objects.")
    items = objects(body.get("input"))
    for index, item in enumerate(items):
        broken = _item_violation(index, item, dialect)
        if broken is not None:
            return broken
    is_known = chain is not None or not (body.get("previous_response_id") or body.get("conversation"))
    all_items = [*(chain or ()), *items]
    return (
        _duplicate_violation(all_items, dialect)
        or (_unconfirmed_violation(all_items, dialect, is_known) if strict_unconfirmed else None)
        or (_pairing_violation(all_items, dialect) if is_known else None)
        or (_adjacency_violation(items, dialect) if dialect.adjacent else None)
        or reasoning_violation(items, dialect, reasoning_model)
        or state_violation(body, items, dialect, known_responses, known_items)
        or _choice_violation(body, items, dialect, additional_tools_choice)
    )


def _foreign_violation(where: str, item: Body, dialect: Dialect) -> Violation | None:
    """What only other formats have: a role, a key, or the type of a block (R0)."""
    mark = foreign_mark(item, "responses")
    if mark is None:
        return None
    match mark.kind:
        case "role":
            words = "Supported values are: 'assistant', 'system', 'developer', and 'user'."
            return dialect.rejected("R0", f"Invalid value: '{mark.name}'. {words}", f"{where}.role", "invalid_value")
        case "block":
            words = "Supported values are: 'input_text', 'input_image', 'output_text', 'refusal', and 'input_file'."
            param = f"{where}.content[{mark.block}].type"
            return dialect.rejected("R0", f"Invalid value: '{mark.name}'. {words}", param, "invalid_value")
        case _:
            words = f"Unknown parameter: '{where}.{mark.name}'."
            return dialect.rejected("R0", words, f"{where}.{mark.name}", "unknown_parameter")


def _item_violation(index: int, item: Body, dialect: Dialect) -> Violation | None:
    where = f"input[{index}]"
    foreign = _foreign_violation(where, item, dialect)
    if foreign is not None:
        return foreign
    for key in ("id", "call_id"):
        value = text(item.get(key))
        if len(value) > _ID_LENGTH:
            words = f"Invalid '{where}.{key}': {_too_long(_ID_LENGTH, value)}"
            return dialect.rejected("R10", words, f"{where}.{key}", "string_above_max_length")
    if (
        kind_of(item) in _NAMED
        and "name" in item
        and (broken := _name_violation(f"{where}.name", text(item.get("name")), dialect))
    ):
        return broken
    is_own = item.get("id") is not None and kind_of(item) != "local_shell_call_output"  # there it is the call's
    return _id_violation(where, item, dialect) if is_own else None


def _id_violation(where: str, item: Body, dialect: Dialect) -> Violation | None:
    value = text(item.get("id"))
    words = f"Invalid '{where}.id': '{value}'. "
    if not _ID.fullmatch(value):
        words += "Expected an ID that contains letters, numbers, underscores, or dashes, "
        words += "but this value contained additional characters."
        return dialect.rejected("R9", words, f"{where}.id", "invalid_value")
    if kind_of(item) == "function_call" and not value.startswith("fc"):
        return dialect.rejected("R9", words + "Expected an ID that begins with 'fc'.", f"{where}.id", "invalid_value")
    return None


def _name_violation(where: str, name: str, dialect: Dialect) -> Violation | None:
    if not name:
        code = "empty_string"
        words = "empty string. Expected a string with minimum length 1, but got an empty string instead."
    elif len(name) > _NAME_LENGTH:
        code, words = "string_above_max_length", _too_long(_NAME_LENGTH, name)
    elif not _ID.fullmatch(name):
        code = "invalid_value"
        words = "string does not match pattern. Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'."
    else:
        return None
    return dialect.rejected("R18", f"Invalid '{where}': {words}", where, code)


def _too_long(limit: int, value: str) -> str:
    return (
        f"string too long. Expected a string with maximum length {limit}, "
        f"but got a string with length {len(value)} instead."
    )


def _duplicate_violation(items: list[Body], dialect: Dialect) -> Violation | None:
    ids = [text(item.get("id")) for item in items if item.get("id") and kind_of(item) != LOCAL_SHELL_OUTPUT]
    twice = repeated(ids)
    if twice is None:
        return None
    words = f"Duplicate item found with id {twice}. Remove duplicate items from your input and try again."
    return dialect.rejected("R7", words)


def _unconfirmed_violation(items: list[Body], dialect: Dialect, is_known: bool) -> Violation | None:
    if repeated([call_id_of(item) for item in items if kind_of(item) in OUTPUTS]) is not None:
        return dialect.rejected("R8", "Duplicate function_call_output for call_id", sure=False)
    if repeated([call_id_of(item) for item in items if is_open(item)]) is not None:
        return dialect.rejected("R8", "Duplicate 'call_id'", sure=False)
    called: set[str] = set()
    for item in items if is_known else ():
        if is_open(item):
            called.add(call_id_of(item))
        elif kind_of(item) in OUTPUTS and call_id_of(item) and call_id_of(item) not in called:
            return _orphan(item, dialect, sure=False)
    return None


def _pairing_violation(items: list[Body], dialect: Dialect) -> Violation | None:
    """Calls and results belong together by id and kind, wherever they stand (R4)."""
    called = {(kind_of(item), call_id_of(item)) for item in items if kind_of(item) in CALLS}
    answered = {(OUTPUTS[kind].call, call_id_of(item)) for item in items if (kind := kind_of(item)) in OUTPUTS}
    for item in items:
        kind = kind_of(item)
        if kind in OUTPUTS and (OUTPUTS[kind].call, call_id_of(item)) not in called and call_id_of(item):
            return _orphan(item, dialect)
    for item in items:
        if is_open(item) and (kind_of(item), call_id_of(item)) not in answered:
            return _unanswered(item, dialect)
    return None


def _orphan(item: Body, dialect: Dialect, *, sure: bool = True) -> Violation:
    named = OUTPUTS[kind_of(item)].named
    words = f"No tool call found for {named} output with call_id {call_id_of(item)}."
    return dialect.rejected("R3", words, sure=sure)


def _unanswered(item: Body, dialect: Dialect, rule: str | None = None) -> Violation:
    kind = CALLS[kind_of(item)]
    words = dialect.unanswered.format(named=kind.named, id=call_id_of(item))
    return dialect.rejected(rule or kind.rule, words)


def _adjacency_violation(items: list[Body], dialect: Dialect) -> Violation | None:
    """Results come right behind the calls of a turn, nothing between (R4 where a server has it)."""
    waiting: dict[str, Body] = {}
    previous = ""
    for item in items:
        if kind_of(item) in OUTPUTS:
            waiting.pop(call_id_of(item), None)
        elif waiting and (not is_open(item) or previous in OUTPUTS):
            return _unanswered(next(iter(waiting.values())), dialect, "R4")
        elif is_open(item):
            waiting[call_id_of(item)] = item
        previous = kind_of(item)
    return None


def _choice_violation(
    body: Body, items: list[Body], dialect: Dialect, additional_tools_choice: bool
) -> Violation | None:
    choice = fields(body.get("tool_choice"))
    if choice.get("type") not in ("function", "custom"):
        return None
    tools = objects(body.get("tools"))
    if additional_tools_choice:
        added = [item for item in items if kind_of(item) == "additional_tools"]
        tools = [*tools, *(tool for item in added for tool in objects(item.get("tools")))]
    name = text(choice.get("name"))
    if any(tool.get("name") == name for tool in tools):
        return None
    return dialect.rejected("R17", f"Tool choice '{name}' not found in 'tools' parameter.", "tool_choice")
