"""Anthropic Messages. Pure."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import msgspec

from heaveto.core.validate import Violation, anthropic
from heaveto.errors import ModelError
from heaveto.events.contents import FunctionCall, Json, Part, Text, Thought
from heaveto.events.records import Usage
from heaveto.models.base import CallChunk, EndChunk
from heaveto.testing.emulator.dialects.base import (
    Answer,
    Asked,
    Body,
    Dialect,
    Opening,
    event,
    listed,
    reason_word,
    words,
)

_REASONS = {"stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens", "content_filter": "refusal"}
_ERRORS = {
    400: "invalid_request_error", 401: "authentication_error", 402: "billing_error", 403: "permission_error",
    404: "not_found_error", 413: "request_too_large", 429: "rate_limit_error", 500: "api_error",
    504: "timeout_error", 529: "overloaded_error",
}  # fmt: skip
_REQUIRED = ("model", "max_tokens", "messages")
_STREAMED: dict[str, Body] = {
    "text": {"text": ""},
    "thinking": {"thinking": "", "signature": ""},
    "tool_use": {"input": {}},
    "server_tool_use": {"input": {}},
    "mcp_tool_use": {"input": {}},
}
"""The fields of a block that come as deltas, and what they are at its start; other blocks come whole."""


class AnthropicDialect(Dialect):
    """POST /v1/messages."""

    api = "anthropic"

    def __init__(self, rules: Mapping[str, Any], *, strict_signatures: bool) -> None:
        super().__init__(rules)
        self._issued: dict[str, set[str]] = {}
        self._strict_signatures = strict_signatures

    def violation(self, asked: Asked) -> Violation | None:
        for name in _REQUIRED:
            if name not in asked.body:
                return Violation("schema", 400, self.error(400, f"{name}: Field required"))
        issued: dict[str, Any] = {"issued_thinking": self._issued} if self._strict_signatures else {}
        return anthropic.validate(asked.body, **{**issued, **self.rules})

    def answer(self, opening: Opening) -> Answer:
        return AnthropicAnswer(opening, self._issued)

    def error(self, status: int, message: str, *, retry_after: float | None = None) -> Body:
        return anthropic_error(status, message)

    def unknown_model(self, model: str) -> Body:
        return self.error(404, f"model: {model}")

    def call_id(self, number: int) -> str:
        return f"toolu_{number}"

    def headers(self, number: int) -> dict[str, str]:
        return {"request-id": f"req_{number}"}

    def prompt(self, asked: Asked) -> list[Json]:
        body = asked.body
        return [*listed(body.get("tools")), *listed(body.get("system")), *listed(body.get("messages"))]


class AnthropicAnswer(Answer):
    """One message: blocks that open, grow and close, one after another.

    Thinking is always signed, as the real one is: with the script's signature, or with one made here. `issued` takes
    the signatures and what they sign.
    """

    def __init__(self, opening: Opening, issued: dict[str, set[str]]) -> None:
        self._opening, self._issued = opening, issued
        self._usage = _usage(opening.usage)
        self._blocks: list[Body] = []
        self._open: Body | None = None
        self._open_call = -1
        self._args = ""
        self._reason: str | None = None

    def opening(self) -> list[bytes]:
        usage = {**self._usage, "output_tokens": min(1, self._opening.usage.output_tokens)}
        message = {**self.whole(), "content": list[Json](), "usage": usage}
        return [_event({"type": "message_start", "message": message}), _event({"type": "ping"})]

    def failure(self, error: ModelError) -> list[bytes]:
        return [event(error.body or anthropic_error(error.status or 500, str(error)), "error")]

    def whole(self) -> Body:
        return {
            "id": f"msg_{self._opening.number}", "type": "message", "role": "assistant",
            "model": self._opening.model, "content": self._blocks, "stop_reason": self._reason,
            "stop_sequence": None, "usage": self._usage,
        }  # fmt: skip

    def _text(self, text: str) -> list[bytes]:
        return self._grown("text", text)

    def _thought(self, text: str) -> list[bytes]:
        return self._grown("thinking", text)

    def _grown(self, kind: str, text: str) -> list[bytes]:
        """Let the open block grow, or a new one; its kind is also the name of its text."""
        if not text:
            return []
        frames = self._begin_unless(kind)
        self._blocks[-1][kind] += text
        return [*frames, self._delta({"type": f"{kind}_delta", kind: text})]

    def _end(self, chunk: EndChunk) -> list[bytes]:
        frames = self._close()
        self._reason = reason_word(chunk.reason, _REASONS, cut=chunk.cut)
        delta = {"stop_reason": self._reason, "stop_sequence": None}
        return [
            *frames,
            _event({"type": "message_delta", "delta": delta, "usage": self._usage}),
            _event({"type": "message_stop"}),
        ]

    def _part(self, part: Part) -> list[bytes]:
        if isinstance(part, Thought) and part.signature and self._is_open("thinking"):
            return self._close(part.signature)  # the text was streamed right before it
        block = _block(part)
        return [] if block is None else self._given(block)

    def _given(self, block: Body) -> list[bytes]:
        """Stream a complete block, its own fields verbatim."""
        start: Body = {
            **block,
            **{key: empty for key, empty in _STREAMED.get(block["type"], {}).items() if key in block},
        }
        frames = self._begin(start)
        for delta in _deltas(block):
            frames.append(self._delta(delta))
        self._blocks[-1] = block
        if block["type"] == "thinking":
            self._issue(block)
        return [*frames, *self._close(None)]

    def _call(self, chunk: CallChunk) -> list[bytes]:
        frames: list[bytes] = []
        if self._open_call != chunk.index:
            head: Body = {
                "type": "tool_use",
                "id": chunk.provider_id,
                "name": chunk.name,
                "input": {},
                **(chunk.data or {}),
            }
            frames += [*self._begin(head), self._json_delta("")]
            self._open_call = chunk.index
        return [*frames, self._json_delta(chunk.args)] if chunk.args else frames

    def _begin_unless(self, kind: str) -> list[bytes]:
        if self._is_open(kind):
            return []
        empty = {"thinking": "", "signature": ""} if kind == "thinking" else {"text": ""}
        return self._begin({"type": kind, **empty})

    def _is_open(self, kind: str) -> bool:
        return self._open is not None and self._open["type"] == kind

    def _begin(self, block: Body) -> list[bytes]:
        frames = self._close()
        self._open = dict(block)
        self._blocks.append(self._open)
        index = len(self._blocks) - 1
        return [*frames, _event({"type": "content_block_start", "index": index, "content_block": block})]

    def _issue(self, block: Body) -> None:
        """Scripts may sign several thoughts alike."""
        self._issued.setdefault(str(block.get("signature")), set()).add(str(block.get("thinking")))

    def _close(self, signature: str | None = "") -> list[bytes]:
        """Close the open block; thinking is signed before. Without anything to sign, the signature is None."""
        if self._open is None:
            return []
        block, frames = self._open, list[bytes]()
        if block["type"] == "thinking" and signature is not None:
            block["signature"] = signature or _signature(self._opening.number, len(self._blocks))
            self._issue(block)
            frames.append(self._delta({"type": "signature_delta", "signature": block["signature"]}))
        if self._open_call >= 0:
            block["input"] = words(self._args)
        self._open, self._open_call, self._args = None, -1, ""
        return [*frames, _event({"type": "content_block_stop", "index": len(self._blocks) - 1})]

    def _json_delta(self, text: str) -> bytes:
        self._args += text
        return self._delta({"type": "input_json_delta", "partial_json": text})

    def _delta(self, delta: Body) -> bytes:
        return _event({"type": "content_block_delta", "index": len(self._blocks) - 1, "delta": delta})


def anthropic_error(status: int, message: str) -> Body:
    """Return the error body of a status."""
    kind = _ERRORS.get(status, "api_error" if status >= 500 else "invalid_request_error")
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_emulated"}


def _event(value: Body) -> bytes:
    return event(value, value["type"])


def _block(part: Part) -> Body | None:
    """Return the block of a part: its own, or what Anthropic has for a neutral one."""
    if part.provider == "anthropic" and part.data and isinstance(part.data.get("type"), str):
        return dict(part.data)
    match part:
        case Text(text=text) if text:
            return {"type": "text", "text": text}
        case Thought(text=text, signature=str(signature)):
            return {"type": "thinking", "thinking": text, "signature": signature}
        case FunctionCall():
            return {"type": "tool_use", "id": part.provider_id or part.call_id, "name": part.name, "input": part.args}
        case _:
            return None


def _deltas(block: Body) -> list[Body]:
    """Return the deltas that a complete block comes in."""
    match block:
        case {"type": "text", "text": text}:
            return [{"type": "text_delta", "text": text}]
        case {"type": "thinking", "thinking": text, "signature": signature}:
            return [
                {"type": "thinking_delta", "thinking": text},
                {"type": "signature_delta", "signature": signature},
            ]
        case {"type": "tool_use" | "server_tool_use" | "mcp_tool_use", "input": given}:
            return [{"type": "input_json_delta", "partial_json": _json(given)}]
        case _:
            return []


def _json(value: Json) -> str:
    return msgspec.json.encode(value).decode()


def _signature(answer: int, block: int) -> str:
    return base64.b64encode(f"emulated signature {answer}.{block}".encode()).decode()


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.input_tokens - usage.cached_tokens - usage.cache_write_tokens,
        "cache_creation_input_tokens": usage.cache_write_tokens,
        "cache_read_input_tokens": usage.cached_tokens,
        "output_tokens": usage.output_tokens,
    }
