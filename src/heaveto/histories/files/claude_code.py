"""Transcripts of Claude Code: ``~/.claude/projects/*/*.jsonl``.

A line of type "user" or "assistant" wraps an Anthropic message; an answer has one line for each content block, which
share ``message.id``. Lines form a tree by ``uuid`` and ``parentUuid``, also with lines of other types in between. The
conversation is what leads to the last message line, without what was rewound; a compact boundary has no parent. The
results of calls that ran in parallel hang below the lines of their calls, beside the path.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import NAMESPACE_OID, uuid5

from heaveto.core.json_values import fields, objects, text
from heaveto.histories.files.json_text import Object
from heaveto.histories.files.thread import Agent, Links, Thread, walk_back

_ENVELOPE = (
    "isSidechain", "userType", "cwd", "sessionId", "version", "gitBranch", "agentId", "slug", "entrypoint", "teamName",
    "agentName",
)  # fmt: skip


def _threads(entries: Sequence[Object]) -> list[Thread]:
    places = {text(entry.get("uuid")): place for place, entry in enumerate(entries) if text(entry.get("uuid"))}
    parents = {uuid: text(entries[place].get("parentUuid")) or None for uuid, place in places.items()}
    leaves: dict[object, str] = {}
    for uuid, place in places.items():
        entry = entries[place]
        if entry.get("type") in ("user", "assistant"):
            leaves[_branch(entry, uuid, parents)] = uuid
    return [_thread(entries, places, walk_back(parents, leaf)) for leaf in leaves.values()]


def _branch(entry: Object, uuid: str, parents: dict[str, str | None]) -> object:
    """Tell the conversations of a file apart: that with the user, and each of an agent under it."""
    if not entry.get("isSidechain"):
        return None
    return text(entry.get("agentId")) or next(iter(walk_back(parents, uuid)), uuid)


def _thread(entries: Sequence[Object], places: dict[str, int], path: list[str]) -> Thread:
    chain = {uuid for uuid in path if uuid in places}
    leaf = entries[places[path[-1]]]
    beside = {uuid: entries[place] for uuid, place in places.items() if _is_beside(entries[place], leaf)}
    answers = {_answer_id(entries[places[uuid]]) for uuid in chain} - {None}
    chain |= {uuid for uuid, entry in beside.items() if _answer_id(entry) in answers}
    chain |= {
        uuid
        for uuid, entry in beside.items()
        if _holds_results(entry) and {text(entry.get(key)) for key in ("parentUuid", "sourceToolAssistantUUID")} & chain
    }
    ordered = sorted(places[uuid] for uuid in chain if entries[places[uuid]].get("type") in ("user", "assistant"))
    messages = tuple(_message(entries[place]) for place in ordered)
    return Thread(tuple(ordered), messages, frozenset(chain))


def _is_beside(entry: Object, leaf: Object) -> bool:
    return all(entry.get(key) == leaf.get(key) for key in ("isSidechain", "agentId"))


def _answer_id(entry: Object) -> str | None:
    if entry.get("type") != "assistant":
        return None
    return text(fields(entry.get("message")).get("id")) or None


def _message(entry: Object) -> Object:
    message = fields(entry.get("message"))
    return {"role": message.get("role", entry["type"]), "content": message.get("content", "")}


def _results(entry: Object) -> list[Object]:
    content = objects(fields(entry.get("message")).get("content"))
    return [block for block in content if block.get("type") == "tool_result"]


def _holds_results(entry: Object) -> bool:
    return entry.get("type") == "user" and bool(_results(entry))


def _changed(entry: Object, message: Object) -> Object:
    return {**entry, "message": {**fields(entry.get("message")), "content": message["content"]}}


def _parted(before: Object, after: Object) -> Object | None:
    """Results that were put into a message of results: they get lines of their own, as the agent writes them."""
    old, new = objects(before.get("content")), objects(after.get("content"))
    added = new[len(old) :]
    if not old or new[: len(old)] != old or any(block.get("type") != "tool_result" for block in new):
        return None
    return {"role": "user", "content": added} if added else None


def _inserted(message: Object, near: Object, callers: Mapping[str, Object]) -> list[Object]:
    """Make a line for each result, as the agent does; a message of something else gets one line."""
    content = message.get("content")
    blocks = objects(content)
    results = [block for block in blocks if "tool_use_id" in block]
    if not results or len(results) != len(blocks):
        return [_line(message, near, f"{content}")]
    return [
        _line(
            {**message, "content": [result]},
            callers.get(text(result["tool_use_id"]), near),
            text(result["tool_use_id"]),
        )
        for result in results
    ]


def _calls(entry: Object) -> list[str]:
    blocks = objects(fields(entry.get("message")).get("content"))
    return [text(block.get("id")) for block in blocks if block.get("type") == "tool_use"]


def _line(message: Object, source: Object, name: str) -> Object:
    line: Object = {"parentUuid": source.get("uuid")}
    line.update({key: source[key] for key in _ENVELOPE if key in source})
    line.update({"type": message["role"], "message": message})
    line["uuid"] = str(uuid5(NAMESPACE_OID, f"heaveto:{source.get('uuid')}:{name}"))
    if "timestamp" in source:
        line["timestamp"] = source["timestamp"]
    if source.get("type") == "assistant":
        line["sourceToolAssistantUUID"] = source.get("uuid")
    return line


CLAUDE_CODE = Agent(
    "anthropic", _threads, _changed, _inserted,
    links=Links("uuid", "parentUuid"), ids=("uuid",), calls=_calls, holds_results=_holds_results, parted=_parted,
)  # fmt: skip
