"""An answer of OpenAI Responses: items that begin, grow and are done, in numbered events. Pure."""

from __future__ import annotations

import base64
from typing import Any

import msgspec

from heaveto.errors import ModelError
from heaveto.events.contents import FunctionCall, Json, Part, Text, Thought
from heaveto.events.records import Usage
from heaveto.models.base import CallChunk, EndChunk
from heaveto.testing.emulator.dialects.base import Answer, Body, Opening, event, listed, reason_word

_REASONS = {
    "stop": "completed", "tool_calls": "completed", "length": "max_output_tokens", "content_filter": "content_filter",
}  # fmt: skip
_ECHOED: Body = {
    "background": False, "instructions": None, "max_output_tokens": None, "max_tool_calls": None, "metadata": {},
    "parallel_tool_calls": True, "previous_response_id": None, "store": True, "temperature": 1.0, "tool_choice": "auto",
    "tools": [], "top_logprobs": 0, "top_p": 1.0, "truncation": "disabled", "text": {"format": {"type": "text"}},
    "reasoning": {"effort": None, "summary": None}, "user": None, "prompt_cache_key": None, "safety_identifier": None,
}  # fmt: skip
"""What a response repeats of its request, with the defaults."""


class ResponsesAnswer(Answer):
    """One response. `status` is what the provider says of it."""

    def __init__(self, opening: Opening) -> None:
        self._opening = opening
        self._asked = opening.asked.body
        self.id = f"resp_{opening.number}"
        self.status = "queued" if self._asked.get("background") else "in_progress"
        self._items: list[Body] = []
        self._open: Body | None = None
        self._open_call = -1
        self._signature = ""
        self._sequence = 0
        self._error: Body | None = None
        self._why_incomplete: str | None = None

    def opening(self) -> list[bytes]:
        frames = [self._about("response.created")]
        if self.status == "queued":
            frames.append(self._about("response.queued"))
            self.status = "in_progress"
        return [*frames, self._about("response.in_progress")]

    def failure(self, error: ModelError) -> list[bytes]:
        code = "rate_limit_exceeded" if error.status == 429 else "server_error"
        self.status, self._error = "failed", {"code": code, "message": str(error)}
        told = error.body or {"code": code, "message": str(error), "param": None}
        return [self._event("error", told), self._about("response.failed")]

    def cancel(self) -> list[bytes]:
        """Stop here."""
        self.status = "cancelled"
        return []

    def whole(self) -> Body:
        ended = self.status in ("completed", "incomplete")
        reason = self._why_incomplete
        conversation = self._asked.get("conversation")
        return {
            "id": self.id, "object": "response", "created_at": self._opening.created,
            **{key: self._asked.get(key, usual) for key, usual in _ECHOED.items()},
            "model": self._opening.model, "status": self.status, "error": self._error,
            "completed_at": self._opening.created if self.status == "completed" else None,
            "incomplete_details": {"reason": reason} if reason else None,
            "conversation": {"id": conversation} if isinstance(conversation, str) else conversation,
            "output": list(self._items), "service_tier": "default",
            "usage": _usage(self._opening.usage) if ended else None,
        }  # fmt: skip

    def _text(self, text: str) -> list[bytes]:
        return [*self._begin_unless("message"), self._text_delta(text)] if text else []

    def _thought(self, text: str) -> list[bytes]:
        return [*self._begin_unless("reasoning"), self._summary_delta(text)] if text else []

    def _end(self, chunk: EndChunk) -> list[bytes]:
        word = reason_word(chunk.reason, _REASONS, cut=chunk.cut)
        if word == "failed":
            self.status, self._error = "failed", {"code": "server_error", "message": "The model failed to answer."}
        elif word == "completed":
            self.status = "completed"
        else:
            self.status, self._why_incomplete = "incomplete", word
        frames = self._close("incomplete" if self.status == "incomplete" else "completed")
        return [*frames, self._about(f"response.{self.status}")]

    def _part(self, part: Part) -> list[bytes]:
        if isinstance(part, Thought) and part.signature and self._is_open("reasoning"):
            self._signature = part.signature  # the text was streamed right before it
            return self._close()
        if part.provider == "openai-responses" and part.data and isinstance(part.data.get("type"), str):
            return self._given(dict(part.data))
        match part:
            case Text(text=text):
                return self._text(text)
            case Thought(text=text, signature=signature):
                frames = self._thought(text)
                self._signature = signature or ""
                return [*frames, *self._close()]
            case FunctionCall():
                args = msgspec.json.encode(part.args).decode()
                return self._call(CallChunk(1000 + len(self._items), part.name, part.provider_id or part.call_id, args))
            case _:
                return []

    def _given(self, item: Body) -> list[bytes]:
        """Stream a complete item, its own fields verbatim."""
        item.setdefault("id", self._id(str(item["type"])))
        empty = {key: type(item[key])() for key in ("content", "summary", "arguments") if item.get(key)}
        frames = self._begin({**item, **empty})
        for delta in _deltas(item):
            frames += self._given_delta(delta)
        self._items[-1] = item
        self._open = None
        return [*frames, self._event("response.output_item.done", {**self._where(), "item": item})]

    def _given_delta(self, delta: tuple[str, int, Body]) -> list[bytes]:
        kind, index, part = delta
        place = {"item_id": self._items[-1]["id"], "output_index": len(self._items) - 1}
        match kind:
            case "arguments":
                return [
                    self._event("response.function_call_arguments.delta", {**place, "delta": part["arguments"]}),
                    self._event("response.function_call_arguments.done", {**place, **part}),
                ]
            case "summary":
                return self._summary_frames({**place, "summary_index": index}, part)
            case _:
                return self._content_frames({**place, "content_index": index}, part)

    def _summary_frames(self, place: Body, part: Body) -> list[bytes]:
        text = part.get("text", "")
        return [
            self._event("response.reasoning_summary_part.added", {**place, "part": {**part, "text": ""}}),
            self._event("response.reasoning_summary_text.delta", {**place, "delta": text}),
            self._event("response.reasoning_summary_text.done", {**place, "text": text}),
            self._event("response.reasoning_summary_part.done", {**place, "part": part}),
        ]

    def _content_frames(self, place: Body, part: Body) -> list[bytes]:
        key = "refusal" if part.get("type") == "refusal" else "text"
        kind, text = ("refusal" if key == "refusal" else "output_text"), part.get(key, "")
        logs = {} if key == "refusal" else {"logprobs": list[Json]()}
        return [
            self._event("response.content_part.added", {**place, "part": {**part, key: ""}}),
            self._event(f"response.{kind}.delta", {**place, "delta": text, **logs}),
            self._event(f"response.{kind}.done", {**place, key: text, **logs}),
            self._event("response.content_part.done", {**place, "part": part}),
        ]

    def _call(self, chunk: CallChunk) -> list[bytes]:
        frames: list[bytes] = []
        if self._open_call != chunk.index:
            item: Body = {"type": "function_call", "call_id": chunk.provider_id, "name": chunk.name, "arguments": ""}
            frames = self._begin(
                {"id": self._id("function_call"), "status": "in_progress", **item, **(chunk.data or {})}
            )
            self._open_call = chunk.index
        if chunk.args and self._open is not None:
            self._open["arguments"] += chunk.args
            frames.append(self._event("response.function_call_arguments.delta", {**self._at(), "delta": chunk.args}))
        return frames

    def _begin_unless(self, kind: str) -> list[bytes]:
        if self._is_open(kind):
            return []
        item: Body = {"id": self._id(kind), "type": kind}
        if kind == "message":
            frames = self._begin({**item, "status": "in_progress", "role": "assistant", "content": []})
            part, name = _text_part(""), "response.content_part.added"
            self._items[-1]["content"] = [part]
        else:
            frames = self._begin({**item, "summary": []})
            part, name = {"type": "summary_text", "text": ""}, "response.reasoning_summary_part.added"
            self._items[-1]["summary"] = [part]
        return [*frames, self._event(name, {**self._at(), **_index(kind), "part": part})]

    def _begin(self, item: Body) -> list[bytes]:
        frames = self._close()
        self._open = dict(item)
        self._items.append(self._open)
        return [*frames, self._event("response.output_item.added", {**self._where(), "item": item})]

    def _close(self, status: str = "completed") -> list[bytes]:
        """End the open item."""
        item = self._open
        if item is None:
            return []
        frames: list[bytes] = []
        match item["type"]:
            case "message":
                frames = self._end_text(item["content"][0])
            case "reasoning":
                frames = self._end_summary(item["summary"][0])
                item |= self._sealed()
            case _:
                done = {**self._at(), "name": item["name"], "arguments": item["arguments"]}
                frames = [self._event("response.function_call_arguments.done", done)]
        if "status" in item:
            item["status"] = status
        self._open, self._open_call, self._signature = None, -1, ""
        return [*frames, self._event("response.output_item.done", {**self._where(), "item": item})]

    def _end_text(self, part: Body) -> list[bytes]:
        place = {**self._at(), "content_index": 0}
        return [
            self._event("response.output_text.done", {**place, "text": part["text"], "logprobs": []}),
            self._event("response.content_part.done", {**place, "part": part}),
        ]

    def _end_summary(self, part: Body) -> list[bytes]:
        place = {**self._at(), "summary_index": 0}
        return [
            self._event("response.reasoning_summary_text.done", {**place, "text": part["text"]}),
            self._event("response.reasoning_summary_part.done", {**place, "part": part}),
        ]

    def _sealed(self) -> Body:
        """The encrypted reasoning, where it was asked for."""
        if "reasoning.encrypted_content" not in listed(self._asked.get("include")):
            return {}
        made = f"emulated reasoning {self._opening.number}.{len(self._items)}".encode()
        return {"encrypted_content": self._signature or base64.b64encode(made).decode()}

    def _text_delta(self, text: str) -> bytes:
        self._items[-1]["content"][0]["text"] += text
        place = {**self._at(), "content_index": 0}
        return self._event("response.output_text.delta", {**place, "delta": text, "logprobs": []})

    def _summary_delta(self, text: str) -> bytes:
        self._items[-1]["summary"][0]["text"] += text
        return self._event("response.reasoning_summary_text.delta", {**self._at(), "summary_index": 0, "delta": text})

    def _is_open(self, kind: str) -> bool:
        return self._open is not None and self._open["type"] == kind

    def _id(self, kind: str) -> str:
        return f"{ITEM_IDS.get(kind, 'item')}_{self._opening.number}_{len(self._items) + 1}"

    def _where(self) -> Body:
        return {"output_index": len(self._items) - 1}

    def _at(self) -> Body:
        return {"item_id": self._items[-1]["id"], **self._where()}

    def _about(self, name: str) -> bytes:
        return self._event(name, {"response": self.whole()})

    def _event(self, name: str, fields: Body) -> bytes:
        number, self._sequence = self._sequence, self._sequence + 1
        return event({"type": name, "sequence_number": number, **fields}, name)


ITEM_IDS = {"message": "msg", "reasoning": "rs", "function_call": "fc", "function_call_output": "fco"}


def _text_part(text: str) -> Body:
    return {"type": "output_text", "text": text, "annotations": list[Json](), "logprobs": list[Json]()}


def _index(kind: str) -> Body:
    return {"content_index": 0} if kind == "message" else {"summary_index": 0}


def _deltas(item: Body) -> list[tuple[str, int, Body]]:
    """Return what of a complete item is streamed: the list or text it is of, the place there, and the part."""
    match item:
        case {"type": "function_call", "arguments": arguments}:
            return [("arguments", 0, {"arguments": arguments, "name": item.get("name", "")})]
        case {"type": "reasoning"}:
            return [("summary", index, part) for index, part in enumerate(listed(item.get("summary")))]
        case {"type": "message"}:
            return [("content", index, part) for index, part in enumerate(listed(item.get("content")))]
        case _:
            return []


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.total_tokens,
    }
