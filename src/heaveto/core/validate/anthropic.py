"""The rules of Anthropic Messages: shape, pairing, server tools, tail.

Messages of one role in a row are one turn; errors name the original indices.
"""

from __future__ import annotations

import re
from itertools import pairwise

import msgspec

from heaveto.core.validate.violation import Body, Violation, objects, text

_ID = re.compile(r"[a-zA-Z0-9_-]+", re.ASCII)
_NAME_LENGTH = 200
_DECLARED_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}", re.ASCII)


class _Block(msgspec.Struct, frozen=True):
    message: int
    index: int
    block: Body

    @property
    def kind(self) -> str:
        return text(self.block.get("type"))

    @property
    def where(self) -> str:
        return f"messages.{self.message}.content.{self.index}"


class _Merged(msgspec.Struct, frozen=True):
    role: str
    first: int
    blocks: list[_Block]

    def of(self, kind: str) -> list[_Block]:
        return [block for block in self.blocks if block.kind == kind]


def validate(body: Body, *, strict_unconfirmed: bool = False, prefill: bool = False) -> Violation | None:
    """Return the first rule that a request body breaks, or None. `prefill`: the model goes on from a last answer."""
    messages = objects(body.get("messages"))
    turns = _merged(messages)
    return (
        _content_violation(messages)
        or _shape_violation(turns, strict_unconfirmed)
        or _declared_violation(body)
        or _pairing_violation(turns, strict_unconfirmed, prefill)
        or _server_violation(turns)
        or (None if prefill else _tail_violation(turns))
        or (_head_violation(turns) if strict_unconfirmed else None)
    )


def _rejected(rule: str, message: str, *, sure: bool = True) -> Violation:
    error = {"type": "invalid_request_error", "message": message}
    return Violation(rule, 400, {"type": "error", "error": error, "request_id": "req_emulated"}, unconfirmed=not sure)


def _merged(messages: list[Body]) -> list[_Merged]:
    turns: list[_Merged] = []
    for index, message in enumerate(messages):
        role = text(message.get("role"))
        if not turns or turns[-1].role != role:
            turns.append(_Merged(role, index, []))
        turns[-1].blocks.extend(_Block(index, place, block) for place, block in enumerate(_blocks(message)))
    return turns


def _blocks(message: Body) -> list[Body]:
    content = message.get("content")
    return [{"type": "text", "text": content}] if isinstance(content, str) else objects(content)


def _content_violation(messages: list[Body]) -> Violation | None:
    for index, message in enumerate(messages):
        is_final_assistant = index == len(messages) - 1 and message.get("role") == "assistant"
        if not message.get("content") and not is_final_assistant:
            words = "all messages must have non-empty content except for the optional final assistant message"
            return _rejected("A9", f"messages.{index}: {words}")
    return None


def _shape_violation(turns: list[_Merged], strict_unconfirmed: bool) -> Violation | None:
    for turn in turns:
        for block in turn.blocks:
            broken = _block_violation(block)
            if broken is None and strict_unconfirmed:
                broken = _place_violation(turn, block)
            if broken is not None:
                return broken
    return None


def _block_violation(block: _Block) -> Violation | None:
    match block.kind:
        case "text":
            return _text_violation(text(block.block.get("text")))
        case "tool_use":
            return _call_violation(block)
        case "tool_result" if block.block.get("is_error") is True and not block.block.get("content"):
            return _rejected("A11", f"{block.where}.tool_result: content cannot be empty if `is_error` is true")
        case _:
            return None


def _text_violation(value: str) -> Violation | None:
    if not value:
        return _rejected("A10", "messages: text content blocks must be non-empty")
    if not value.strip():
        return _rejected("A10", "messages: text content blocks must contain non-whitespace text")
    return None


def _call_violation(block: _Block) -> Violation | None:
    name, where = text(block.block.get("name")), f"{block.where}.tool_use"
    if not _ID.fullmatch(text(block.block.get("id"))):
        return _rejected("A6", f"{where}.id: String should match pattern '^[a-zA-Z0-9_-]+$'")
    if not name:
        return _rejected("A7", f"{where}.name: String should have at least 1 character")
    if len(name) > _NAME_LENGTH:
        return _rejected("A7", f"{where}.name: String should have at most {_NAME_LENGTH} characters")
    if not isinstance(block.block.get("input"), dict):
        return _rejected("A8", f"{where}.input: Input should be a valid dictionary")
    return None


def _place_violation(turn: _Merged, block: _Block) -> Violation | None:
    wrong = "tool_use" if turn.role == "user" else "tool_result"
    if block.kind != wrong:
        return None
    return _rejected("A27", f"{block.where}: `{wrong}` blocks are not allowed in `{turn.role}` messages", sure=False)


