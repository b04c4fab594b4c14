"""What a repair sees to beside the messages, where it is given a whole request body."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import msgspec

from heaveto.core.repair import Change, Policy
from heaveto.core.wire_kinds import THINKING
from heaveto.histories.profiles import Profile
from heaveto.histories.work import Body, text_of


def policy_for(profile: Profile, settings: Body) -> Policy:
    """Return the policy under a body's settings: with a stored chain, a result's call may stand there (R3)."""
    if settings.get("previous_response_id") or settings.get("conversation"):
        return msgspec.structs.replace(profile.policy, orphans_allowed=True)
    return profile.policy


def settle_body(profile: Profile, body: Body, messages: list[Body]) -> tuple[Body, list[Body], list[Change]]:
    """Return the rest of the body and the messages as they must be together, and what was changed."""
    match profile.family:
        case "chat":
            rest, changes = _chat_tools(body)
        case "bedrock":
            rest, changes = _bedrock_tools(body, messages)
        case "anthropic":
            rest, changes = _thinking(body, messages)
            if _type_of_thinking(rest) == "disabled":
                messages, dropped = _without_last_thoughts(messages)
                changes += dropped
        case _:
            rest, changes = body, []
    return rest, messages, changes


def _chat_tools(body: Body) -> tuple[Body, list[Change]]:
    """Neither an empty list of tools, nor a choice without tools (O16)."""
    if body.get("tools"):
        return body, []
    excess = [key for key in ("tools", "tool_choice", "parallel_tool_calls") if key in body]
    if not excess:
        return body, []
    kept = {key: value for key, value in body.items() if key not in excess}
    return kept, [Change("O16", 0, "edited", known=f"there are no tools, so no {' and '.join(excess)}")]


def _bedrock_tools(body: Body, messages: list[Any]) -> tuple[Body, list[Change]]:
    """Where blocks of tools are, there is a configuration of tools, whatever they are called (B4)."""
    config: object = body.get("toolConfig")
    if isinstance(config, dict) and cast("Body", config).get("tools"):
        return body, []
    blocks = [block for message in messages for block in message.get("content") or ()]
    if not any("toolUse" in block or "toolResult" in block for block in blocks):
        return body, []
    names = dict.fromkeys(text_of(block["toolUse"].get("name")) for block in blocks if "toolUse" in block)
    specs = [{"toolSpec": {"name": name, "inputSchema": {"json": {"type": "object"}}}} for name in names]
    change = Change("B4", 0, "added", known="a toolConfig that names the tools of the history")
    return {**body, "toolConfig": {"tools": specs}}, [change]


def _type_of_thinking(body: Body) -> object:
    thinking: object = body.get("thinking")
    return cast("Body", thinking).get("type") if isinstance(thinking, dict) else None


def _thinking(body: Body, messages: list[Body]) -> tuple[Body, list[Change]]:
    """Where the calls under way do not begin with thinking, it cannot be asked for in this request (A14)."""
    if _type_of_thinking(body) != "enabled" or not _lacks_thinking(messages):
        return body, []
    kept = {key: value for key, value in body.items() if key != "thinking"}
    return {**kept, "thinking": {"type": "disabled"}}, [
        Change("A14", len(messages) - 1, "edited", known="the calls under way do not begin with thinking; disabled")
    ]


def _lacks_thinking(messages: list[Any]) -> bool:
    """Look at the first answer since the user last said something: does it call without having thought?"""
    under_way: list[Body] = []
    before = ""
    for message in reversed(messages):
        role, blocks = message.get("role"), list(_blocks(message))
        if role == "assistant":
            under_way = [*blocks, *under_way] if before == "assistant" else blocks
        elif any(block.get("type") != "tool_result" for block in blocks):
            break
        before = role
    calls = any(block.get("type") == "tool_use" for block in under_way)
    return calls and under_way[0].get("type") not in THINKING


def _without_last_thoughts(messages: list[Body]) -> tuple[list[Body], list[Change]]:
    """Where thinking is off, the last turn of the model has none in it, as long as only results follow (A14')."""
    kept, changes = list(messages), list[Change]()
    is_within = False
    for place in range(len(messages) - 1, -1, -1):
        message = messages[place]
        blocks = list(_blocks(message))
        if message.get("role") == "assistant":
            is_within = True
            left = [block for block in blocks if block.get("type") not in THINKING]
            if len(left) < len(blocks):
                kept[place : place + 1] = [{**message, "content": left}] if left else []
                changes.append(Change("A14'", place, "dropped", known="thinking of the last turn, as thinking is off"))
        elif is_within or any(block.get("type") != "tool_result" for block in blocks):
            break
    return (kept, changes) if changes else (messages, [])


def _blocks(message: Body) -> Iterable[Body]:
    content = message.get("content")
    return [{"type": "text", "text": content}] if isinstance(content, str) else cast("list[Body]", content or [])
