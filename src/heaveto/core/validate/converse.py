"""Bodies of Converse: the error that the service answers with, the blocks of a message, Claude's form of them."""

from __future__ import annotations

from heaveto.core.json_values import Body, fields, objects
from heaveto.core.validate.violation import Violation

_ERROR = {"x-amzn-errortype": "ValidationException"}


def rejected(rule: str, message: str, *, sure: bool = True) -> Violation:
    """Return the service's ValidationException."""
    return Violation(rule, 400, {"message": message}, unconfirmed=not sure, headers=_ERROR)


def kinds(message: Body) -> set[str]:
    """Return which kinds of blocks a message has."""
    return {kind for block in objects(message.get("content")) for kind in block}


def claude_body(body: Body) -> Body:
    """Return what of a request Claude itself judges, as a body of its own API: thinking, calls, results, text."""
    extra = fields(body.get("additionalModelRequestFields"))
    messages = [
        {"role": message.get("role"), "content": [_block(block) for block in objects(message.get("content"))]}
        for message in objects(body.get("messages"))
    ]
    thinking = {"thinking": extra["thinking"]} if "thinking" in extra else {}
    return {"messages": messages, **thinking}


def _block(block: Body) -> Body:
    match block:
        case {"text": words}:
            return {"type": "text", "text": words}
        case {"toolUse": call}:
            held = fields(call)
            return {
                "type": "tool_use",
                "id": held.get("toolUseId"),
                "name": held.get("name"),
                "input": held.get("input"),
            }
        case {"toolResult": result}:
            return {"type": "tool_result", "tool_use_id": fields(result).get("toolUseId")}
        case {"reasoningContent": reasoning}:
            return _thinking(fields(reasoning))
        case _:
            return {"type": next(iter(block), "")}


def _thinking(reasoning: Body) -> Body:
    if "redactedContent" in reasoning:
        return {"type": "redacted_thinking", "data": reasoning["redactedContent"]}
    held = fields(reasoning.get("reasoningText"))
    signature = {"signature": held["signature"]} if "signature" in held else {}
    return {"type": "thinking", "thinking": held.get("text"), **signature}
