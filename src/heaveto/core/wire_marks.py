"""By what a message shows of which formats it may be. Facts, no rules, as `wire_kinds` has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple, TypeAlias, cast

from heaveto.core.json_values import Body

Family: TypeAlias = Literal["chat", "responses", "anthropic", "gemini", "bedrock"]
"""The formats by the shape of their messages; Mistral and others speak Chat."""


class Mark(NamedTuple):
    """Something in a message that not all formats have, and which of them do: `owners`, the likeliest first.

    `kind` tells whether `name` is a role, a key of the message, the type of a block of its content, with its number in
    `block`, or the type of the whole item.
    """

    kind: Literal["role", "key", "block", "item"]
    name: str
    owners: tuple[Family, ...]
    block: int = -1


TELLING = frozenset(("type", "parts", "tool_calls", "function_call"))
"""The keys that may tell of another format than role and content do."""
_SHARED_ROLES = frozenset(("user", "assistant", "system"))
_ROLES: Mapping[str, tuple[Family, ...]] = {
    "tool": ("chat",),
    "function": ("chat",),
    "model": ("gemini",),
    "developer": ("chat", "responses"),
}
_BLOCKS: Mapping[str, tuple[Family, ...]] = {
    "text": ("chat", "anthropic"),
    "refusal": ("chat", "responses"),
    "image_url": ("chat",),
    "file": ("chat",),
    "input_audio": ("chat", "responses"),
    "input_text": ("responses",),
    "output_text": ("responses",),
    "input_image": ("responses",),
    "input_file": ("responses",),
    "tool_use": ("anthropic",),
    "tool_result": ("anthropic",),
    "server_tool_use": ("anthropic",),
    "mcp_tool_use": ("anthropic",),
    "redacted_thinking": ("anthropic",),
    "thinking": ("anthropic", "chat"),
}
_BLOCKS_WITH_SOURCE = ("image", "document")
_BEDROCK_BLOCKS = frozenset(("text", "image", "document", "video", "toolUse", "toolResult", "reasoningContent"))
_OWN_ITEMS = ("reasoning", "item_reference")
_STRING = [Mark("key", "content", ("chat", "anthropic", "responses"))]
_LIST = Mark("key", "content", ("chat", "anthropic", "bedrock", "responses"))
_PARTS = [Mark("key", "parts", ("gemini",))]


def is_item(kind: object) -> bool:
    """Whether the type of a message is that of an item of Responses, other than a message."""
    return isinstance(kind, str) and (kind in _OWN_ITEMS or kind.endswith(("_call", "_output")))


def marks_of(message: Body) -> list[Mark]:
    """Return what a message shows. What no format is known to have shows nothing."""
    role, content = message.get("role"), message.get("content")
    if type(content) is str and role in _SHARED_ROLES and message.keys().isdisjoint(TELLING):
        return _STRING
    kind = message.get("type")
    if is_item(kind):
        return [Mark("item", cast("str", kind), ("responses",))]
    if isinstance(message.get("parts"), list):
        return _PARTS
    found: list[Mark] = []
    if isinstance(role, str) and role in _ROLES:
        found.append(Mark("role", role, _ROLES[role]))
    found += [Mark("key", key, ("chat",)) for key in ("tool_calls", "function_call") if message.get(key)]
    if isinstance(content, str):
        return [*found, *_STRING] if content else found
    if isinstance(content, list) and content:
        found.append(_LIST)
        if role not in ("tool", "function"):  # what is in a result is its own affair
            found += _marks_within(cast("list[object]", content))
    return found


def _marks_within(content: list[object]) -> list[Mark]:
    found: list[Mark] = []
    for number, block in enumerate(content):
        if not isinstance(block, dict):
            continue
        held = cast("Body", block)
        kind = held.get("type")
        if kind is None:
            names = held.keys() & _BEDROCK_BLOCKS
            if names:
                found.append(Mark("block", min(names), ("bedrock",), number))
            continue
        owners = _BLOCKS.get(kind) if isinstance(kind, str) else None
        if owners is None and isinstance(kind, str):
            is_anthropics = kind.endswith("_tool_result") or (kind in _BLOCKS_WITH_SOURCE and "source" in held)
            owners = ("anthropic",) if is_anthropics else None
        if owners is not None:
            found.append(Mark("block", cast("str", kind), owners, number))
    return found


def foreign_mark(message: Body, family: Family) -> Mark | None:
    """Return the first thing in a message that other formats have and this one has not."""
    return next((mark for mark in marks_of(message) if family not in mark.owners), None)
