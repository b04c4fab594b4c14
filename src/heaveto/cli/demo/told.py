"""What a request tells a model: read from the body that went over the wire. Pure."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, cast

_NOTE = re.compile(r"\[[^\]]+\]")
_LATE = re.compile(r"\[Late result of the earlier call [^\]]*\]")


@dataclass(frozen=True, slots=True)
class Result:
    """One tool message: the result of a call as the model is told it."""

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


def results(body: dict[str, Any]) -> list[Result]:
    """Return all results of calls in a request, in order."""
    names: dict[str, str] = {}
    found: list[Result] = []
    for message in body["messages"]:
        for made in message.get("tool_calls") or ():
            names[made["id"]] = made["function"]["name"]
        if message["role"] == "tool":
            call_id = message["tool_call_id"]
            found.append(Result(call_id, names.get(call_id, ""), _decoded(text_of(message))))
    return found


def last_results(body: dict[str, Any]) -> list[Result]:
    """Return the results that end a request."""
    count = 0
    for message in reversed(body["messages"]):
        if message["role"] != "tool":
            break
        count += 1
    return results(body)[-count:] if count else []


def calls(body: dict[str, Any]) -> list[str]:
    """Return the ids of all calls in a request, in order."""
    return [made["id"] for message in body["messages"] for made in message.get("tool_calls") or ()]


def user_text(body: dict[str, Any]) -> str:
    """Return what the user said last, without the runtime's notes."""
    return _NOTE.sub("", _last_user(body)).strip()


def notes(body: dict[str, Any]) -> list[str]:
    """Return the runtime's notes that stand before the user's last words."""
    return _NOTE.findall(_last_user(body))


def late_notes(body: dict[str, Any]) -> list[str]:
    """Return the late results that are told with the user's last words."""
    return _LATE.findall(_last_user(body))


def said_before(body: dict[str, Any]) -> list[str]:
    """Return the texts of the model's own earlier messages."""
    return [text_of(message) for message in body["messages"] if message["role"] == "assistant" and text_of(message)]


def text_of(message: dict[str, Any]) -> str:
    """Return a message's text."""
    content = message.get("content") or ""
    return content if isinstance(content, str) else "\n".join(str(part.get("text", "")) for part in content)


def _last_user(body: dict[str, Any]) -> str:
    users = [message for message in body["messages"] if message["role"] == "user"]
    return text_of(users[-1]) if users else ""


def _decoded(text: str) -> dict[str, Any]:
    try:
        value: Any = json.loads(text)
    except ValueError:
        value = text
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {"text": value}
