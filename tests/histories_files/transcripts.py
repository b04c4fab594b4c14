"""Transcripts of each kind, written from a list of events, and read back the way that their agent would."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

Event = tuple[Literal["user", "say", "call", "result"], str]
"""What somebody said, or the id of a call."""

TALK: tuple[Event, ...] = (
    ("user", "Größe? 🙂"),
    ("call", "call_1"),
    ("result", "call_1"),
    ("say", "It is large."),
    ("user", "And now?"),
    ("call", "call_2"),
    ("call", "call_3"),
    ("result", "call_2"),
    ("result", "call_3"),
    ("say", "Both are done."),
    ("user", "Thanks."),
)


def compact(value: object) -> bytes:
    """One line of JSON as JavaScript writes it."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def jsonl(values: list[dict[str, Any]]) -> bytes:
    return b"".join(compact(value) + b"\n" for value in values)


@dataclass(frozen=True)
class Transcript:
    """One kind of file: how it is written, and what of it is sent to the model when it is loaded again."""

    name: str
    write: Callable[[tuple[Event, ...]], bytes]
    read: Callable[[list[dict[str, Any]]], Iterator[Event]]
    adjacent: bool = True
    """Whether results must come before the user says more."""

    def events(self, data: bytes) -> list[Event]:
        """Load a file that must be whole, and return what the model would see of it."""
        assert data.endswith(b"\n"), "the next line that is appended would be glued to the last"
        return list(self.read([json.loads(line) for line in data.splitlines()]))


def _claude(events: tuple[Event, ...]) -> bytes:
    lines: list[dict[str, Any]] = [{"type": "summary", "summary": "Sizes", "leafUuid": "other"}]
    parent: str | None = None
    callers: dict[str, str] = {}
    answer = 0
    for number, (kind, what) in enumerate(events):
        uuid = f"00000000-0000-4000-8000-{number:012}"
        if kind in ("user", "say") or (kind == "result" and what not in callers):
            callers.clear()  # results hang beside the path only directly behind their calls
        elif kind == "call" and events[number - 1][0] == "result":
            callers.clear()
        line: dict[str, Any] = {
            "parentUuid": callers.pop(what, parent) if kind == "result" else parent, "isSidechain": False,
            "userType": "external", "cwd": "/project", "sessionId": "11111111-1111-4111-8111-111111111111",
            "version": "2.1.220", "gitBranch": "main",
        }  # fmt: skip
        block: dict[str, Any] = {"type": "text", "text": what}
        if kind == "call":
            block = {"type": "tool_use", "id": what, "name": "Bash", "input": {"command": "ls"}}
            callers[what] = uuid
        elif kind == "result":
            block = {"tool_use_id": what, "type": "tool_result", "content": f"output of {what}"}
        answer += kind == "say" or (kind == "call" and events[number - 1][0] != "call")
        message: dict[str, Any] = {"role": "user", "content": what if kind == "user" else [block]}
        if kind in ("say", "call"):
            message = {"id": f"msg_{answer}", "type": "message", "role": "assistant", "content": [block]}
        role = message["role"]
        line |= {"type": role, "message": message, "uuid": uuid, "timestamp": "2026-08-01T00:06:35.485Z"}
        lines.append(line)
        parent = uuid
        if kind == "say":
            parent = f"{uuid}-s"
            lines.append({"parentUuid": uuid, "type": "system", "subtype": "turn_duration", "uuid": parent})
    return jsonl(lines)


