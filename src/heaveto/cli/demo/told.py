"""What a request tells a model: read from the body that went over the wire, of any of the four APIs. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

_NOTE = re.compile(r"\[[^\]]+\]")
_LATE = re.compile(r"\[Late result of the earlier call [^\]]*\]")
_TEXTS = ("text", "input_text", "output_text")

Body: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Words:
    """Text that the user or the model said."""

    by: str
    text: str


@dataclass(frozen=True, slots=True)
class Call:
    """A call that the model made."""

    call_id: str
    name: str


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a call as the model is told it."""

    call_id: str
    name: str
    content: dict[str, Any]

    @property
    def status(self) -> str:
        """The word for calls that did not simply succeed; empty for those that did."""
        return str(self.content.get("status", "")) if "error" in self.content else ""

    @property
    def explanation(self) -> str:
        """What a model can read about a call that did not simply succeed."""
        return str(self.content.get("error", ""))


Item: TypeAlias = Words | Call | Result


def conversation(body: Body) -> list[Item]:
    """Return what a request says, in order: of Chat Completions, Responses, Anthropic Messages or Gemini."""
    names: dict[str, str] = {}
    items: list[Item] = []
    for entry in _entries(body):
        for item in _items(entry):
            if isinstance(item, Call):
                names[item.call_id] = item.name
            elif isinstance(item, Result):
                item = Result(item.call_id, names.get(item.call_id, item.name), item.content)  # noqa: PLW2901
            items.append(item)
    return items


def results(body: Body) -> list[Result]:
    """Return all results of calls in a request, in order."""
    return [item for item in conversation(body) if isinstance(item, Result)]


def last_results(body: Body) -> list[Result]:
    """Return the results that end a request."""
    found: list[Result] = []
    for item in reversed(conversation(body)):
        if not isinstance(item, Result):
            break
        found.insert(0, item)
    return found


def calls(body: Body) -> list[str]:
    """Return the ids of all calls in a request, in order."""
    return [item.call_id for item in conversation(body) if isinstance(item, Call)]


def user_text(body: Body) -> str:
    """Return what the user said last, without the runtime's notes."""
    return _NOTE.sub("", _last_user(body)).strip()


def notes(body: Body) -> list[str]:
    """Return the runtime's notes that stand before the user's last words."""
    return _NOTE.findall(_last_user(body))


def late_notes(body: Body) -> list[str]:
    """Return the late results that are told with the user's last words."""
    return _LATE.findall(_last_user(body))


def said_before(body: Body) -> list[str]:
    """Return the texts of the model's own earlier messages."""
    return [item.text for item in conversation(body) if isinstance(item, Words) and item.by == "model"]


def _last_user(body: Body) -> str:
    """The texts that the user said last, in one or several parts of one turn."""
    texts: list[str] = []
    for item in reversed(conversation(body)):
        if isinstance(item, Words) and item.by == "user":
            texts.insert(0, item.text)
        elif texts:
            break
    return "\n".join(texts)


def _entries(body: Body) -> list[Body]:
    key = next((key for key in ("messages", "contents", "input") if key in body), "messages")
    return cast("list[Body]", body.get(key, []))


def _items(entry: Body) -> Iterator[Item]:
    """What one message, content or input item says."""
    kind, role = entry.get("type"), entry.get("role")
    if kind == "function_call":
        yield Call(entry["call_id"], entry["name"])
    elif kind == "function_call_output":
        yield Result(entry["call_id"], "", _decoded(entry["output"]))
    elif role == "tool":
        yield Result(entry["tool_call_id"], "", _decoded(entry["content"]))
    elif role in ("user", "model", "assistant"):
        yield from _parts("user" if role == "user" else "model", entry)
        for made in entry.get("tool_calls") or ():
            yield Call(made["id"], made["function"]["name"])


def _parts(by: str, entry: Body) -> Iterator[Item]:
    content = entry.get("content") or entry.get("parts") or ""
    for part in [{"type": "text", "text": content}] if isinstance(content, str) else content:
        match part:
            case {"type": "tool_use", "id": call_id, "name": name} | {"functionCall": {"id": call_id, "name": name}}:
                yield Call(call_id, name)
            case {"type": "tool_result", "tool_use_id": call_id, "content": text}:
                yield Result(call_id, "", _decoded(text))
            case {"functionResponse": {"id": call_id, "name": name, "response": response}}:
                yield Result(call_id, name, _decoded(response))
            case {"text": str(text)} if text and part.get("type", "text") in _TEXTS and not part.get("thought"):
                yield Words(by, text)
            case _:
                pass


def _decoded(output: object) -> dict[str, Any]:
    value: object = output
    if isinstance(output, str):
        try:
            value = json.loads(output)
        except ValueError:
            value = output
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {"text": value}
