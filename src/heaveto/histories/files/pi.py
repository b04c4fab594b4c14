"""Sessions of pi and of agents that are built on it, such as openclaw: ``~/.pi/agent/sessions/**/*.jsonl``.

A line of type "message" holds a message of pi's own form, which belongs to no provider. Lines form a tree by ``id`` and
``parentId`` (version 1: none, they follow each other), and the last is the current one. A compaction keeps what begins
at its ``firstKeptEntryId``. Answers that ended in an error or an abort are not sent, and so are not looked at.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, cast

from heaveto.core.json_values import fields, objects, text
from heaveto.histories.files.json_text import Object
from heaveto.histories.files.thread import Agent, Links, Thread, walk_back


def _threads(entries: Sequence[Object]) -> list[Thread]:
    path = _path(entries)
    kept = [place for place in path if _is_sent(entries[place])]
    messages = tuple(_stand_in(fields(entries[place].get("message"))) for place in kept)
    chain = frozenset(text(entries[place].get("id")) for place in path)
    return [Thread(tuple(kept), messages, chain)] if kept else []


def _path(entries: Sequence[Object]) -> list[int]:
    places = {
        text(entry["id"]): place for place, entry in enumerate(entries) if text(entry.get("id")) and _in_tree(entry)
    }
    if not places:
        return list(range(len(entries)))
    parents = {name: text(entries[place].get("parentId")) or None for name, place in places.items()}
    path = [places[name] for name in walk_back(parents, next(reversed(places))) if name in places]
    compactions = [entries[place] for place in path if entries[place].get("type") == "compaction"]
    first = places.get(text(compactions[-1].get("firstKeptEntryId"))) if compactions else None
    return path[path.index(first) :] if first in path else path


def _in_tree(entry: Object) -> bool:
    return entry.get("type") != "session"


def _is_sent(entry: Object) -> bool:
    message = fields(entry.get("message"))
    return entry.get("type") == "message" and bool(message) and message.get("stopReason") not in ("error", "aborted")


def _stand_in(message: Object) -> Object:
    """Return a Chat message that has the same calls and results: what the pairing is judged by."""
    calls = _calls(message)
    if message.get("role") == "toolResult":
        return {"role": "tool", "tool_call_id": message.get("toolCallId"), "content": "result"}
    if message.get("role") != "assistant":
        return {"role": "user", "content": "text"}
    if not calls:
        return {"role": "assistant", "content": "text"}
    functions = [{"name": call.get("name"), "arguments": "{}"} for call in calls]
    return {
        "role": "assistant",
        "content": "text",
        "tool_calls": [
            {"id": call.get("id"), "type": "function", "function": function}
            for call, function in zip(calls, functions, strict=True)
        ],
    }


def _calls(message: Object) -> list[Object]:
    return [block for block in objects(message.get("content")) if block.get("type") == "toolCall"]


def _changed(entry: Object, message: Object) -> Object:
    """Carry new call ids over to the entry. Its words stay."""
    own = fields(entry.get("message"))
    if own.get("role") == "toolResult":
        return {**entry, "message": {**own, "toolCallId": message.get("tool_call_id")}}
    calls = _calls(own)
    new = objects(message.get("tool_calls"))
    if not calls or len(new) != len(calls):
        return entry
    ids = {id(call): text(renamed.get("id")) for call, renamed in zip(calls, new, strict=True)}
    content = [
        {**block, "id": ids[id(block)]} if id(block) in ids else block for block in cast("list[Any]", own["content"])
    ]
    return {**entry, "message": {**own, "content": content}}


def _inserted(message: Object, near: Object, callers: Mapping[str, Object]) -> list[Object]:
    if message.get("role") != "tool":
        return []
    call_id = text(message.get("tool_call_id"))
    own = fields(near.get("message"))
    name = next((call.get("name") for call in _calls_of(callers.get(call_id, {})) if call.get("id") == call_id), "")
    result: Object = {
        "role": "toolResult",
        "toolCallId": call_id,
        "toolName": name,
        "content": [{"type": "text", "text": message.get("content")}],
        "isError": True,
    }
    if "timestamp" in own:
        result["timestamp"] = own["timestamp"]
    entry: Object = {"type": "message"}
    if "id" in near:
        digest = sha256(f"heaveto:{near['id']}:{call_id}".encode("utf-8", "replace")).hexdigest()
        entry |= {"id": digest[:8], "parentId": near["id"]}
    if "timestamp" in near:
        entry["timestamp"] = near["timestamp"]
    return [{**entry, "message": result}]


def _calls_of(entry: Object) -> list[Object]:
    return _calls(fields(entry.get("message")))


PI = Agent(
    "openai", _threads, _changed, _inserted,
    links=Links("id", "parentId"), ids=("id",),
    calls=lambda entry: [text(call.get("id")) for call in _calls_of(entry)],
    holds_results=lambda entry: fields(entry.get("message")).get("role") == "toolResult",
)  # fmt: skip
