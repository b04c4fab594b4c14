"""The shape of Anthropic's messages, block by block: A0, A6 to A11', A16, A26 to A28."""

from __future__ import annotations

import re

from heaveto.core.json_values import Body, is_objects, objects, text
from heaveto.core.validate.anthropic_turns import Block, Turn, blocks_of, rejected
from heaveto.core.validate.violation import Violation
from heaveto.core.wire_kinds import THINKING
from heaveto.core.wire_marks import foreign_mark

_ID = re.compile(r"[a-zA-Z0-9_-]+", re.ASCII)
_ID_LENGTH = 64
_NAME_LENGTH = 200
_DECLARED_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}", re.ASCII)
_MESSAGES = 100_000
_BREAKPOINTS = 4


def shape_violation(body: Body, messages: list[Body], turns: list[Turn], strict_unconfirmed: bool) -> Violation | None:
    """Return what is wrong with a message, a block or a declared tool by itself, or None."""
    if not is_objects(body.get("messages")):
        return rejected("A0", "messages: Input should be a valid list of messages")
    return (
        _foreign_violation(messages)
        or _messages_violation(messages)
        or _blocks_violation(turns, strict_unconfirmed)
        or _declared_violation(body)
        or _breakpoints_violation(body, messages)
    )


def _foreign_violation(messages: list[Body]) -> Violation | None:
    """What only other formats have: a role, a key, or the type of a block."""
    for index, message in enumerate(messages):
        mark = foreign_mark(message, "anthropic")
        if mark is None:
            continue
        where = f"messages.{index}"
        match mark.kind:
            case "role":
                return rejected("A0", f"{where}.role: Input should be 'user', 'assistant' or 'system'")
            case "block" if mark.owners == ("bedrock",):
                return rejected("A0", f"{where}.content.{mark.block}.type: Field required")
            case "block":
                found = f"Input tag '{mark.name}' found using 'type' does not match any of the expected tags"
                return rejected("A0", f"{where}.content.{mark.block}: {found}")
            case "key":
                return rejected("A0", f"{where}.{mark.name}: Extra inputs are not permitted")
            case "item":
                return rejected("A0", f"{where}.type: Extra inputs are not permitted")
    return None


def _messages_violation(messages: list[Body]) -> Violation | None:
    if len(messages) > _MESSAGES:
        return rejected("A28", f"messages: List should have at most {_MESSAGES} items, not {len(messages)}")
    for index, message in enumerate(messages):
        is_final_assistant = index == len(messages) - 1 and message.get("role") == "assistant"
        if not message.get("content") and not is_final_assistant:
            words = "all messages must have non-empty content except for the optional final assistant message"
            return rejected("A9", f"messages.{index}: {words}")
    return None


def _blocks_violation(turns: list[Turn], strict_unconfirmed: bool) -> Violation | None:
    for turn in turns:
        for block in turn.blocks:
            broken = _block_violation(block)
            if broken is None and strict_unconfirmed:
                broken = _place_violation(turn, block) or _length_violation(block)
            if broken is not None:
                return broken
    return None


def _block_violation(block: Block) -> Violation | None:
    match block.kind:
        case "text":
            return _text_violation(text(block.block.get("text")))
        case "tool_use":
            return _call_violation(block)
        case "tool_result" if block.block.get("is_error") is True:
            return _error_violation(block)
        case kind if kind in THINKING:
            return _signature_violation(block)
        case _:
            return None


def _text_violation(value: str) -> Violation | None:
    if not value:
        return rejected("A10", "messages: text content blocks must be non-empty")
    if not value.strip():
        return rejected("A10", "messages: text content blocks must contain non-whitespace text")
    return None


def _call_violation(block: Block) -> Violation | None:
    name, where = text(block.block.get("name")), f"{block.where}.tool_use"
    if not _ID.fullmatch(block.id_at("id")):
        return rejected("A6", f"{where}.id: String should match pattern '^[a-zA-Z0-9_-]+$'")
    if not name:
        return rejected("A7", f"{where}.name: String should have at least 1 character")
    if len(name) > _NAME_LENGTH:
        return rejected("A7", f"{where}.name: String should have at most {_NAME_LENGTH} characters")
    if not isinstance(block.block.get("input"), dict):
        return rejected("A8", f"{where}.input: Input should be a valid dictionary")
    return None


def _error_violation(block: Block) -> Violation | None:
    content = block.block.get("content")
    if not content:
        return rejected("A11", f"{block.where}.tool_result: content cannot be empty if `is_error` is true")
    if any(part.get("type") == "image" for part in objects(content)):
        return rejected("A11'", f"{block.where}.tool_result: images are not allowed if `is_error` is true")
    return None


def _signature_violation(block: Block) -> Violation | None:
    key = "signature" if block.kind == "thinking" else "data"
    if not isinstance(block.block.get(key), str):
        return rejected("A16", f"{block.where}.{block.kind}.{key}: Field required")
    if not block.block[key]:
        return rejected("A16", f"{block.where}: Invalid `{key}` in `{block.kind}` block")
    return None


def _place_violation(turn: Turn, block: Block) -> Violation | None:
    wrong = "tool_use" if turn.role == "user" else "tool_result"
    if block.kind != wrong:
        return None
    return rejected("A27", f"{block.where}: `{wrong}` blocks are not allowed in `{turn.role}` messages", sure=False)


def _length_violation(block: Block) -> Violation | None:
    if block.kind != "tool_use" or len(block.id_at("id")) <= _ID_LENGTH:
        return None
    words = f"{block.where}.tool_use.id: String should have at most {_ID_LENGTH} characters"
    return rejected("A6", words, sure=False)


def _declared_violation(body: Body) -> Violation | None:
    for index, tool in enumerate(objects(body.get("tools"))):
        if "input_schema" in tool and not _DECLARED_NAME.fullmatch(text(tool.get("name"))):
            words = f"tools.{index}.custom.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'"
            return rejected("A7", words)
    return None


def _breakpoints_violation(body: Body, messages: list[Body]) -> Violation | None:
    blocks = [block for message in messages for block in blocks_of(message)]
    nested = [inner for block in blocks for inner in objects(block.get("content"))]
    marked = [*objects(body.get("tools")), *objects(body.get("system")), *blocks, *nested]
    found = sum(bool(block.get("cache_control")) for block in marked)
    if found > _BREAKPOINTS:
        words = f"A maximum of {_BREAKPOINTS} blocks with cache_control may be provided. Found {found}."
        return rejected("A26", words)
    for block in blocks:
        if block.get("cache_control") and block.get("type") in THINKING:
            return rejected("A26", f"cache_control cannot be set for `{block['type']}` blocks")
    return None
