"""What the emulator says, as OpenAI says it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from heaveto.errors import ModelError
from heaveto.events.contents import Json, Text
from heaveto.events.records import Usage
from heaveto.models.base import CallChunk, Chunk, EndChunk, PartChunk, PauseChunk, TextChunk, ThoughtChunk, UsageChunk

DONE = b"data: [DONE]\n\n"


def event(value: Json) -> bytes:
    """Return a server-sent event."""
    return b"data: " + msgspec.json.encode(value) + b"\n\n"


class ChatAnswer:
    """One answer: the frames of its stream, or its whole.

    `estimate` is the usage that is reported if the script says nothing: providers always report some.
    """

    def __init__(self, number: int, model: str, created: int, estimate: Usage) -> None:
        self._head = {"id": f"chatcmpl-{number}", "created": created, "model": model}
        self._estimate = estimate

    def frames(self, chunk: Chunk, *, first: bool) -> list[bytes]:
        """Return the events of a chunk; the first of an answer names the role."""
        delta = _delta(chunk)
        if isinstance(chunk, EndChunk):
            role = {"role": "assistant", "content": ""} if first else {}
            return [event(self._frame(role, _reason(chunk)))]
        if delta is None:
            return []
        return [event(self._frame({"role": "assistant", **delta} if first else delta, None))]

    def usage_frame(self, usage: Usage | None) -> bytes:
        """Return the last event of a stream that was asked to include usage."""
        frame: dict[str, Any] = {**self._head, "object": "chat.completion.chunk", "choices": []}
        return event({**frame, "usage": _usage(usage or self._estimate)})

    def whole(self, chunks: Sequence[Chunk]) -> dict[str, Any]:
        """Return the completion that these chunks add up to."""
        texts: list[str] = []
        thoughts: list[str] = []
        calls: dict[int, dict[str, Any]] = {}
        reason, usage = "stop", self._estimate
        for chunk in chunks:
            match chunk:
                case TextChunk(text=text) | PartChunk(part=Text(text=text)):
                    texts.append(text)
                case ThoughtChunk(text=text):
                    thoughts.append(text)
                case CallChunk():
                    _add(calls, chunk)
                case UsageChunk(usage=spent):
                    usage = spent
                case EndChunk():
                    reason = _reason(chunk)
                case PartChunk() | PauseChunk():
                    pass
        message: dict[str, Any] = {"role": "assistant", "content": "".join(texts) or None, "refusal": None}
        message |= {"reasoning_content": "".join(thoughts)} if thoughts else {}
        message |= {"tool_calls": list(calls.values())} if calls else {}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": reason}
        return {**self._head, "object": "chat.completion", "choices": [choice], "usage": _usage(usage)}

    def _frame(self, delta: dict[str, Any], reason: str | None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        return {**self._head, "object": "chat.completion.chunk", "choices": [choice], "usage": None}


def error_body(error: ModelError) -> dict[str, Any]:
    """Return the error body of a scripted fault."""
    if error.body is not None:
        return {"error": error.body}
    kind = "server_error" if error.retryable else "invalid_request_error"
    return {"error": {"message": str(error), "type": kind, "param": None, "code": None}}


def estimated(body: dict[str, Any], chunks: Sequence[Chunk]) -> Usage:
    """Return about what an answer costs: four characters are a token."""
    said = sum(len(chunk.text) for chunk in chunks if isinstance(chunk, (TextChunk, ThoughtChunk)))
    said += sum(len(chunk.name) + len(chunk.args) for chunk in chunks if isinstance(chunk, CallChunk))
    return Usage(len(msgspec.json.encode(body.get("messages"))) // 4, -(-said // 4))


def _delta(chunk: Chunk) -> dict[str, Any] | None:
    match chunk:
        case TextChunk(text=text) | PartChunk(part=Text(text=text)):
            return {"content": text}
        case ThoughtChunk(text=text):
            return {"reasoning_content": text}
        case CallChunk(index=index):
            return {"tool_calls": [{"index": index, **_call(chunk)}]}
        case _:
            return None


def _call(chunk: CallChunk) -> dict[str, Any]:
    extra = chunk.data or {}
    if not chunk.name and not chunk.provider_id:
        return {**extra, "function": {"arguments": chunk.args}}
    function = {"name": chunk.name, "arguments": chunk.args}
    return {**extra, "id": chunk.provider_id, "type": "function", "function": function}


def _add(calls: dict[int, dict[str, Any]], chunk: CallChunk) -> None:
    if chunk.index in calls:
        calls[chunk.index]["function"]["arguments"] += chunk.args
    else:
        calls[chunk.index] = _call(chunk)


def _reason(end: EndChunk) -> str:
    return "length" if end.cut and end.reason in ("stop", "tool_calls") else end.reason


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }
