"""OpenAI Chat Completions. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from heaveto.core.validate import Violation, validate
from heaveto.errors import ModelError
from heaveto.events.contents import Json, Part, Text
from heaveto.events.records import Usage
from heaveto.models.base import CallChunk, EndChunk
from heaveto.testing.emulator.dialects.base import Answer, Asked, Body, Opening, event, listed, reason_word
from heaveto.testing.emulator.dialects.openai import OpenAIDialect, openai_error

DONE = b"data: [DONE]\n\n"
_REASONS = {"stop": "stop", "tool_calls": "tool_calls", "length": "length", "content_filter": "content_filter"}


class OpenAIChatDialect(OpenAIDialect):
    """POST /v1/chat/completions, of OpenAI or of a server that has its own rules for it, such as ``deepseek``."""

    def __init__(self, rules: Mapping[str, Any], server: str) -> None:
        super().__init__(rules)
        self.api = server

    def violation(self, asked: Asked) -> Violation | None:
        return validate(asked.body, self.api, **self.rules)

    def answer(self, opening: Opening) -> Answer:
        return ChatAnswer(opening)

    def prompt(self, asked: Asked) -> list[Json]:
        return [*listed(asked.body.get("tools")), *listed(asked.body.get("messages"))]


class ChatAnswer(Answer):
    """One completion; the role stands in its first frame, the usage in its last one, if it was asked for."""

    def __init__(self, opening: Opening) -> None:
        self._head = {
            "id": f"chatcmpl-{opening.number}", "created": opening.created, "model": opening.model,
            "system_fingerprint": "fp_emulated", "service_tier": "default",
        }  # fmt: skip
        self._usage = _usage(opening.usage)
        self._wants_usage = _wants_usage(opening.asked.body)
        self._is_first = True
        self._texts: list[str] = []
        self._thoughts: list[str] = []
        self._calls: dict[int, dict[str, Any]] = {}
        self._reason = "stop"

    def failure(self, error: ModelError) -> list[bytes]:
        return [event(error.body or openai_error(error.status or 500, str(error)))]

    def whole(self) -> Body:
        message: dict[str, Any] = {"role": "assistant", "content": "".join(self._texts) or None, "refusal": None}
        message |= {"reasoning_content": "".join(self._thoughts)} if self._thoughts else {}
        message |= {"tool_calls": list(self._calls.values())} if self._calls else {}
        message["annotations"] = []
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": self._reason}
        return {**self._head, "object": "chat.completion", "choices": [choice], "usage": self._usage}

    def _end(self, chunk: EndChunk) -> list[bytes]:
        self._reason = reason_word(chunk.reason, _REASONS, cut=chunk.cut)
        frames = [event(self._frame({"content": ""} if self._is_first else {}, self._reason))]
        if self._wants_usage:
            frame = {**self._head, "object": "chat.completion.chunk", "choices": list[Json](), "usage": self._usage}
            frames.append(event(frame))
        return [*frames, DONE]

    def _text(self, text: str) -> list[bytes]:
        self._texts.append(text)
        return self._delta({"content": text})

    def _thought(self, text: str) -> list[bytes]:
        self._thoughts.append(text)
        return self._delta({"reasoning_content": text})

    def _call(self, chunk: CallChunk) -> list[bytes]:
        if chunk.index in self._calls:
            self._calls[chunk.index]["function"]["arguments"] += chunk.args
        else:
            self._calls[chunk.index] = _call(chunk)
        return self._delta({"tool_calls": [{"index": chunk.index, **_call(chunk)}]})

    def _part(self, part: Part) -> list[bytes]:
        return self._text(part.text) if isinstance(part, Text) else []

    def _delta(self, delta: Body) -> list[bytes]:
        return [event(self._frame(delta, None))]

    def _frame(self, delta: dict[str, Any], reason: str | None) -> dict[str, Any]:
        role = {"role": "assistant"} if self._is_first else {}
        self._is_first = False
        choice = {"index": 0, "delta": {**role, **delta}, "logprobs": None, "finish_reason": reason}
        return {**self._head, "object": "chat.completion.chunk", "choices": [choice], "usage": None}


def _call(chunk: CallChunk) -> dict[str, Any]:
    extra = chunk.data or {}
    if not chunk.name and not chunk.provider_id:
        return {**extra, "function": {"arguments": chunk.args}}
    function = {"name": chunk.name, "arguments": chunk.args}
    return {**extra, "id": chunk.provider_id, "type": "function", "function": function}


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": usage.reasoning_tokens, "audio_tokens": 0,
            "accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0,
        },
    }  # fmt: skip


def _wants_usage(body: Body) -> bool:
    options = body.get("stream_options")
    return isinstance(options, dict) and bool(cast("Body", options).get("include_usage"))