def _read_claude(lines: list[dict[str, Any]]) -> Iterator[Event]:
    """Walk from the last message to the root; what belongs to the answers on the way is taken along."""
    entries = {line["uuid"]: line for line in lines if "uuid" in line}
    at = next(line["uuid"] for line in reversed(lines) if line["type"] in ("user", "assistant"))
    path: set[str] = set()
    while at is not None:
        assert at in entries, "a parent that is not there: the conversation before it would be lost"
        path.add(at)
        at = entries[at]["parentUuid"]
    answers = {entries[uuid]["message"]["id"] for uuid in path if entries[uuid]["type"] == "assistant"}
    path |= {uuid for uuid, entry in entries.items() if entry.get("message", {}).get("id") in answers}
    path |= {uuid for uuid, entry in entries.items() if entry["parentUuid"] in path and "tool_result" in str(entry)}
    for uuid, entry in entries.items():
        if uuid not in path or "message" not in entry:
            continue
        content = entry["message"]["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        for block in blocks:
            match block:
                case {"type": "text", "text": text}:
                    yield ("user" if entry["type"] == "user" else "say"), text
                case {"type": "tool_use", "id": call}:
                    yield "call", call
                case {"type": "tool_result", "tool_use_id": call}:
                    yield "result", call


def _codex(events: tuple[Event, ...]) -> bytes:
    lines: list[dict[str, Any]] = [
        {"timestamp": "2026-08-01T00:00:00.000Z", "type": "session_meta", "payload": {"id": "x", "cwd": "/project"}}
    ]
    for number, (kind, what) in enumerate(events):
        stamp = f"2026-08-01T00:00:{number:02}.000Z"
        item: dict[str, Any]
        if kind == "call":
            item = {"type": "function_call", "name": "shell", "arguments": "{}", "call_id": what}
        elif kind == "result":
            item = {"type": "function_call_output", "call_id": what, "output": f"output of {what}"}
        elif kind == "user":
            item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": what}]}
        else:
            item = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": what}]}
        if kind == "user":
            lines.append(
                {"timestamp": stamp, "type": "event_msg", "payload": {"type": "user_message", "message": what}}
            )
        lines.append({"timestamp": stamp, "type": "response_item", "payload": item})
    return jsonl(lines)


def _read_codex(lines: list[dict[str, Any]]) -> Iterator[Event]:
    for line in lines:
        assert line.keys() == {"timestamp", "type", "payload"}
        if line["type"] != "response_item":
            continue
        match line["payload"]:
            case {"type": "function_call", "call_id": call}:
                yield "call", call
            case {"type": "function_call_output", "call_id": call}:
                yield "result", call
            case {"role": role, "content": [{"text": text}]}:
                yield ("user" if role == "user" else "say"), text


def _pi(events: tuple[Event, ...]) -> bytes:
    lines: list[dict[str, Any]] = [
        {"type": "session", "version": 3, "id": "s", "timestamp": "2026-08-01T00:00:00.000Z", "cwd": "/project"}
    ]
    parent: str | None = None
    for number, (kind, what) in enumerate(_grouped(events)):
        message: dict[str, Any]
        match kind:
            case "user":
                message = {"role": "user", "content": what}
            case "say":
                message = {"role": "assistant", "content": [{"type": "text", "text": what}], "stopReason": "stop"}
            case "call":
                calls = [{"type": "toolCall", "id": call, "name": "bash", "arguments": {}} for call in what]
                message = {"role": "assistant", "content": calls, "stopReason": "toolUse"}
            case _:
                message = {"role": "toolResult", "toolCallId": what, "toolName": "bash", "isError": False}
                message["content"] = [{"type": "text", "text": f"output of {what}"}]
        name = f"{number:08x}"
        lines.append(
            {
                "type": "message",
                "id": name,
                "parentId": parent,
                "timestamp": "2026-08-01T00:00:01.000Z",
                "message": {**message, "timestamp": 1785542400000 + number},
            }
        )
        parent = name
    return jsonl(lines)


def _grouped(events: tuple[Event, ...]) -> Iterator[tuple[str, Any]]:
    calls: list[str] = []
    for kind, what in events:
        if kind == "call":
            calls.append(what)
            continue
        if calls:
            yield "call", calls
            calls = []
        yield kind, what
    if calls:
        yield "call", calls


def _read_pi(lines: list[dict[str, Any]]) -> Iterator[Event]:
    entries = {line["id"]: line for line in lines if line["type"] != "session"}
    assert len(entries) == len(lines) - 1, "two entries with one id"
    path: list[dict[str, Any]] = []
    at = lines[-1]["id"]
    while at is not None:
        path.append(entries[at])
        at = entries[at]["parentId"]
    for entry in reversed(path):
        match entry["message"]:
            case {"role": "toolResult", "toolCallId": call}:
                yield "result", call
            case {"role": "user", "content": text}:
                yield "user", text
            case {"content": blocks}:
                for block in blocks:
                    yield ("call", block["id"]) if block["type"] == "toolCall" else ("say", block["text"])


def _chat(events: tuple[Event, ...]) -> bytes:
    messages: list[dict[str, Any]] = []
    for kind, what in _grouped(events):
        match kind:
            case "user":
                messages.append({"role": "user", "content": what})
            case "say":
                messages.append({"role": "assistant", "content": what})
            case "call":
                function = {"name": "ls", "arguments": "{}"}
                calls = [{"id": call, "type": "function", "function": function} for call in what]
                messages.append({"role": "assistant", "content": None, "tool_calls": calls})
            case _:
                messages.append({"role": "tool", "tool_call_id": what, "content": f"output of {what}"})
    return jsonl(messages)


def read_chat(messages: list[dict[str, Any]]) -> Iterator[Event]:
    for message in messages:
        match message:
            case {"role": "tool", "tool_call_id": call}:
                yield "result", call
            case {"tool_calls": calls}:
                for call in calls:
                    yield "call", call["id"]
            case {"role": role, "content": text}:
                yield ("user" if role == "user" else "say"), text


CLAUDE_CODE = Transcript("claude-code", _claude, _read_claude)
CODEX = Transcript("codex", _codex, _read_codex, adjacent=False)
PI = Transcript("pi", _pi, _read_pi)
CHAT = Transcript("messages", _chat, read_chat)
KINDS = (CLAUDE_CODE, CODEX, PI, CHAT)


def gemini_cli(*, answered: bool = True) -> bytes:
    """A Gemini CLI chat of lines, with a call that has its result, or none."""
    call: dict[str, Any] = {"id": "ls-1", "name": "ls", "args": {}, "status": "executing", "timestamp": "t"}
    asked: dict[str, Any] = {
        "id": "2",
        "timestamp": "t",
        "type": "gemini",
        "content": "Let me see.",
        "toolCalls": [call],
    }
    response = {"id": "ls-1", "name": "ls", "response": {"output": "a b"}}
    done = {**asked, "toolCalls": [{**call, "status": "success", "result": [{"functionResponse": response}]}]}
    lines: list[dict[str, Any]] = [
        {"sessionId": "s", "projectHash": "h", "startTime": "t", "lastUpdated": "t"},
        {"id": "1", "timestamp": "t", "type": "user", "content": [{"text": "List the files."}]},
        asked,
        {"$set": {"lastUpdated": "t2"}},
        *([done] if answered else []),
        {"id": "3", "timestamp": "t", "type": "user", "content": [{"text": "Go on."}]},
    ]
    return jsonl(lines)


def paired_up(events: list[Event], *, adjacent: bool = True) -> bool:
    """Whether each call has one result, behind it and before the user says more, and no result is without a call."""
    waiting: list[str] = []
    for kind, what in events:
        match kind:
            case "call":
                waiting.append(what)
            case "result":
                if what not in waiting:
                    return False
                waiting.remove(what)
            case "user" if waiting and adjacent:
                return False
            case _:
                pass
    return not waiting
