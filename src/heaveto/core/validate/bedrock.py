"""The rules of Bedrock Converse, B1 to B12: shape (B0), roles, blocks, pairing, tools, the model's own.

The service checks most of them; some depend on the family of the model, and Claude's own come through with a prefix.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Literal

import msgspec

from heaveto.core.json_values import Body, fields, objects, repeated, text
from heaveto.core.validate import anthropic
from heaveto.core.validate.bedrock_shape import shape_violation
from heaveto.core.validate.converse import claude_body, kinds, rejected
from heaveto.core.validate.violation import Violation

Family = Literal["anthropic", "llama", "mistral", "nova", "palmyra", "qwen", "other"]


class _Traits(msgspec.Struct, frozen=True):
    """What a family of models takes, beyond what all of them do."""

    leading_assistant: bool = False
    results_alone: bool = False
    documents_beside_results: bool = True
    result_status: bool = True


_TRAITS: dict[Family, _Traits] = {
    "anthropic": _Traits(leading_assistant=True, documents_beside_results=False),
    "qwen": _Traits(leading_assistant=True),
    "llama": _Traits(results_alone=True),
    "mistral": _Traits(results_alone=True),
    "palmyra": _Traits(result_status=False),
    "nova": _Traits(),
    "other": _Traits(),
}
FAMILIES: tuple[Family, ...] = tuple(_TRAITS)


def validate(
    body: Body,
    *,
    strict_unconfirmed: bool = False,
    family: Family = "anthropic",
    prefill: bool = False,
    tools_known: bool = True,
) -> Violation | None:
    """Return the first rule that a request body breaks, or None.

    Args:
        body: what is passed to Converse; the model may be missing, as the HTTP body has it in its path.
        strict_unconfirmed: judge what no public report confirms too.
        family: of the model: what it takes (B6, B10, B12), and whether Claude's rules hold too (B11).
        prefill: the model goes on from a last answer (Claude only).
        tools_known: the body tells which tools there are (B4).
    """
    messages = objects(body.get("messages"))
    traits = _TRAITS[family]
    return (
        shape_violation(body, strict_unconfirmed)
        or _roles_violation(messages, traits)
        or _blocks_violation(messages, traits)
        or _pairing_violation(messages, strict_unconfirmed)
        or (_tools_violation(body, messages) if tools_known else None)
        or _places_violation(messages, traits)
        or (_claude_violation(body, strict_unconfirmed, prefill) if family == "anthropic" else None)
    )


def _roles_violation(messages: list[Body], traits: _Traits) -> Violation | None:
    roles = [text(message.get("role")) for message in messages]
    if roles and roles[0] == "assistant" and not traits.leading_assistant:
        words = (
            "A conversation must start with a user message. Try again with a conversation that starts with a user "
            "message."
        )
        return rejected("B6", words)
    if any(one == other for one, other in pairwise(role for role in roles if role != "system")):
        words = (
            "A conversation must alternate between user and assistant roles. Make sure the conversation alternates "
            "between user and assistant roles and try again."
        )
        return rejected("B6", words)
    return None


def _blocks_violation(messages: list[Body], traits: _Traits) -> Violation | None:
    for index, message in enumerate(messages):
        if not message.get("content"):
            words = f"The content field in the Message object at messages.{index} is empty."
            return rejected("B7", f"{words} Add a ContentBlock object to the content field and try again.")
        for place, block in enumerate(objects(message.get("content"))):
            where = f"messages.{index}.content.{place}"
            broken = _text_violation(where, block) or _result_violation(where, block, traits)
            if broken is not None:
                return broken
    return None


def _text_violation(where: str, block: Body) -> Violation | None:
    if "text" not in block or text(block["text"]).strip():
        return None
    words = f"The text field in the ContentBlock object at {where} is blank. Add text to the text field, and try again."
    return rejected("B7", words)


def _result_violation(where: str, block: Body, traits: _Traits) -> Violation | None:
    result = fields(block.get("toolResult"))
    if "toolResult" not in block:
        return None
    if "status" in result and not traits.result_status:
        return rejected("B12", f"This model doesn't support the status field at {where}.toolResult.status.")
    if result.get("content"):
        return None
    if result.get("status") == "error":
        return rejected("B5", f"The content field at {where}.toolResult cannot be empty when status value is error.")
    return rejected("B5", f"The content field at {where}.toolResult cannot be empty.")


def _pairing_violation(messages: list[Body], strict_unconfirmed: bool) -> Violation | None:
    asked: list[str] = []
    for index, message in enumerate(messages):
        blocks = objects(message.get("content"))
        where = f"messages.{index}.content"
        answered = _ids(blocks, "toolResult")
        missing = [call_id for call_id in asked if call_id not in answered]
        if missing:
            return rejected("B1", f"Expected toolResult blocks at {where} for the following Ids: {', '.join(missing)}")
        twice = repeated(answered)
        if twice is not None and strict_unconfirmed:
            return rejected("B3", f"The toolResult blocks at {where} contain duplicate Ids: {twice}", sure=False)
        if len(answered) > len(asked):
            words = f"The number of toolResult blocks at {where} exceeds the number of toolUse blocks of previous turn."
            return rejected("B2", words)
        asked = _ids(blocks, "toolUse")
        twice = repeated(asked)
        if twice is not None:
            return rejected("B3", f"The toolUse blocks at {where} contain duplicate Ids: {twice}")
    return None


def _ids(blocks: list[Body], kind: str) -> list[str]:
    """The ids of calls or results; a call that the service executes itself has its result elsewhere."""
    held = [fields(block[kind]) for block in blocks if kind in block]
    return [text(value.get("toolUseId")) for value in held if value.get("type") != "server_tool_use"]


def _tools_violation(body: Body, messages: list[Body]) -> Violation | None:
    if fields(body.get("toolConfig")).get("tools"):
        return None
    if any({"toolUse", "toolResult"} & kinds(message) for message in messages):
        words = "The toolConfig field must be defined when using toolUse and toolResult content blocks."
        return rejected("B4", words)
    return None


def _places_violation(messages: list[Body], traits: _Traits) -> Violation | None:
    for index, message in enumerate(messages):
        found = kinds(message) - {"cachePoint"}
        for kind, name in (("toolResult", "tool result"), ("toolUse", "tool use")):
            beside = kind in found and found != {kind}
            if beside and (traits.results_alone or _beside_documents(kind, found, traits)):
                words = f"messages.{index}.content: Conversation blocks and {name} blocks cannot be provided in the "
                return rejected("B10", f"{words}same turn.")
    return None


def _beside_documents(kind: str, found: set[str], traits: _Traits) -> bool:
    return kind == "toolResult" and not traits.documents_beside_results and bool({"document", "video"} & found)


def _claude_violation(body: Body, strict_unconfirmed: bool, prefill: bool) -> Violation | None:
    """What only the model itself judges: thinking, and the tail (B11)."""
    broken = anthropic.model_violation(claude_body(body), strict_unconfirmed=strict_unconfirmed, prefill=prefill)
    if broken is None:
        return None
    words = f"The model returned the following errors: {broken.message}"
    return rejected("B11", words, sure=not broken.unconfirmed)
