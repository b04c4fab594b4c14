"""Chats of Gemini CLI: ``~/.gemini/tmp/*/chats/session-*.jsonl``, and ``.json`` before 2026.

A record of type "gemini" holds the calls of an answer with their results, so calls and results cannot come apart in the
order; what can be missing is a call's result. In files of lines a later record with the same id replaces the earlier.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from heaveto.core.json_values import objects, text
from heaveto.histories.files.json_text import Object
from heaveto.histories.files.pairing import paired
from heaveto.histories.files.report import FileChange

_ASKED: Object = {"role": "user", "content": "text"}


@dataclass(frozen=True, slots=True)
class Mended:
    """A record whose calls all have results, and what was added. The record is the same object if nothing was."""

    record: Object
    changes: tuple[FileChange, ...]


def current(records: Sequence[Object]) -> dict[int, Object]:
    """Return the records that count, by place: the last of each id."""
    last = {text(record.get("id")) or str(place): place for place, record in enumerate(records)}
    return {place: records[place] for place in last.values()}


def answered_elsewhere(records: Sequence[Object]) -> frozenset[str]:
    """Return the calls that have a result as a part of a message, as newer versions write them too."""
    return frozenset(
        text(part["functionResponse"].get("id"))
        for record in records
        for part in objects(record.get("content"))
        if isinstance(part.get("functionResponse"), dict)
    )


def with_results(record: Object, answered: frozenset[str]) -> Mended:
    """Give the calls of a record that have no result the one that a repair gives them."""
    calls = objects(record.get("toolCalls"))
    open_calls = [call for call in calls if not call.get("result") and text(call.get("id")) not in answered]
    if record.get("type") != "gemini" or not open_calls:
        return Mended(record, ())
    result = paired(_chat(open_calls), "openai")
    given = [message for message in result.history if message.get("role") == "tool"]
    results = {
        id(call): _result(call, message.get("content")) for call, message in zip(open_calls, given, strict=False)
    }
    mended = [{**call, **results[id(call)]} if id(call) in results else call for call in calls]
    return Mended({**record, "toolCalls": mended}, result.changes)


def _chat(calls: Sequence[Object]) -> list[Object]:
    """Return calls without results as a Chat history."""
    asked = [
        {
            "id": f"{place}",
            "type": "function",
            "function": {"name": text(call.get("name")) or "tool", "arguments": "{}"},
        }
        for place, call in enumerate(calls)
    ]
    return [_ASKED, {"role": "assistant", "content": "text", "tool_calls": asked}]


def _result(call: Object, words: object) -> Object:
    response = {"id": call.get("id"), "name": call.get("name"), "response": {"error": words}}
    return {"result": [{"functionResponse": response}], "status": "cancelled"}
