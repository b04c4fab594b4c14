"""Anthropic's own tools, which the provider executes: no client answers their calls (F22, F23)."""

from __future__ import annotations

from typing import cast

from heaveto.core.wire_kinds import SERVER_CALLS
from heaveto.histories.work import Body, Work, text_of


def is_own(block: Body) -> bool:
    """Whether a block is a call of such a tool, or the result of one."""
    kind = text_of(block.get("type"))
    return kind in SERVER_CALLS or kind.endswith("_tool_result")


def drop_unpaired(work: Work) -> None:
    """Drop own results without a call, and own calls without a result, except where the provider goes on with them.

    A paused answer is sent back as it is (A17): then nothing but results of the client's tools stands behind it.
    """
    called: set[str] = set()
    answered: set[str] = set()
    for message in work.messages:
        for block in _blocks(message):
            kind = text_of(block.get("type"))
            if kind in SERVER_CALLS:
                called.add(text_of(block.get("id")))
            elif kind.endswith("_tool_result") and text_of(block.get("tool_use_id")) in called:
                answered.add(text_of(block.get("tool_use_id")))
    resumable = _resumable_from(work.messages)
    seen: set[str] = set()
    for index, message in enumerate(work.messages):
        blocks = _blocks(message)
        kept = [block for block in blocks if _stays(block, seen, answered, index >= resumable)]
        if message is None or len(kept) == len(blocks):
            continue
        work.messages[index] = {**message, "content": kept} if kept else None
        for block in blocks:
            if not any(block is other for other in kept):
                _report(work, index, block)


def _blocks(message: Body | None) -> list[Body]:
    content = message.get("content") if message is not None else None
    return cast("list[Body]", content) if isinstance(content, list) else []


def _stays(block: Body, seen: set[str], answered: set[str], is_resumable: bool) -> bool:
    kind = text_of(block.get("type"))
    if kind in SERVER_CALLS:
        call_id = text_of(block.get("id"))
        seen.add(call_id)
        return call_id in answered or is_resumable
    if kind.endswith("_tool_result"):
        return text_of(block.get("tool_use_id")) in seen
    return True


def _resumable_from(messages: list[Body | None]) -> int:
    """Return the index of the last model message, if nothing but the client's results stands behind it."""
    for index in range(len(messages) - 1, -1, -1):
        message = messages[index]
        if message is None:
            continue
        if message.get("role") == "assistant":
            return index
        blocks = _blocks(message)
        if not blocks or any(block.get("type") != "tool_result" for block in blocks):
            break
    return len(messages)


def _report(work: Work, index: int, block: Body) -> None:
    is_call = text_of(block.get("type")) in SERVER_CALLS
    call_id = text_of(block.get("id" if is_call else "tool_use_id"))
    known = "the provider's own call has no result" if is_call else "the call of the provider's own result is not there"
    work.report("A17" if is_call else "A18", index, "dropped", known, call_id=call_id, name=text_of(block.get("name")))
