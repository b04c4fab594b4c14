"""Histories of another format than was named: they are refused, because what a repair does not know it would drop."""

from __future__ import annotations

from typing import Literal, TypeAlias

from heaveto.errors import InvalidHistoryError
from heaveto.histories.work import Body, is_body, is_list, text_of

Shape: TypeAlias = Literal["chat", "responses", "anthropic", "bedrock", "gemini"]
_CALLS_OF_CHAT = frozenset({"responses", "anthropic", "bedrock", "gemini"})


def require_own(message: Body, index: int, shape: Shape) -> None:
    """Refuse a message that holds calls, or all it says, as another format has them.

    Raises:
        InvalidHistoryError
    """
    found = _foreign_key(message, shape)
    content = message.get("content")
    if not found and is_list(content) and shape != "gemini":
        found = next((kind for block in content if is_body(block) and (kind := _foreign_block(block, shape))), "")
    if found:
        raise InvalidHistoryError(index, f"holds {found}, which this format has not; name the provider whose it is")


def _foreign_key(message: Body, shape: Shape) -> str:
    if shape in _CALLS_OF_CHAT and message.get("tool_calls"):
        return "tool_calls"
    own, other = ("parts", "content") if shape == "gemini" else ("content", "parts")
    return other if message.get(other) and not message.get(own) else ""


def _foreign_block(block: Body, shape: Shape) -> str:
    kind = text_of(block.get("type"))
    if shape != "anthropic" and kind in ("tool_use", "tool_result"):
        return f"a {kind} block"
    return (
        "" if shape == "bedrock" else next((f"a {key} block" for key in ("toolUse", "toolResult") if key in block), "")
    )