def _declared_violation(body: Body) -> Violation | None:
    for index, tool in enumerate(objects(body.get("tools"))):
        if "input_schema" in tool and not _DECLARED_NAME.fullmatch(text(tool.get("name"))):
            words = f"tools.{index}.custom.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'"
            return _rejected("A7", words)
    return None


def _pairing_violation(turns: list[_Merged], strict_unconfirmed: bool, prefill: bool) -> Violation | None:
    known: set[str] = set()
    for before, turn in pairwise([_Merged("", 0, []), *turns]):
        broken = (
            _results_violation(before, turn)
            or _unanswered(before, turn)
            or _duplicate_use(turn, known if strict_unconfirmed else set(), sure=not strict_unconfirmed)
        )
        if broken is not None:
            return broken
        known.update(text(block.block.get("id")) for block in turn.of("tool_use"))
    return _unanswered(turns[-1], None) if turns and prefill else None


def _results_violation(before: _Merged, turn: _Merged) -> Violation | None:
    asked = (
        {text(block.block.get("id")) for block in before.of("tool_use")} if before.role == "assistant" else set[str]()
    )
    answered: set[str] = set()
    for block in turn.of("tool_result"):
        call_id = text(block.block.get("tool_use_id"))
        if call_id not in asked:
            words = (
                f"{block.where}: unexpected `tool_use_id` found in `tool_result` blocks: {call_id}. Each `tool_result` "
                "block must have a corresponding `tool_use` block in the previous message."
            )
            return _rejected("A2", words)
        if call_id in answered:
            words = (
                f"{block.where}: each tool_use must have a single result. Found multiple `tool_result` blocks with id: "
            )
            return _rejected("A4", words + call_id)
        answered.add(call_id)
    return None


def _unanswered(before: _Merged, turn: _Merged | None) -> Violation | None:
    asked = [text(block.block.get("id")) for block in before.of("tool_use")]
    if before.role != "assistant" or not asked:
        return None
    blocks = turn.blocks if turn is not None else []
    first = next((place for place, block in enumerate(blocks) if block.kind != "tool_result"), len(blocks))
    leading = {text(block.block.get("tool_use_id")) for block in blocks[:first]}
    anywhere = {text(block.block.get("tool_use_id")) for block in blocks}
    missing = [call_id for call_id in asked if call_id not in leading]
    if not missing:
        return None
    rule = "A3" if anywhere.issuperset(asked) else "A1"
    index = turn.first if turn is not None else before.first
    words = (
        f"messages.{index}: `tool_use` ids were found without `tool_result` blocks immediately after: "
        f"{', '.join(missing)}. "
        "Each `tool_use` block must have a corresponding `tool_result` block in the next message."
    )
    return _rejected(rule, words)


def _duplicate_use(turn: _Merged, known: set[str], *, sure: bool) -> Violation | None:
    seen: set[str] = set()
    for block in turn.of("tool_use"):
        call_id = text(block.block.get("id"))
        if call_id in seen or call_id in known:
            return _rejected("A5", f"{block.where}: `tool_use` ids must be unique", sure=sure or call_id in seen)
        seen.add(call_id)
    return None


def _server_violation(turns: list[_Merged]) -> Violation | None:
    used: dict[str, tuple[int, _Block]] = {}
    answered: set[str] = set()
    for place, turn in enumerate(turns):
        for block in turn.blocks:
            if block.kind in ("server_tool_use", "mcp_tool_use"):
                used[text(block.block.get("id"))] = (place, block)
            elif block.kind.endswith("_tool_result"):
                call_id = text(block.block.get("tool_use_id"))
                if call_id not in used:
                    return _orphan_server_result(block, call_id)
                answered.add(call_id)
    for call_id, (place, block) in used.items():
        if call_id not in answered and not _only_results(turns[place + 1 :]):
            name = block.block.get("name")
            words = (
                f"`{name}` tool use with id `{call_id}` was found without a corresponding `{name}_tool_result` block"
            )
            return _rejected("A17", f"{block.where}: {words}")
    return None


def _orphan_server_result(block: _Block, call_id: str) -> Violation:
    words = (
        f"{block.where}: unexpected `tool_use_id` found in `{block.kind}` blocks: {call_id}. Each `{block.kind}` block "
        "must have a corresponding `server_tool_use` block before it."
    )
    return _rejected("A18", words)


def _only_results(turns: list[_Merged]) -> bool:
    return all(block.kind == "tool_result" for turn in turns for block in turn.blocks)


def _tail_violation(turns: list[_Merged]) -> Violation | None:
    if not turns or turns[-1].role != "assistant":
        return None
    words = "This model does not support assistant message prefill. The conversation must end with a user message."
    return _rejected("A12", words)


def _head_violation(turns: list[_Merged]) -> Violation | None:
    if not turns:
        return _rejected("A29", "messages: at least one message is required", sure=False)
    if turns[0].role != "user":
        return _rejected("A24", 'messages: first message must use the "user" role', sure=False)
    return None
