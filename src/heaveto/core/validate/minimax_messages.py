"""MiniMax in Anthropic's style: the same rules as in its Chat style, over blocks."""

from __future__ import annotations

from heaveto.core.json_values import Body, objects
from heaveto.core.validate import openai_chat
from heaveto.core.validate.anthropic_turns import blocks_of
from heaveto.core.validate.chat_dialect import Breach
from heaveto.core.validate.chat_dialects import MINIMAX_ANTHROPIC
from heaveto.core.validate.violation import Violation


def validate(body: Body, *, strict_unconfirmed: bool = False) -> Violation | None:
    """Return the first rule that a request body in Anthropic's style breaks, or None.

    What has been reported of MiniMax only: Anthropic's other rules are not taken to be its own, unconfirmed or not.
    """
    messages = [message for given in objects(body.get("messages")) for message in _chat_messages(given)]
    tools = [{"function": {"name": "t", "parameters": tool.get("input_schema")}} for tool in objects(body.get("tools"))]
    chat = {"messages": messages, **({"tools": tools} if tools else {})}
    broken = openai_chat.validate(chat, dialect=MINIMAX_ANTHROPIC)
    return broken or _mixed_violation(body)


def _chat_messages(message: Body) -> list[Body]:
    """Return a message as Chat has it: one for each result, and one for the rest."""
    blocks = blocks_of(message)
    results: list[Body] = [
        {"role": "tool", "tool_call_id": block.get("tool_use_id"), "content": "."}
        for block in blocks
        if block.get("type") == "tool_result"
    ]
    calls = [_call(block) for block in blocks if block.get("type") == "tool_use"]
    if results and not calls:
        return results
    rest: Body = {"role": message.get("role"), "content": "."}
    return [*results, {**rest, "tool_calls": calls} if calls else rest]


def _call(block: Body) -> Body:
    is_object = isinstance(block.get("input"), dict)
    return {"id": block.get("id"), "function": {"name": "t", "arguments": "{}" if is_object else ""}}


def _mixed_violation(body: Body) -> Violation | None:
    for message in objects(body.get("messages")):
        kinds = {block.get("type") == "tool_result" for block in blocks_of(message)}
        if kinds == {True, False}:
            return MINIMAX_ANTHROPIC.told(Breach("Q3"))
    return None
