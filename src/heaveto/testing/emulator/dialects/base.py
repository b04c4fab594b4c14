"""What an API's dialect is: how requests are judged, and how answers and errors look. Pure."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, assert_never, cast

import msgspec

from heaveto.core.validate import Violation
from heaveto.errors import ModelError
from heaveto.events.contents import Json, Part
from heaveto.events.records import Usage
from heaveto.models.base import CallChunk, Chunk, EndChunk, PartChunk, PauseChunk, TextChunk, ThoughtChunk, UsageChunk

Body = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Asked:
    """A request: its method and path, the query, the headers (lower case), the body, and what the path names.

    A body that is no JSON object is told as an empty one that is not `is_json`.
    """

    method: str
    path: str
    body: Body
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    query: Mapping[str, str] = field(default_factory=dict[str, str])
    names: Mapping[str, str] = field(default_factory=dict[str, str])
    is_json: bool = True


@dataclass(frozen=True, slots=True)
class Opening:
    """What is known of an answer before it begins: its number from 1, the time, what was asked, and what it costs."""

    number: int
    created: int
    model: str
    asked: Asked
    usage: Usage


class Answer(ABC):
    """One answer, made of the chunks of a script. `whole` holds what was fed so far."""

    def opening(self) -> list[bytes]:
        """Return the frames that come before the first chunk."""
        return []

    def feed(self, chunk: Chunk) -> list[bytes]:
        """Return the frames of a chunk; the last chunk closes the answer."""
        match chunk:
            case TextChunk(text=text):
                return self._text(text)
            case ThoughtChunk(text=text):
                return self._thought(text)
            case CallChunk():
                return self._call(chunk)
            case PartChunk(part=part):
                return self._part(part)
            case EndChunk():
                return self._end(chunk)
            case UsageChunk() | PauseChunk():
                return []
            case _:
                assert_never(chunk)

    @abstractmethod
    def _text(self, text: str) -> list[bytes]: ...
    @abstractmethod
    def _thought(self, text: str) -> list[bytes]: ...
    @abstractmethod
    def _call(self, chunk: CallChunk) -> list[bytes]: ...
    @abstractmethod
    def _part(self, part: Part) -> list[bytes]: ...
    @abstractmethod
    def _end(self, chunk: EndChunk) -> list[bytes]: ...

    @abstractmethod
    def failure(self, error: ModelError) -> list[bytes]:
        """Return the frames of an error in the middle of a stream."""

    @abstractmethod
    def whole(self) -> Body:
        """Return the answer as one object."""


class Dialect(ABC):
    """One API. `rules` are options of its validator, such as ``prefill=True``."""

    api: str

    def __init__(self, rules: Mapping[str, Any]) -> None:
        self.rules = rules

    @abstractmethod
    def violation(self, asked: Asked) -> Violation | None:
        """Return the rule that a request breaks, or None."""

    @abstractmethod
    def answer(self, opening: Opening) -> Answer:
        """Begin an answer."""

    @abstractmethod
    def error(self, status: int, message: str, *, retry_after: float | None = None) -> Body:
        """Return the error body of a status."""

    @abstractmethod
    def unknown_model(self, model: str) -> Body:
        """Return the body of the 404 for a model that is not there."""

    @abstractmethod
    def call_id(self, number: int) -> str:
        """Return the id of the n-th call, as this provider makes them."""

    def model(self, asked: Asked) -> str:
        """Return the name of the model that is asked."""
        model = asked.body.get("model")
        return model if isinstance(model, str) else ""

    def is_stream(self, asked: Asked) -> bool:
        """Whether the answer is to be streamed."""
        return bool(asked.body.get("stream"))

    def stream_type(self, asked: Asked) -> str:
        """Return the content type of a stream."""
        return "text/event-stream; charset=utf-8"

    def envelope(self, asked: Asked, error: Json) -> Json:
        """Return an error body as it is sent to this request."""
        return error

    def headers(self, number: int) -> dict[str, str]:
        """Return the headers of this provider's answers."""
        return {"x-request-id": f"req_{number}"}

    def retry_headers(self, seconds: float) -> dict[str, str]:
        """Return the headers that ask for patience."""
        return {"retry-after": f"{seconds:g}"}

    @abstractmethod
    def prompt(self, asked: Asked) -> list[Json]:
        """Return what the model reads, in order: its count and its longest known prefix are counted as tokens."""

    def answered(self, asked: Asked, answer: Body) -> None:
        """Note that an answer is complete; called right before its last byte is sent."""


def event(value: Json, name: str = "") -> bytes:
    """Return a server-sent event."""
    head = f"event: {name}\n".encode() if name else b""
    return head + b"data: " + msgspec.json.encode(value) + b"\n\n"


def tokens(value: Json) -> int:
    """Return about how many tokens a value is: four characters are one."""
    return -(-len(value if isinstance(value, str) else msgspec.json.encode(value)) // 4)


def words(value: str) -> Body:
    """Return the object that an argument text stands for; an empty one where it is none."""
    return parsed(value) or {}


def parsed(value: str) -> Body | None:
    """Return the object that an argument text stands for, or None; no text at all stands for no arguments."""
    try:
        return _OBJECT.decode(value) if value else {}
    except msgspec.DecodeError:
        return None


def listed(value: Json) -> list[Json]:
    """Return a list as it is, nothing as an empty one, and all else as a list of one."""
    if isinstance(value, list):
        return cast("list[object]", value)
    return [value] if value else []


_OBJECT = msgspec.json.Decoder(Body)


_NEUTRAL = {
    "end_turn": "stop", "STOP": "stop", "completed": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length", "MAX_TOKENS": "length", "max_output_tokens": "length",
    "refusal": "content_filter", "SAFETY": "content_filter",
}  # fmt: skip


def reason_word(reason: str, own: Mapping[str, str], *, cut: bool) -> str:
    """Return a reason in a provider's own words. `own` maps ``stop``, ``tool_calls``, ``length``, ``content_filter``.

    One script serves all APIs, so the word of one provider is understood by all; other words are sent as they are.
    """
    neutral = _NEUTRAL.get(reason, reason)
    if cut and neutral in ("stop", "tool_calls"):
        neutral = "length"
    return own.get(neutral, reason)
