"""Gemini generateContent, of the Gemini API and of Vertex. Pure."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

import msgspec

from heaveto.core.validate import Violation, gemini
from heaveto.errors import ModelError
from heaveto.events.contents import Blob, FunctionCall, Json, Part, Text, Thought
from heaveto.events.records import Usage
from heaveto.models.base import CallChunk, Chunk, EndChunk
from heaveto.testing.emulator.dialects.base import Answer, Asked, Body, Dialect, Opening, listed, parsed, reason_word

_REASONS = {"stop": "STOP", "tool_calls": "STOP", "length": "MAX_TOKENS", "content_filter": "SAFETY"}
_STATUSES = {
    400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED", 499: "CANCELLED", 500: "INTERNAL", 503: "UNAVAILABLE", 504: "DEADLINE_EXCEEDED",
}  # fmt: skip
_RETRY_INFO = "type.googleapis.com/google.rpc.RetryInfo"


class GeminiDialect(Dialect):
    """POST /v1beta/models/MODEL:generateContent and :streamGenerateContent, the latter as an array or as events."""

    api = "gemini"

    def __init__(self, rules: Mapping[str, Any], *, call_ids: bool, strict_signatures: bool) -> None:
        super().__init__(rules)
        self._issued: set[str] = set()
        self._call_ids, self._strict_signatures = call_ids, strict_signatures

    def violation(self, asked: Asked) -> Violation | None:
        if not asked.body.get("contents"):
            words = "* GenerateContentRequest.contents: contents is not specified\n"
            return Violation("schema", 400, gemini_error(400, words))
        issued: dict[str, Any] = {"issued_signatures": self._issued} if self._strict_signatures else {}
        return gemini.validate(asked.body, **{**issued, **self.rules})

    def answer(self, opening: Opening) -> Answer:
        is_array = self.is_stream(opening.asked) and not _is_events(opening.asked)
        return GeminiAnswer(opening, self._issued, is_array=is_array)

    def error(self, status: int, message: str, *, retry_after: float | None = None) -> Body:
        return gemini_error(status, message, retry_after=retry_after)

    def unknown_model(self, model: str) -> Body:
        words = f"models/{model} is not found for API version v1beta, or is not supported for generateContent. "
        words += "Call ListModels to see the list of available models and their supported methods."
        return gemini_error(404, words)

    def call_id(self, number: int) -> str:
        return f"call_{number}" if self._call_ids else ""

    def model(self, asked: Asked) -> str:
        return asked.names.get("model", "")

    def is_stream(self, asked: Asked) -> bool:
        return asked.names.get("method") == "streamGenerateContent"

    def stream_type(self, asked: Asked) -> str:
        return "text/event-stream" if _is_events(asked) else "application/json; charset=UTF-8"

    def envelope(self, asked: Asked, error: Json) -> Json:
        """A stream that is an array has its errors in an array too."""
        return [error] if self.is_stream(asked) and not _is_events(asked) else error

    def headers(self, number: int) -> dict[str, str]:
        return {}

    def retry_headers(self, seconds: float) -> dict[str, str]:
        """Google asks for patience in the body."""
        return {}

    def prompt(self, asked: Asked) -> list[Json]:
        body = asked.body
        return [*listed(body.get("tools")), *listed(body.get("systemInstruction")), *listed(body.get("contents"))]


class GeminiAnswer(Answer):
    """One answer: parts, some of them signed. Calls come whole, and the first one of an answer is always signed.

    A script's signed thought signs the part behind it, as Gemini does. A call whose arguments are no JSON object is not
    made at all; the answer ends as MALFORMED_FUNCTION_CALL, unless a limit cut it.
    """

    def __init__(self, opening: Opening, issued: set[str], *, is_array: bool) -> None:
        self._opening, self._issued, self._is_array = opening, issued, is_array
        self._parts: list[Body] = []
        self._growing: CallChunk | None = None
        self._signature = ""
        self._has_calls = False
        self._malformed = ""
        self._reason: str | None = None
        self._frames = 0

    def feed(self, chunk: Chunk) -> list[bytes]:
        """As of any answer; but a call is sent whole, when something else comes."""
        is_growing = isinstance(chunk, CallChunk) and self._growing is not None and self._growing.index == chunk.index
        return super().feed(chunk) if is_growing else [*self._finish_call(), *super().feed(chunk)]

    def failure(self, error: ModelError) -> list[bytes]:
        body = error.body or gemini_error(error.status or 500, str(error), retry_after=error.retry_after_seconds)
        return [self._frame(body), *self._closing()]

    def whole(self) -> Body:
        candidate: Body = {"content": {"parts": _merged(self._parts), "role": "model"}, "index": 0}
        return self._response(candidate, self._reason)

    def _text(self, text: str) -> list[bytes]:
        return [self._said({"text": text})] if text else []

    def _thought(self, text: str) -> list[bytes]:
        return [self._said({"text": text, "thought": True}, may_sign=False)] if text else []

    def _call(self, chunk: CallChunk) -> list[bytes]:
        before = self._growing
        if before is not None:
            chunk = msgspec.structs.replace(before, args=before.args + chunk.args, data=chunk.data or before.data)
        self._growing = chunk
        return []

    def _end(self, chunk: EndChunk) -> list[bytes]:
        self._reason = reason_word(chunk.reason, _REASONS, cut=chunk.cut)
        if chunk.cut:
            self._malformed = ""  # the limit cut the call: nothing is told of it
        elif self._malformed:
            self._reason = "MALFORMED_FUNCTION_CALL"
        last = self._signed({"text": ""})
        if self._parts and "thoughtSignature" in last:
            self._parts.append(last)
            self._issued.add(last["thoughtSignature"])
        candidate: Body = {"content": {"parts": [last], "role": "model"}, "index": 0}
        return [self._frame(self._response(candidate, self._reason)), *self._closing()]

    def _part(self, part: Part) -> list[bytes]:
        if isinstance(part, Thought) and part.signature and not part.data:
            self._signature = _base64(part.signature)
            was_streamed = bool(self._parts) and bool(self._parts[-1].get("thought"))
            return [] if was_streamed else self._thought(part.text)
        own = part.data if part.provider == "gemini" and part.data else {}
        neutral = _neutral(part)
        return [self._said({**neutral, **own}, may_sign=not own)] if neutral or own else []

    def _finish_call(self) -> list[bytes]:
        call, self._growing = self._growing, None
        if call is None:
            return []
        args = parsed(call.args)
        if args is None:
            self._malformed = f"Malformed function call: {call.name}({call.args})"
            return []
        function = {"name": call.name, "args": args, **({"id": call.provider_id} if call.provider_id else {})}
        if not self._has_calls and not self._signature:
            self._signature = _base64(f"emulated signature {self._opening.number}")
        self._has_calls = True
        return [self._said({"functionCall": function, **(call.data or {})})]

    def _said(self, part: Body, *, may_sign: bool = True) -> bytes:
        part = self._signed(part) if may_sign else part
        if "thoughtSignature" in part:
            self._issued.add(part["thoughtSignature"])
        self._parts.append(part)
        return self._frame(self._response({"content": {"parts": [part], "role": "model"}, "index": 0}, None))

    def _signed(self, part: Body) -> Body:
        signature, self._signature = self._signature, ""
        return {"thoughtSignature": signature, **part} if signature else part

    def _response(self, candidate: Body, reason: str | None) -> Body:
        ended: Body = {"finishReason": reason} if reason else {}
        ended |= {"finishMessage": self._malformed} if reason and self._malformed else {}
        return {
            "candidates": [{**candidate, **ended}],
            "usageMetadata": _usage(self._opening.usage, is_last=reason is not None),
            "modelVersion": self._opening.model,
            "responseId": f"response-{self._opening.number}",
        }

    def _frame(self, value: Body) -> bytes:
        self._frames += 1
        encoded = msgspec.json.encode(value)
        if not self._is_array:
            return b"data: " + encoded + b"\r\n\r\n"
        return (b"[" if self._frames == 1 else b",\r\n") + encoded

    def _closing(self) -> list[bytes]:
        return [b"]"] if self._is_array else []


def gemini_error(status: int, message: str, *, retry_after: float | None = None) -> Body:
    """Return the error body of a status."""
    word = _STATUSES.get(status, "INTERNAL" if status >= 500 else "FAILED_PRECONDITION")
    error: Body = {"code": status, "message": message, "status": word}
    if retry_after is not None:
        error["details"] = [{"@type": _RETRY_INFO, "retryDelay": f"{retry_after:g}s"}]
    return {"error": error}


def _is_events(asked: Asked) -> bool:
    return asked.query.get("alt") == "sse"


def _neutral(part: Part) -> Body:
    """Return what Gemini has for a neutral part; nothing for what only another provider understands."""
    match part:
        case Text(text=text):
            return {"text": text}
        case Thought(text=text):
            return {"text": text, "thought": True}
        case FunctionCall():
            name = {"id": part.provider_id} if part.provider_id else {}
            return {"functionCall": {**name, "name": part.name, "args": part.args}}
        case Blob(mime_type=mime_type, content=content):
            return {"inlineData": {"mimeType": mime_type, "data": base64.b64encode(content).decode()}}
        case _:
            return {}


def _merged(parts: list[Body]) -> list[Body]:
    """Join streamed pieces of text, as an answer in one piece has them."""
    merged: list[Body] = []
    for part in parts:
        last = merged[-1] if merged else {}
        is_text = set(part) - {"thoughtSignature"} <= {"text", "thought"} and set(last) <= {"text", "thought"}
        if last and is_text and part.get("thought") == last.get("thought"):
            merged[-1] = {**last, **part, "text": last["text"] + part["text"]}
        else:
            merged.append(part)
    return merged


def _base64(text: str) -> str:
    """Return a signature as the field's type wants it: it is kept if it is base64 already."""
    try:
        base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return base64.b64encode(text.encode()).decode()
    return text


def _usage(usage: Usage, *, is_last: bool) -> dict[str, Any]:
    counts = {"promptTokenCount": usage.input_tokens}
    if usage.cached_tokens:
        counts["cachedContentTokenCount"] = usage.cached_tokens
    if not is_last:
        return {**counts, "totalTokenCount": usage.input_tokens}
    counts["candidatesTokenCount"] = usage.output_tokens - usage.reasoning_tokens
    if usage.reasoning_tokens:
        counts["thoughtsTokenCount"] = usage.reasoning_tokens
    details = [{"modality": "TEXT", "tokenCount": usage.input_tokens}]
    return {**counts, "totalTokenCount": usage.total_tokens, "promptTokensDetails": details}
